"""The built-in image and video models: files that others' decoders read, of the size and length that was asked for."""

import io
import json
import struct
import zlib
from typing import Any

import av
import pytest

from baobab.runtime.egress import Egress
from baobab.runtime.gateway.built_in import models
from baobab.runtime.gateway.builtin.lettering import lettered
from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.media.media import Media
from baobab.runtime.gateway.media.model import MediaRequest, Progress
from tests.clock import FixedClock

PICTURE, FILM = "baobab/picture", "baobab/film"


class Studio:
    def __init__(self) -> None:
        catalogue = Catalogue(FixedClock(), ())
        catalogue.offer("baobab", models())
        self.catalogue = catalogue
        self.media = Media(catalogue, [], Egress())

    async def made(self, name: str, prompt: str = "A baobab at dawn", **parameters: Any) -> Progress:
        model = self.catalogue.find(name)
        assert model is not None
        begun = await self.media.begin(model, MediaRequest(prompt, parameters, {}), "job-1")
        assert (begun.status, begun.renderings) == ("in_progress", ())
        return await self.media.look(model, begun.handle)

    async def file(self, name: str, prompt: str = "A baobab at dawn", **parameters: Any) -> bytes:
        (rendering,) = (await self.made(name, prompt, **parameters)).renderings
        assert isinstance(rendering.source, bytes)
        return rendering.source

    def units(self, name: str, **parameters: Any) -> int:
        model = self.catalogue.find(name)
        assert model is not None
        return self.media.units(model, MediaRequest("A baobab", parameters, {}))


@pytest.fixture
def studio() -> Studio:
    return Studio()


def decoded(film: bytes) -> tuple[Any, list[Any]]:
    """The stream, and all of its frames, by FFmpeg."""
    with av.open(io.BytesIO(film)) as container:
        (stream,) = container.streams
        return stream, list(container.decode(stream))


def dots(picture: bytes) -> list[list[int]]:
    """The shades of a picture, row by row: ours have a palette and no filters."""
    with av.open(io.BytesIO(picture)) as container:
        (frame,) = container.decode(video=0)
        rows: list[list[int]] = frame.reformat(format="gray").to_ndarray().tolist()
        return rows


def says(rows: list[list[int]], text: str, scale: int) -> bool:
    """Whether the letters stand anywhere in a picture, white on something darker."""
    lines = ["".join(dot * scale for dot in line.rstrip()) for line in lettered(text)]
    shown = ["".join("#" if shade > 240 else " " for shade in row) for row in rows]
    for top in range(len(shown) - len(lines) * scale):
        start = shown[top].find(lines[0])
        while start >= 0:
            if all(shown[top + y * scale][start : start + len(line)] == line for y, line in enumerate(lines)):
                return True
            start = shown[top].find(lines[0], start + 1)
    return False


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
    studio: Studio, parameters: dict[str, Any], size: tuple[int, int]
) -> None:
    picture = await studio.file(PICTURE, **parameters)
    with av.open(io.BytesIO(picture)) as container:
        (frame,) = container.decode(video=0)
        assert (frame.width, frame.height) == size


async def test_a_picture_says_what_it_is_and_what_of(studio: Studio) -> None:
    picture = await studio.file(PICTURE, "Éin Baobab", size="520x320")
    rows = dots(picture)
    assert says(rows, "built-in", 3)
    assert says(rows, "Ein Baobab", 3)
    assert not says(rows, "cactus", 3)
    assert b"the built-in model" in picture


async def test_every_part_of_a_picture_is_whole(studio: Studio) -> None:
    picture = await studio.file(PICTURE, size="100x70")
    at, kinds = 8, []
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        part = picture[at + 4 : at + 8 + length]
        assert picture[at + 8 + length : at + 12 + length] == struct.pack(">I", zlib.crc32(part))
        kinds.append(part[:4])
        at += 12 + length
    assert kinds == [b"IHDR", b"PLTE", b"tEXt", b"IDAT", b"IEND"]


async def test_images_that_it_was_shown_are_counted_and_not_seen(studio: Studio) -> None:
    shown = ["https://example.com/1.png", "https://example.com/2.png"]
    assert says(dots(await studio.file(PICTURE, size="520x320", input_images=shown)), "(2 images not seen)", 3)


@pytest.mark.parametrize("name", [PICTURE, FILM])
async def test_the_same_request_has_the_same_file_and_another_seed_another(studio: Studio, name: str) -> None:
    first = await studio.file(name, seed=1)
    assert await studio.file(name, seed=1) == first
    assert await studio.file(name, seed=2) != first
    assert await studio.file(name, "Something else", seed=1) != first


async def test_several_pictures_differ(studio: Studio) -> None:
    made = await studio.made(PICTURE, n=4, size="64x64")
    assert made.units == 4
    assert len({rendering.source for rendering in made.renderings}) == 4
    assert {rendering.content_type for rendering in made.renderings} == {"image/png"}


@pytest.mark.parametrize(
    ("parameters", "size", "seconds"),
    [
        ({}, (320, 180), 5),
        ({"duration": 1, "resolution": "360p", "aspect_ratio": "9:16"}, (360, 640), 1),
        ({"duration": 10, "aspect_ratio": "1:1"}, (180, 180), 10),
        ({"duration": 2, "resolution": "480p"}, (854, 480), 2),
        ({"duration": 1, "resolution": "1080p"}, (1920, 1080), 1),
        ({"duration": 1, "resolution": "1080p", "aspect_ratio": "3:4", "generate_audio": False}, (1080, 1440), 1),
    ],
)
async def test_a_film_decodes_and_has_the_size_and_length_that_were_asked_for(
    studio: Studio, parameters: dict[str, Any], size: tuple[int, int], seconds: int
) -> None:
    made = await studio.made(FILM, **parameters)
    (rendering,) = made.renderings
    assert made.units == seconds
    assert rendering.content_type == "video/mp4"
    assert isinstance(rendering.source, bytes)
    stream, frames = decoded(rendering.source)
    assert (stream.codec_context.name, stream.codec_context.profile) == ("h264", "Constrained Baseline")
    assert stream.duration * stream.time_base == seconds
    assert len(frames) == seconds * stream.average_rate
    assert {(frame.width, frame.height) for frame in frames} == {size}
    assert not any(frame.is_corrupt for frame in frames)
    # The first can be begun at; the rest are what changes.
    assert [frame.key_frame for frame in frames] == [True] + [False] * (len(frames) - 1)


async def test_a_film_says_what_it_is_in_each_frame_while_its_bar_grows(studio: Studio) -> None:
    _, frames = decoded(await studio.file(FILM, "Wind", duration=4))
    lit = []
    for frame in (frames[0], frames[len(frames) // 2], frames[-1]):
        rows = frame.reformat(format="gray").to_ndarray().tolist()
        assert says(rows, "built-in", 2)
        assert says(rows, "Wind", 2)
        lit.append(sum(shade > 240 for shade in rows[168]))
    assert lit == [0, 160, 320]


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
        (FILM, {"duration": 11}, "duration"),
        (FILM, {"resolution": "8k"}, "resolution"),
        (FILM, {"aspect_ratio": "21:9"}, "aspect_ratio"),
        (FILM, {"generate_audio": True}, "generate_audio"),
    ],
)
def test_values_that_it_cannot_take_are_refused_by_name(
    studio: Studio, name: str, parameters: dict[str, Any], field: str
) -> None:
    with pytest.raises(RequestRefused) as refused:
        studio.units(name, **parameters)
    assert refused.value.details == {"param": field}


async def test_the_built_in_models_cost_nothing(studio: Studio) -> None:
    for name in (PICTURE, FILM):
        model = studio.catalogue.find(name)
        assert model is not None
        request = MediaRequest("A baobab", {}, {})
        assert studio.media.price(model, request, studio.media.units(model, request)) == 0


async def test_a_long_prompt_does_not_make_a_long_handle(studio: Studio) -> None:
    model = studio.catalogue.find(PICTURE)
    assert model is not None
    begun = await studio.media.begin(model, MediaRequest("word " * 10_000, {"size": "64x64"}, {}), "job-1")
    assert len(begun.handle) < 1000
    assert json.loads(begun.handle)["count"] == 1
    assert (await studio.media.look(model, begun.handle)).status == "completed"
