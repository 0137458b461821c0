"""Images and videos of upstreams, through the real LiteLLM to an upstream over real HTTP."""

import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.errors import (
    ModelNotFound,
    RequestRefused,
    UpstreamBusy,
    UpstreamDenied,
    UpstreamFailed,
    UpstreamMalformed,
    UpstreamTimeout,
)
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.media.media import Media
from baobab.runtime.gateway.media.model import MediaRequest, Progress
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.pictures import inline_pictures
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.upstream import Upstream as Provided
from baobab.runtime.net.egress import Egress
from tests.certificates import create_certificate
from tests.clock import FixedClock
from tests.runtime.gateway.upstream import Upstream, start_upstream
from tests.runtime.gateway.upstream_media import FILM, PICTURE, SECRETS, TEXT, fields_of
from tests.runtime.sites import LOOPBACK, build_resolver

# What the library's own types make of themselves when they are first used; nobody here can mend it.
CATALOGUE = Catalogue(FixedClock())
KEY = "sk-of-the-installation"


def find_model(name: str, **changes: Any) -> Model:
    model = CATALOGUE.find_model(name)
    assert model is not None
    return replace(model, **changes)


def build_request(prompt: str = "A baobab", provider: dict[str, Any] | None = None, **parameters: Any) -> MediaRequest:
    return MediaRequest(prompt, parameters, provider or {})


@dataclass
class MediaScene:
    media: Media
    fake: Upstream

    async def finish_job(self, which: Model, request: MediaRequest) -> tuple[Progress, list[bytes]]:
        """The job at its end, and its files."""
        progress = await self.media.start_job(which, request, "job-1")
        for _ in range(5):
            if not progress.handle:
                break
            progress = await self.media.check_job(which, progress.handle)
        files = [
            b"".join([piece async for piece in self.media.stream_content(which, rendering, 10**7)])
            for rendering in progress.renderings
        ]
        return progress, files

    @property
    def first_fields(self) -> dict[str, Any]:
        """The fields of the first request that the upstream received."""
        first = self.fake.requests[0]
        return fields_of(first.headers["content-type"], first.body)


@contextlib.asynccontextmanager
async def open_media(outgoing: Egress | None = None, **patience: float) -> AsyncIterator[MediaScene]:
    outgoing = outgoing or Egress()
    async with start_upstream() as fake:
        bases = {"openai": "/v1", "gemini": "/v1beta", "fal_ai": "", "runwayml": "/v1", "recraft": "/v1"}
        providers = [Provider(name, fake.url + path, KEY, "translated") for name, path in bases.items()]
        media = Media(CATALOGUE, providers, outgoing, **patience)
        yield MediaScene(media, fake)
        await media.close()
        await outgoing.close()


def image_model(name: str) -> Model:
    """An image model of OpenAI's wire that behaves so."""
    return find_model("openai/gpt-image-2", litellm=f"openai/{name}")


def video_model(name: str) -> Model:
    """A video model of OpenAI's wire that behaves so."""
    veo = find_model("google/veo-3.1-generate-001")
    return replace(veo, id="openai/sora-9", provider="openai", litellm=f"openai/{name}")


def google_image_model(name: str) -> Model:
    """An image model of Google's wire that behaves so."""
    return find_model("google/gemini-2.5-flash-image", litellm=f"gemini/gemini-2.5-flash-image-{name}")


# -- Images -----------------------------------------------------------------------------------------------------------


async def test_images_are_there_at_once_and_cost_what_the_answer_says_was_used() -> None:
    async with open_media() as media:
        model = find_model("openai/gpt-image-2")
        progress, files = await media.finish_job(
            model, build_request(n=2, size="1024x1024", provider={"quality": "low"})
        )
        assert progress.status == "completed"
        assert progress.units == 2
        assert files == [PICTURE, PICTURE]
        assert [rendering.content_type for rendering in progress.renderings] == ["image/png", "image/png"]
        # 10 tokens of text, 50 of images, 1000 made: at 5, 8 and 30 dollars a million.
        assert progress.cost == 10 * 5_000 + 50 * 8_000 + 1000 * 30_000
        assert media.first_fields == {
            "model": "gpt-image-2",
            "prompt": "A baobab",
            "n": 2,
            "size": "1024x1024",
            "quality": "low",
        }
        assert media.fake.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert media.fake.requests[0].headers["idempotency-key"] == "job-1"


async def test_images_by_address_are_fetched() -> None:
    async with open_media() as media:
        progress, files = await media.finish_job(image_model("url"), build_request())
        assert progress.status == "completed"
        assert files == [PICTURE]
        # The address holds what it needs: the key does not go along.
        assert "authorization" not in media.fake.requests[1].headers


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("text", "The model's provider sent something that is no image."),
        ("nothing", "The model's provider sent no image."),
        ("elsewhere", "The model's provider did not hand out what it had made."),
    ],
)
async def test_what_is_no_image_is_not_passed_on(behaviour: str, why: str) -> None:
    async with open_media() as media:
        assert await media.finish_job(image_model(behaviour), build_request()) == (
            Progress("failed", "", error=why),
            [],
        )


@pytest.mark.parametrize(
    ("name", "request_", "sent_fields"),
    [
        (
            "google/imagen-3.0-generate-001",
            build_request(aspect_ratio="16:9", n=2),
            {"instances": [{"prompt": "A baobab"}], "parameters": {"sampleCount": 2, "aspectRatio": "16:9"}},
        ),
        (
            "google/gemini-3-pro-image",
            build_request(size="1024x1536"),
            {
                "contents": [{"parts": [{"text": "A baobab"}]}],
                "generationConfig": {
                    "response_modalities": ["IMAGE", "TEXT"],
                    "imageConfig": {"aspectRatio": "2:3", "imageSize": "1K"},
                },
            },
        ),
        (
            "runwayml/gen4_image",
            build_request(size="1280x720", seed=7),
            {"model": "gen4_image", "promptText": "A baobab", "ratio": "1280:720", "seed": 7},
        ),
        (
            "recraft/recraftv3",
            build_request(size="1024x1024", n=2, provider={"style": "realistic_image"}),
            {"model": "recraftv3", "prompt": "A baobab", "size": "1024x1024", "n": 2, "style": "realistic_image"},
        ),
    ],
)
async def test_nothing_that_is_asked_of_an_image_is_left_out(
    name: str, request_: MediaRequest, sent_fields: dict[str, Any]
) -> None:
    async with open_media() as media:
        # What comes of it is another matter: not all of these wires are answered here.
        with contextlib.suppress(UpstreamFailed, ModelNotFound):
            await media.media.start_job(find_model(name), request_, "job-1")
        assert media.first_fields == sent_fields


async def test_without_a_usage_the_most_is_what_it_costs() -> None:
    async with open_media() as media:
        progress, _ = await media.finish_job(image_model("no-usage"), build_request())
        assert progress.cost is None


async def test_a_gemini_makes_an_image_of_the_shape_that_is_asked_for() -> None:
    async with open_media() as media:
        model = find_model("google/gemini-3-pro-image")
        progress, files = await media.finish_job(model, build_request(aspect_ratio="16:9", size="2K"))
        assert progress.status == "completed"
        assert files == [PICTURE]
        assert media.first_fields["generationConfig"]["imageConfig"] == {"aspectRatio": "16:9", "imageSize": "2K"}
        # 10 tokens of text at 2 dollars a million, 10 written at 12, 1290 of an image at 120.
        assert progress.cost == 10 * 2_000 + 10 * 12_000 + 1290 * 120_000


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("401", UpstreamDenied),
        ("429:7", UpstreamBusy),
        ("500", UpstreamFailed),
        ("400", RequestRefused),
        ("html", UpstreamFailed),
        ("drop-first", UpstreamFailed),
    ],
)
@pytest.mark.parametrize("which", [image_model, google_image_model, video_model])
async def test_what_an_upstream_refuses_is_told_in_our_words(which: Any, name: str, error: type[Exception]) -> None:
    async with open_media() as media:
        with pytest.raises(error) as refusal:
            await media.media.start_job(which(name), build_request(), "job-1")
        assert type(refusal.value) is error
        # What is wrong with a request is the sender's to mend; all else is not theirs to know.
        assert ("upstream says" in str(refusal.value)) is (error is RequestRefused)
        # Once: whoever asks decides whether to ask again.
        assert len(media.fake.requests) == 1


@pytest.mark.parametrize("which", [image_model, google_image_model, video_model])
async def test_half_an_answer_is_none(which: Any) -> None:
    async with open_media() as media:
        with pytest.raises(UpstreamFailed):
            await media.media.start_job(which("malformed-json"), build_request(), "job-1")


async def test_an_upstream_that_is_too_slow_with_an_image_is_not_asked_once_more() -> None:
    async with open_media(image_seconds=0.2) as media:
        progress = await media.media.start_job(image_model("slow-first:30"), build_request(), "job-1")
        assert progress == Progress("failed", "", error="The model's provider did not answer in time.")


async def test_an_upstream_that_is_too_slow_with_a_video_may_be_asked_again() -> None:
    async with open_media(video_seconds=0.2) as media:
        with pytest.raises(UpstreamTimeout):
            await media.media.start_job(video_model("slow-first:30"), build_request(), "job-1")


# -- Images that callers point at -------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serve_pictures(folder: Path) -> AsyncIterator[tuple[str, Egress]]:
    """A site of pictures at an https address, and a client that may go there."""
    certificate_file, key_file = create_certificate("a.test", folder)
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate_file, key_file)
    trusting = ssl.create_default_context(cafile=str(certificate_file))

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/inside":
            return web.Response(status=302, headers={"location": "https://127.0.0.1:1/"})
        if request.path == "/missing":
            return web.Response(status=404)
        # Its type is what its owner says, and wrong.
        return web.Response(body=TEXT if request.path == "/text" else PICTURE, content_type="image/gif")

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_side).start()
        client = Egress(LOOPBACK, resolver=build_resolver(a_test="127.0.0.1"), tls=trusting)
        yield f"https://a.test:{runner.addresses[0][1]}", client
    finally:
        await runner.cleanup()


async def test_pictures_of_a_conversation_are_fetched_here_where_the_provider_fetches_none(tmp_path: Path) -> None:
    async with serve_pictures(tmp_path) as (site, client):
        picture = {"type": "image_url", "image_url": {"url": f"{site}/one", "detail": "low"}}
        body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}]}
        files = RemoteFiles(client)
        shown_there = await inline_pictures(Provided("1", "gemini", "m", ""), body, files)
        assert await inline_pictures(Provided("1", "mistral", "m", ""), body, files) is body
        text = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": f"{site}/text"}]}]}
        with pytest.raises(RequestRefused, match="no PNG"):
            await inline_pictures(Provided("1", "gemini", "m", ""), text, files)
        await files.close()
        await client.close()
    text_part, picture_part = shown_there["messages"][0]["content"]
    assert text_part == {"type": "text", "text": "What is it?"}
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    assert picture_part == {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


async def test_images_to_edit_are_fetched_here_and_sent_as_bytes(tmp_path: Path) -> None:
    async with serve_pictures(tmp_path) as (site, client), open_media(client) as media:
        request = build_request(input_images=[f"{site}/one", f"{site}/two"], mask=f"{site}/mask", n=2)
        progress, files = await media.finish_job(find_model("openai/gpt-image-2"), request)
        assert progress.status == "completed"
        assert files == [PICTURE, PICTURE]
        assert media.fake.requests[0].path == "/v1/images/edits"
        assert media.first_fields == {
            "model": "gpt-image-2",
            "prompt": "A baobab",
            "n": "2",
            "image[]": [PICTURE, PICTURE],
            "mask": [PICTURE],
        }


async def test_a_gemini_is_shown_the_images(tmp_path: Path) -> None:
    async with serve_pictures(tmp_path) as (site, client), open_media(client) as media:
        model = find_model("google/gemini-2.5-flash-image")
        progress, _ = await media.finish_job(model, build_request(input_images=[f"{site}/one"]))
        assert progress.status == "completed"
        assert media.first_fields["contents"][0]["parts"][0]["inlineData"]["mimeType"] == "image/png"


@pytest.mark.parametrize(
    "url",
    [
        "{site}/text",
        "{site}/missing",
        "{site}/inside",
        "http://a.test/one",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/one",
        "https://2130706433/one",
        "file:///etc/passwd",
    ],
)
@pytest.mark.parametrize("name", ["google/gemini-2.5-flash-image", "bytedance/seedance-2.0-image-to-video"])
async def test_an_image_that_is_none_or_is_inside_is_refused_before_anybody_is_asked(
    tmp_path: Path, url: str, name: str
) -> None:
    async with serve_pictures(tmp_path) as (site, client), open_media(client) as media:
        with pytest.raises(RequestRefused) as refusal:
            await media.media.start_job(find_model(name), build_request(input_images=[url.format(site=site)]), "job-1")
        assert refusal.value.details == {"param": "input_images"}
        assert not media.fake.requests


# -- Videos -----------------------------------------------------------------------------------------------------------


async def test_a_video_is_begun_looked_after_and_streamed() -> None:
    async with open_media() as media:
        request = build_request(duration=8, resolution="1080p", aspect_ratio="9:16")
        progress, files = await media.finish_job(video_model("sora-9"), request)
        assert progress.status == "completed"
        assert progress.units == 8
        assert progress.renderings[0].content_type == "video/mp4"
        assert files == [FILM]
        assert media.first_fields == {"model": "sora-9", "prompt": "A baobab", "seconds": "8", "size": "1080x1920"}
        assert media.fake.requests[0].headers["idempotency-key"] == "job-1"
        assert {request.headers["authorization"] for request in media.fake.requests} == {f"Bearer {KEY}"}


async def test_any_process_can_look_after_a_video() -> None:
    async with open_media() as first:
        job = await first.media.start_job(video_model("sora-9"), build_request(), "job-1")
        assert job.status == "pending"
        elsewhere = Media(CATALOGUE, [Provider("openai", f"{first.fake.url}/v1", KEY, "openai")], Egress())
        checked_job = await elsewhere.check_job(video_model("sora-9"), job.handle)
        assert checked_job.status == "in_progress"
        assert (await elsewhere.check_job(video_model("sora-9"), checked_job.handle)).status == "completed"
        await elsewhere.close()


@pytest.mark.parametrize(
    ("name", "request_", "sent_fields"),
    [
        (
            "google/veo-3.1-generate-001",
            build_request(aspect_ratio="16:9", resolution="1080p", duration=4),
            {
                "instances": [{"prompt": "A baobab"}],
                "parameters": {"aspectRatio": "16:9", "resolution": "1080p", "durationSeconds": 4},
            },
        ),
        (
            "bytedance/seedance-2.0",
            build_request(aspect_ratio="16:9", resolution="480p", seed=7, generate_audio=False),
            {
                "prompt": "A baobab",
                "aspect_ratio": "16:9",
                "resolution": "480p",
                "duration": "5",
                "seed": 7,
                "generate_audio": False,
            },
        ),
        (
            "runwayml/gen4.5",
            build_request(aspect_ratio="9:16", seed=7),
            {"model": "gen4.5", "promptText": "A baobab", "ratio": "720:1280", "duration": 5, "seed": 7},
        ),
    ],
)
async def test_each_wire_gets_the_fields_that_it_knows(
    name: str, request_: MediaRequest, sent_fields: dict[str, Any]
) -> None:
    async with open_media() as media:
        progress, files = await media.finish_job(find_model(name), request_)
        assert progress.status == "completed"
        assert progress.units == int(request_.parameters.get("duration", 5))
        assert files == [FILM]
        assert media.first_fields == sent_fields
        file_request = next(request for request in media.fake.requests if request.path == "/files/film.mp4")
        # The key goes to Google, which asks for it, and to no store of anybody's.
        assert ("x-goog-api-key" in file_request.headers) == name.startswith("google/")
        assert "authorization" not in file_request.headers


async def test_images_of_a_video_are_vetted_and_passed_on(tmp_path: Path) -> None:
    async with serve_pictures(tmp_path) as (site, client), open_media(client) as media:
        frames = [{"url": f"{site}/one", "frame": "first"}, {"url": f"{site}/two", "frame": "last"}]
        await media.media.start_job(
            find_model("bytedance/seedance-2.0-image-to-video"), build_request(frame_images=frames), "job-1"
        )
        assert media.first_fields["image_url"] == f"{site}/one"
        assert media.first_fields["end_image_url"] == f"{site}/two"
    async with serve_pictures(tmp_path) as (site, client), open_media(client) as media:
        await media.media.start_job(video_model("sora-9"), build_request(input_images=[f"{site}/one"]), "job-1")
        assert media.first_fields["input_reference"] == [PICTURE]


async def test_a_video_that_fails_says_why_and_nothing_that_is_somebodys() -> None:
    async with open_media() as media:
        progress, _ = await media.finish_job(video_model("failing"), build_request())
        assert progress.status == "failed"
        assert progress.error is not None
        assert progress.error.startswith("The prompt was blocked; see")
        assert not any(secret in progress.error for secret in SECRETS)


async def test_a_video_can_expire() -> None:
    async with open_media() as media:
        assert (await media.finish_job(video_model("expired"), build_request()))[0].status == "expired"


@pytest.mark.parametrize(
    "which", [video_model("text"), find_model("google/veo-3.1-generate-001", litellm="gemini/veo-image-nothing")]
)
async def test_a_video_that_is_none_has_failed(which: Model) -> None:
    async with open_media() as media:
        progress, _ = await media.finish_job(which, build_request())
        assert progress == Progress("failed", "", error="The model's provider has made no video.")


async def test_a_file_that_is_too_large_is_not_read_on() -> None:
    async with open_media() as media:
        progress, _ = await media.finish_job(video_model("sora-9"), build_request())
        with pytest.raises(UpstreamMalformed):
            async for _ in media.media.stream_content(video_model("sora-9"), progress.renderings[0], 100):
                pass


# -- What is taken, and what it costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("openai/gpt-image-2", build_request(n=11)),
        ("openai/gpt-image-2", build_request(seed=1)),
        ("openai/gpt-image-2", build_request(provider={"api_base": "https://elsewhere.example.com"})),
        ("openai/gpt-image-2", build_request(mask="https://a.test/mask")),
        ("google/gemini-3-pro-image", build_request(aspect_ratio="wide")),
        ("google/gemini-2.5-flash-image", build_request(size="4K")),
        ("google/gemini-2.5-flash-image", build_request(size="large")),
        ("runwayml/gen4_image", build_request(size="large")),
        ("black-forest-labs/flux-pro", build_request(size="2K")),
        ("stabilityai/stable-image-core", build_request(aspect_ratio="wide")),
        ("google/veo-3.1-generate-001", build_request(duration=0)),
        ("google/veo-3.1-generate-001", build_request(input_images=["https://a.test/1", "https://a.test/2"])),
        ("runwayml/gen4.5", build_request(aspect_ratio="7:3")),
    ],
)
async def test_values_that_a_model_cannot_take_are_refused_before_anything_is_set_aside(
    name: str, request_: MediaRequest
) -> None:
    async with open_media() as media:
        with pytest.raises(RequestRefused):
            media.media.count_units(find_model(name), request_)


@pytest.mark.parametrize(
    ("name", "resolution", "nanos"),
    [
        ("bytedance/seedance-2.0", None, 303_400_000),
        ("bytedance/seedance-2.0", "480p", 134_600_000),
        ("bytedance/seedance-2.0", "1080P", 682_000_000),
        ("google/veo-3.1-generate-001", "1080p", 400_000_000),
        ("google/veo-3.1-generate-001", "4k", 600_000_000),
    ],
)
async def test_a_second_of_video_costs_what_its_resolution_does(name: str, resolution: str | None, nanos: int) -> None:
    async with open_media() as media:
        request = build_request(resolution=resolution, duration=6) if resolution else build_request(duration=6)
        assert (
            media.media.get_price(find_model(name), request, media.media.count_units(find_model(name), request))
            == 6 * nanos
        )


async def test_a_resolution_without_a_price_is_refused() -> None:
    async with open_media() as media:
        with pytest.raises(RequestRefused, match="480p, 720p"):
            media.media.get_price(find_model("bytedance/seedance-2.5"), build_request(resolution="1080p"), 5)


async def test_more_is_set_aside_for_images_than_they_can_cost() -> None:
    async with open_media() as media:
        model = find_model("openai/gpt-image-2")
        # The dearest that is known of it: high quality, 3840 by 2160 dots.
        assert media.media.get_price(model, build_request(), 1) >= 401_000_000
        low = build_request(provider={"quality": "low"})
        assert 12_000_000 <= media.media.get_price(model, low, 1) < 100_000_000
        assert media.media.get_price(find_model("black-forest-labs/flux-pro"), build_request(n=1), 1) == 50_000_000


@pytest.mark.parametrize(
    ("name", "top_level", "provider"),
    [
        (
            "openai/gpt-image-2",
            ("input_images", "mask", "n", "size"),
            ("background", "input_fidelity", "moderation", "output_compression", "output_format", "quality"),
        ),
        ("google/gemini-3-pro-image", ("aspect_ratio", "input_images", "size"), ()),
        ("bytedance/seedream-5-pro", ("input_images", "size"), ("optimize_prompt_options", "output_format")),
        (
            "alibaba/wan-2.7-image-pro",
            ("input_images", "seed", "size"),
            ("bbox_list", "color_palette", "enable_sequential", "thinking_mode"),
        ),
        ("alibaba/wan-2.6-t2i", ("negative_prompt", "seed", "size"), ("prompt_extend",)),
        ("alibaba/wan-2.6-image", ("input_images", "negative_prompt", "seed", "size"), ("prompt_extend",)),
        (
            "prunaai/p-image-edit",
            ("aspect_ratio", "input_images", "seed", "size"),
            ("disable_safety_checker", "extra_fields", "height", "turbo", "width"),
        ),
        ("somebody/unheard-of", ("size",), ()),
    ],
)
async def test_each_family_of_image_models_takes_what_the_contract_says(
    name: str, top_level: tuple[str, ...], provider: tuple[str, ...]
) -> None:
    async with open_media() as media:
        accepted_fields = media.media.accepted_fields(find_model("openai/gpt-image-2", id=name))
        assert (accepted_fields.top_level, accepted_fields.provider) == (top_level, provider)


def test_every_image_and_video_model_takes_something() -> None:
    media = Media(CATALOGUE, [], Egress())
    for model in (*CATALOGUE.list_models("image"), *CATALOGUE.list_models("video")):
        assert media.accepted_fields(model).top_level


async def test_a_model_whose_provider_is_gone_cannot_be_asked() -> None:
    async with open_media() as media:
        with pytest.raises(ModelNotFound):
            await media.media.start_job(find_model("black-forest-labs/flux-pro"), build_request(), "job-1")
