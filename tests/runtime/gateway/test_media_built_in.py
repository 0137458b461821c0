"""The built-in image and video models: files that others' decoders read, of the size and length that was asked for."""

import io
import json
from typing import Any

import av
import pytest
from PIL import Image

from baobab.runtime.gateway.built_in import list_models
from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.media.media import Media
from baobab.runtime.gateway.media.model import MediaRequest, Progress
from baobab.runtime.net.egress import Egress
from tests.clock import FixedClock

PICTURE, FILM = "baobab/picture", "baobab/film"


class BuiltInStudio:
    def __init__(self) -> None:
        catalogue = Catalogue(FixedClock(), ())
        catalogue.register_models("baobab", list_models())
        self.catalogue = catalogue
        self.media = Media(catalogue, [], Egress())

    async def render(self, name: str, prompt: str = "A baobab at dawn", **parameters: Any) -> Progress:
        model = self.catalogue.find_model(name)
        assert model is not None
        job = await self.media.start_job(model, MediaRequest(prompt, parameters, {}), "job-1")
        assert (job.status, job.renderings) == ("in_progress", ())
        return await self.media.check_job(model, job.handle)

    async def render_file(self, name: str, prompt: str = "A baobab at dawn", **parameters: Any) -> bytes:
        (rendering,) = (await self.render(name, prompt, **parameters)).renderings
        assert isinstance(rendering.source, bytes)
        return rendering.source

    def count_units(self, name: str, **parameters: Any) -> int:
        model = self.catalogue.find_model(name)
        assert model is not None
        return self.media.count_units(model, MediaRequest("A baobab", parameters, {}))


@pytest.fixture
def studio() -> BuiltInStudio:
    return BuiltInStudio()


def decode_film(film: bytes) -> tuple[Any, list[Any]]:
    """The stream, and all of its frames, by FFmpeg."""
    with av.open(io.BytesIO(film), "r") as container:
        (stream,) = container.streams
        return stream, list(container.decode(stream))


def read_note(picture: bytes) -> str:
    """Reads the text that a picture has beside its dots."""
    with Image.open(io.BytesIO(picture)) as image:
        image.verify()
        return str(image.info["Description"])


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        ({}, (1024, 1024)),
        ({"size": "640x480"}, (640, 480)),
        ({"size": "2K"}, (2048, 2048)),
        ({"aspect_ratio": "16:9"}, (1024, 576)),
        ({"size": "2k", "aspect_ratio": "9:16"}, (1152, 2048)),
        ({"size": "64x64"}, (64, 64)),
    ],
)
async def test_a_picture_has_the_size_that_was_asked_for(
    studio: BuiltInStudio, parameters: dict[str, Any], size: tuple[int, int]
) -> None:
    picture = await studio.render_file(PICTURE, **parameters)
    with av.open(io.BytesIO(picture), "r") as container:
        (frame,) = container.decode(video=0)
        assert (frame.width, frame.height) == size


async def test_a_picture_says_what_it_is_and_what_of(studio: BuiltInStudio) -> None:
    picture = await studio.render_file(PICTURE, "Éin Baobab", size="520x320")
    assert read_note(picture) == "baobab/picture: built-in model Ein Baobab"
    assert b"the built-in model" in picture
    plain = await studio.render_file(PICTURE, "", size="520x320")
    assert plain != picture


async def test_images_that_it_was_shown_are_counted_and_not_seen(studio: BuiltInStudio) -> None:
    image_urls = ["https://example.com/1.png", "https://example.com/2.png"]
    assert "(2 images not seen)" in read_note(
        await studio.render_file(PICTURE, size="520x320", input_images=image_urls)
    )


async def test_the_same_request_has_the_same_picture_and_another_seed_another(studio: BuiltInStudio) -> None:
    first = await studio.render_file(PICTURE, seed=1)
    assert await studio.render_file(PICTURE, seed=1) == first
    assert await studio.render_file(PICTURE, seed=2) != first
    assert await studio.render_file(PICTURE, "Something else", seed=1) != first


async def test_several_pictures_differ(studio: BuiltInStudio) -> None:
    result = await studio.render(PICTURE, n=4, size="64x64")
    assert result.units == 4
    assert len({rendering.source for rendering in result.renderings}) == 4
    assert {rendering.content_type for rendering in result.renderings} == {"image/png"}


async def test_a_film_decodes_and_is_as_long_as_it_says(studio: BuiltInStudio) -> None:
    result = await studio.render(FILM, duration=5, resolution="180p", aspect_ratio="16:9", generate_audio=False)
    (rendering,) = result.renderings
    assert result.units == 5
    assert rendering.content_type == "video/mp4"
    assert isinstance(rendering.source, bytes)
    assert len(rendering.source) < 100_000
    stream, frames = decode_film(rendering.source)
    assert stream.codec_context.name == "h264"
    assert stream.duration * stream.time_base == 5
    assert len(frames) == 5 * stream.average_rate
    assert {(frame.width, frame.height) for frame in frames} == {(320, 180)}
    assert not any(frame.is_corrupt for frame in frames)


@pytest.mark.parametrize(
    ("name", "parameters", "field"),
    [
        (PICTURE, {"n": 0}, "n"),
        (PICTURE, {"n": 11}, "n"),
        (PICTURE, {"size": "huge"}, "size"),
        (PICTURE, {"size": "5000x10"}, "size"),
        (PICTURE, {"size": "512x512", "aspect_ratio": "1:1"}, "aspect_ratio"),
        (PICTURE, {"aspect_ratio": "0:1"}, "aspect_ratio"),
        (PICTURE, {"aspect_ratio": "100:1"}, "size"),
        (FILM, {"duration": 4}, "duration"),
        (FILM, {"resolution": "1080p"}, "resolution"),
        (FILM, {"aspect_ratio": "9:16"}, "aspect_ratio"),
        (FILM, {"generate_audio": True}, "generate_audio"),
    ],
)
def test_values_that_it_cannot_take_are_refused_by_name(
    studio: BuiltInStudio, name: str, parameters: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestRefused) as refusal:
        studio.count_units(name, **parameters)
    assert refusal.value.details == {"param": field}


async def test_the_built_in_models_cost_nothing(studio: BuiltInStudio) -> None:
    for name in (PICTURE, FILM):
        model = studio.catalogue.find_model(name)
        assert model is not None
        request = MediaRequest("A baobab", {}, {})
        assert studio.media.get_price(model, request, studio.media.count_units(model, request)) == 0


async def test_a_long_prompt_does_not_make_a_long_handle(studio: BuiltInStudio) -> None:
    model = studio.catalogue.find_model(PICTURE)
    assert model is not None
    job = await studio.media.start_job(model, MediaRequest("word " * 10_000, {"size": "64x64"}, {}), "job-1")
    assert len(job.handle) < 1000
    assert json.loads(job.handle)["count"] == 1
    assert (await studio.media.check_job(model, job.handle)).status == "completed"
