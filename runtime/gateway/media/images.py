"""Images of upstreams, by LiteLLM: they are there when the call is over, so a job of these is completed at once."""

import asyncio
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused, UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from baobab.runtime.gateway.litellm_import import load_litellm
from baobab.runtime.gateway.media.content_type import DETECTION_BYTES, detect_content_type
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.media.library_call import call_library
from baobab.runtime.gateway.media.model import MediaRequest, Progress, Rendering
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.upstream import Upstream

_LARGEST = 50 * 2**20
_MOST = 10
_NAMED_SIZES = ("1K", "2K", "4K")
_SIZE = re.compile(r"\d{2,5}x\d{2,5}")
_RATIO = re.compile(r"\d{1,3}:\d{1,3}")


class ImageJobs:
    """Those that LiteLLM can ask for."""

    def __init__(self, files: RemoteFiles, seconds: float) -> None:
        self._files = files
        self._seconds = seconds

    def count_units(self, model: Model, request: MediaRequest) -> int:
        """How many images the request asks for."""
        images = request.parameters.get("n", 1)
        if not isinstance(images, int) or isinstance(images, bool) or not 1 <= images <= _MOST:
            raise RequestRefused(f"`n` is a whole number from 1 to {_MOST}.", details={"param": "n"})
        _build_arguments(model.provider, model.upstream_name, request)
        return images

    async def start_job(
        self, upstream: Upstream, request: MediaRequest, job_id: str, cost: Callable[[Any], int | None]
    ) -> Progress:
        """The images, or what the upstream says in their place. cost: of what an answer says was used."""
        given = await self._files.fetch_images(request.parameters.get("input_images") or (), "input_images")
        masks = await self._files.fetch_images([mask] if (mask := request.parameters.get("mask")) else (), "mask")
        arguments = _build_arguments(upstream.provider, upstream.model, request)
        if upstream.provider == "openai":
            arguments["headers"] = {"Idempotency-Key": job_id}
        if upstream.api_base:
            arguments["api_base"] = upstream.api_base
        if given:
            arguments["image"] = [BytesIO(image.content) for image in given]
            if masks:
                arguments["mask"] = BytesIO(masks[0].content)
        library = await load_litellm()
        call = library.aimage_edit if given else library.aimage_generation
        try:
            async with _single_try_client(library, upstream) as client:
                made = await call_library(
                    library,
                    upstream,
                    self._seconds,
                    call,
                    model=f"{upstream.provider}/{upstream.model}",
                    prompt=request.prompt,
                    max_retries=0,
                    client=client,
                    **arguments,
                )
        except UpstreamTimeout:
            # It may make it all the same, and wants its money: not once more.
            return Progress("failed", "", error="The model's provider did not answer in time.")
        return await self._build_progress(upstream, made, cost)

    async def _build_progress(
        self, upstream: Upstream, made: Mapping[str, Any], cost: Callable[[Any], int | None]
    ) -> Progress:
        """From here on the upstream has done its work: what is wrong now would be wrong, and paid, once more."""
        try:
            files = await self._read_files(upstream, made.get("data") or ())
        except UpstreamFailed:
            return Progress("failed", "", error="The model's provider did not hand out what it had made.")
        if not files:
            return Progress("failed", "", error="The model's provider sent no image.")
        renderings = [_build_rendering(file) for file in files]
        known = tuple(rendering for rendering in renderings if rendering is not None)
        if len(known) < len(files):
            return Progress("failed", "", error="The model's provider sent something that is no image.")
        return Progress("completed", "", known, units=len(known), cost=cost(made.get("usage")))

    async def _read_files(self, upstream: Upstream, data: Sequence[Mapping[str, Any]]) -> list[bytes]:
        async def read_image(item: Mapping[str, Any]) -> bytes:
            if encoded := item.get("b64_json"):
                return _decode_image(encoded)
            return await self._files.read_file(upstream, item["url"], _LARGEST)

        # Some answer with a text beside the images, or in their place.
        return await asyncio.gather(*(read_image(item) for item in data if item.get("b64_json") or item.get("url")))


@asynccontextmanager
async def _single_try_client(library: Any, upstream: Upstream) -> AsyncGenerator[Any, None]:
    """A client that asks once: for OpenAI's images the library has any client ask up to three times, and each pays."""
    if upstream.provider != "openai":
        yield None
        return

    class Single(library.main.openai.AsyncOpenAI):  # type: ignore[misc]  # it is loaded late
        max_retries = property(lambda _: 0, lambda _, _told: None)

    async with Single(api_key=upstream.api_key, base_url=upstream.api_base or None) as client:
        yield client


def _decode_image(encoded: str) -> bytes:
    try:
        # Some put it into an address of its own kind.
        return b64decode(encoded.rpartition("base64,")[2], validate=True)
    except NotBase64 as exc:
        raise UpstreamMalformed from exc


def _build_rendering(file: bytes) -> Rendering | None:
    content_type = detect_content_type(file[:DETECTION_BYTES])
    return Rendering(content_type, file) if content_type and content_type.startswith("image/") else None


def _build_arguments(provider: str, model: str, request: MediaRequest) -> dict[str, Any]:
    """What LiteLLM is told beside the prompt. RequestRefused for values that mean nothing to the provider."""
    arguments = {name: value for name, value in request.parameters.items() if name not in ("input_images", "mask")}
    arguments |= request.provider
    if "mask" in request.parameters and not request.parameters.get("input_images"):
        raise RequestRefused("A mask wants an image in `input_images`.", details={"param": "mask"})
    if provider == "gemini":
        return _build_gemini_arguments(model, arguments)
    # What it does not understand the library leaves out, or replaces.
    if provider == "runwayml" and "size" in arguments:
        arguments["ratio"] = _check_size(arguments.pop("size")).replace("x", ":")
    elif provider == "black_forest_labs" and "size" in arguments:
        _check_size(arguments["size"])
    elif provider == "stability" and "aspect_ratio" in arguments:
        _check_ratio(arguments["aspect_ratio"])
    return arguments


def _build_gemini_arguments(model: str, arguments: dict[str, Any]) -> dict[str, Any]:
    size, ratio = arguments.pop("size", None), arguments.pop("aspect_ratio", None)
    if model.startswith("imagen"):
        return {**arguments, **({"aspectRatio": _check_ratio(ratio)} if ratio else {})}
    shape: dict[str, str] = {}
    if ratio is not None:
        shape["aspectRatio"] = _check_ratio(ratio)
    if size is not None and size.upper() in _NAMED_SIZES:
        shape["imageSize"] = size.upper()
        # The first of the family makes one size only, which it need not be told, and may not.
        if model.startswith("gemini-2.5") and shape.pop("imageSize") != "1K":
            raise RequestRefused("The model makes images of 1K only.", details={"param": "size"})
    elif size is not None:
        if ratio is not None:
            raise RequestRefused("Give the size in dots, or an aspect ratio.", details={"param": "aspect_ratio"})
        arguments["size"] = _check_size(size)
    if shape:
        arguments["imageConfig"] = shape
    return arguments


def _check_size(size: str) -> str:
    if _SIZE.fullmatch(size) is None:
        raise RequestRefused("A size is 1024x1024, say.", details={"param": "size"})
    return size


def _check_ratio(ratio: str) -> str:
    if _RATIO.fullmatch(ratio) is None:
        raise RequestRefused("An aspect ratio is 16:9, say.", details={"param": "aspect_ratio"})
    return ratio
