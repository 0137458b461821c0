"""Videos of upstreams: LiteLLM starts and checks the jobs; the files are streamed from the upstream."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import RequestRefused, UpstreamMalformed
from baobab.runtime.gateway.library_errors import translate_error
from baobab.runtime.gateway.litellm_import import load_litellm
from baobab.runtime.gateway.media.content_type import DETECTION_BYTES, detect_content_type
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.media.library_call import call_library
from baobab.runtime.gateway.media.model import MediaRequest, MediaStatus, Progress, Rendering
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.net.egress import EgressStream

_LONGEST = 60
_USUAL, _USUAL_OF_GOOGLE = 5, 8
_LARGEST_ANSWER = 2**20
_STATUSES: dict[str, MediaStatus] = {
    "queued": "pending",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "expired": "expired",
}
# OpenAI's and Runway's names of the frame sizes.
_FRAMES = {
    ("720p", "16:9"): "1280x720",
    ("720p", "9:16"): "720x1280",
    ("1080p", "16:9"): "1920x1080",
    ("1080p", "9:16"): "1080x1920",
}
# Words that could be an address, a key or the name of an account.
_PRIVATE = re.compile(r"://|@|\w\.\w|[-_]\w*\d|\d\w*[-_]|\w{24}")
_LONGEST_ERROR = 300


class VideoJobs:
    """Makes the videos that LiteLLM can request. A handle is JSON with LiteLLM's `id`, `provider` and `seconds`."""

    def __init__(self, files: RemoteFiles, seconds: float) -> None:
        self._files = files
        self._seconds = seconds

    def count_units(self, model: Model, request: MediaRequest) -> int:
        """Returns the number of seconds that the request asks for."""
        _build_arguments(model.provider, request)
        return _read_duration(model.provider, request)

    async def start_job(self, upstream: Upstream, request: MediaRequest, job_id: str) -> Progress:
        """Starts the job, which is then accepted or has failed."""
        arguments = _build_arguments(upstream.provider, request)
        await self._add_images(upstream, request, arguments)
        if upstream.provider == "openai":
            arguments["extra_headers"] = {"Idempotency-Key": job_id}
        library = await load_litellm()
        answer = await call_library(
            library,
            upstream,
            self._seconds,
            library.avideo_generation,
            model=f"{upstream.provider}/{upstream.model}",
            prompt=request.prompt,
            max_retries=0,
            api_base=_api_base(upstream),
            **arguments,
        )
        if not answer.get("id"):
            raise UpstreamMalformed
        seconds = _read_duration(upstream.provider, request)
        handle = {"id": answer["id"], "provider": upstream.provider, "seconds": seconds}
        status = _parse_status(answer)
        if status in ("failed", "cancelled", "expired"):
            return Progress(status, "", error=_describe_error(answer.get("error")))
        # Even a finished video is read only once the handle is stored, so that a failure does not start it again.
        return Progress("pending" if status == "pending" else "in_progress", to_json(handle).decode())

    async def check_job(self, upstream: Upstream, handle: str) -> Progress:
        """Returns the job's present state."""
        job = from_json(handle)
        library = await load_litellm()
        answer = await call_library(
            library,
            upstream,
            self._seconds,
            library.avideo_status,
            video_id=job["id"],
            custom_llm_provider=upstream.provider,
            api_base=_api_base(upstream),
        )
        return await self._build_progress(upstream, job, answer)

    async def stream_content(
        self, upstream: Upstream, rendering: Rendering, max_bytes: int
    ) -> AsyncGenerator[bytes, None]:
        """Yields the pieces of the file. Raises UpstreamMalformed if it is not of the rendering's type."""
        handle = from_json(rendering.source)
        async with self._open_file(upstream, handle["id"], max_bytes) as answer:
            async for piece in _check_stream(answer, rendering.content_type):
                yield piece

    async def _build_progress(
        self, upstream: Upstream, handle: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> Progress:
        status, source = _parse_status(answer), to_json(handle).decode()
        if status in ("pending", "in_progress"):
            return Progress(status, source)
        if status != "completed":
            return Progress(status, "", error=_describe_error(answer.get("error")))
        try:
            content_type = await self._detect_type(upstream, handle["id"])
        except UpstreamMalformed:
            content_type = None
        if content_type != "video/mp4":
            return Progress("failed", "", error="The model's provider has made no video.")
        return Progress("completed", "", (Rendering(content_type, source),), units=handle["seconds"])

    async def _detect_type(self, upstream: Upstream, id_: str) -> str | None:
        async with self._open_file(upstream, id_, 2**62) as answer:
            start = b""
            async for piece in answer:
                start += piece
                if len(start) >= DETECTION_BYTES:
                    break
            return detect_content_type(start)

    @asynccontextmanager
    async def _open_file(self, upstream: Upstream, id_: str, max_bytes: int) -> AsyncGenerator[EgressStream, None]:
        """Opens the file: the upstream's answer, or the file at the URL in it."""
        url, headers = await self._locate_file(upstream, id_)
        async with self._files.open_file(upstream, url, headers, max_bytes) as answer:
            if not answer.headers.get("Content-Type", "").startswith("application/json"):
                yield answer
                return
            payload = await _read_json(answer)
        # No key is sent: such URLs contain what they need.
        async with self._files.open_file(upstream, _find_url(payload), {}, max_bytes) as answer:
            yield answer

    async def _locate_file(self, upstream: Upstream, id_: str) -> tuple[str, dict[str, str]]:
        """Returns the URL of the file at the upstream, and the headers for it."""
        library = await load_litellm()

        def build_request() -> tuple[str, dict[str, str]]:
            provider = library.LlmProviders(upstream.provider)
            config = library.utils.ProviderConfigManager.get_provider_video_config(model=None, provider=provider)
            base = _api_base(upstream)
            parameters = library.types.router.GenericLiteLLMParams(api_key=upstream.api_key, api_base=base)
            headers = config.validate_environment({}, "", upstream.api_key, parameters)
            url_base = config.get_complete_url("", base, {})
            url, _ = config.transform_video_content_request(id_, url_base, parameters, headers)
            return url, {name: value for name, value in headers.items() if name.lower() != "content-type"}

        try:
            # In a thread, because for Google's videos the library makes a blocking request.
            return await asyncio.to_thread(build_request)
        except Exception as exc:  # the library raises its providers' errors, of many kinds
            raise translate_error(library, exc) from exc

    async def _add_images(self, upstream: Upstream, request: MediaRequest, arguments: dict[str, Any]) -> None:
        """Adds the request's images to the arguments. All are fetched first, so that no forbidden URL is passed on."""
        first_urls, last_urls = _end_images(request)
        first_images = await self._files.fetch_images(first_urls, "input_images")
        last_images = await self._files.fetch_images(last_urls, "frame_images")
        references = await self._files.fetch_images(
            request.parameters.get("input_references") or (), "input_references"
        )
        if first_images:
            takes_bytes = upstream.provider in ("openai", "gemini")
            arguments["input_reference"] = BytesIO(first_images[0].content) if takes_bytes else first_images[0].url
        if last_images:
            arguments["end_image_url"] = last_images[0].url
        if references:
            name = "reference_image_urls" if upstream.model.startswith("minimax/") else "image_urls"
            arguments[name] = [image.url for image in references]


def handle_provider(handle: str) -> str:
    """Returns the provider that started the job; the catalogue may prefer another one by now."""
    return str(from_json(handle)["provider"])


def _parse_status(answer: Mapping[str, Any]) -> MediaStatus:
    return _STATUSES.get(str(answer.get("status")), "in_progress")


def _build_arguments(provider: str, request: MediaRequest) -> dict[str, Any]:
    """Builds LiteLLM's arguments beside the prompt and the images. Raises RequestRefused for invalid values."""
    parameters = request.parameters
    resolution, ratio = parameters.get("resolution"), parameters.get("aspect_ratio")
    first_urls, last_urls = _end_images(request)
    if len(first_urls) > 1 or len(last_urls) > 1:
        raise RequestRefused(
            "The model takes one image for the beginning and one for the end.", details={"param": "input_images"}
        )
    if last_urls and not first_urls:
        raise RequestRefused("A last frame needs a first frame.", details={"param": "frame_images"})
    # The duration is always sent, so that the provider's default cannot differ from what is charged.
    arguments: dict[str, Any] = {"seconds": str(_read_duration(provider, request)), **request.provider}
    arguments |= {name: parameters[name] for name in ("generate_audio", "seed") if name in parameters}
    if provider == "gemini":
        shape_options = {"resolution": resolution, "aspectRatio": ratio}
        arguments |= {name: value for name, value in shape_options.items() if value is not None}
    elif provider == "fal_ai":
        shape_options = {"size": resolution, "aspect_ratio": ratio}
        arguments |= {name: value for name, value in shape_options.items() if value is not None}
    elif resolution is not None or ratio is not None:
        shape = (resolution or "720p", ratio or "16:9")
        if shape not in _FRAMES:
            options = ", ".join(f"{high} {wide}" for high, wide in _FRAMES)
            raise RequestRefused(f"The model makes only these sizes: {options}.", details={"param": "resolution"})
        arguments["size"] = _FRAMES[shape]
    return arguments


def _end_images(request: MediaRequest) -> tuple[list[str], list[str]]:
    """Returns the URLs of the images that a video begins and ends with."""
    frames = request.parameters.get("frame_images") or ()
    first_urls = [
        *(request.parameters.get("input_images") or ()),
        *(frame["url"] for frame in frames if frame["frame"] == "first"),
    ]
    return first_urls, [frame["url"] for frame in frames if frame["frame"] == "last"]


def _read_duration(provider: str, request: MediaRequest) -> int:
    seconds = request.parameters.get("duration", _USUAL_OF_GOOGLE if provider == "gemini" else _USUAL)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 1 <= seconds <= _LONGEST:
        raise RequestRefused(
            f"`duration` must be a whole number of seconds from 1 to {_LONGEST}.", details={"param": "duration"}
        )
    return seconds


def _api_base(upstream: Upstream) -> str | None:
    # Google's address ends with the version for images and texts; for videos the library adds it.
    base = upstream.api_base.removesuffix("/v1beta") if upstream.provider == "gemini" else upstream.api_base
    return base or None


async def _read_json(answer: EgressStream) -> Any:
    body = b""
    async for piece in answer:
        body += piece
        if len(body) > _LARGEST_ANSWER:
            raise UpstreamMalformed
    try:
        return from_json(body)
    except ValueError as exc:
        raise UpstreamMalformed from exc


def _find_url(answer: Any) -> str:
    """Finds the URL of the file in an answer: `output: [url]` or `video: {url: url}`."""
    answer = answer if isinstance(answer, dict) else {}
    output, video = answer.get("output"), answer.get("video")
    url = output[0] if isinstance(output, list) and output else output
    url = video.get("url") if isinstance(video, dict) else url
    if not isinstance(url, str):
        raise UpstreamMalformed
    return url


async def _check_stream(answer: EgressStream, content_type: str) -> AsyncGenerator[bytes, None]:
    start: bytes | None = b""
    async for piece in answer:
        if start is None:
            yield piece
            continue
        start += piece
        if len(start) >= DETECTION_BYTES:
            if detect_content_type(start) != content_type:
                raise UpstreamMalformed
            yield start
            start = None
    if start is not None:
        raise UpstreamMalformed


def _describe_error(error: Any) -> str:
    """Describes an upstream's failure in its own words, without any that may be private."""
    message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str) or not message.strip():
        return "The model's provider could not make the video."
    words = "".join(part if part.isprintable() else " " for part in message[:_LONGEST_ERROR]).split()
    return " ".join("…" if _PRIVATE.search(word) else word for word in words)
