"""Images of upstreams through LiteLLM. The call returns the images, so such a job is completed at once."""

import asyncio
import re
import ssl
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
    """Makes the images that LiteLLM can request."""

    def __init__(self, files: RemoteFiles, seconds: float) -> None:
        self._files = files
        self._seconds = seconds
        self._tls: ssl.SSLContext | None = None

    def count_units(self, model: Model, request: MediaRequest) -> int:
        """Returns the number of images that the request asks for."""
        images = request.parameters.get("n", 1)
        if not isinstance(images, int) or isinstance(images, bool) or not 1 <= images <= _MOST:
            raise RequestRefused(f"`n` must be a whole number from 1 to {_MOST}.", details={"param": "n"})
        _build_arguments(model.provider, model.upstream_name, request)
        return images

    async def start_job(
        self, upstream: Upstream, request: MediaRequest, job_id: str, cost: Callable[[Any], int | None]
    ) -> Progress:
        """Makes the images and returns the finished job. cost: computes the cost of an answer's usage."""
        input_images = await self._files.fetch_images(request.parameters.get("input_images") or (), "input_images")
        masks = await self._files.fetch_images([mask] if (mask := request.parameters.get("mask")) else (), "mask")
        arguments = _build_arguments(upstream.provider, upstream.model, request)
        if upstream.provider == "openai":
            arguments["headers"] = {"Idempotency-Key": job_id}
        if upstream.api_base:
            arguments["api_base"] = upstream.api_base
        if input_images:
            arguments["image"] = [BytesIO(image.content) for image in input_images]
            if masks:
                arguments["mask"] = BytesIO(masks[0].content)
        library = await load_litellm()
        call = library.aimage_edit if input_images else library.aimage_generation
        try:
            async with self._open_single_try_client(library, upstream) as client:
                answer = await call_library(
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
            # The upstream may still make the image and charge for it, so the request is not sent again.
            return Progress("failed", "", error="The model's provider did not answer in time.")
        return await self._build_progress(upstream, answer, cost)

    @asynccontextmanager
    async def _open_single_try_client(self, library: Any, upstream: Upstream) -> AsyncGenerator[Any, None]:
        """Opens a client that sends a request once. OpenAI's own would try three times, each of them paid."""
        if upstream.provider != "openai":
            yield None
            return
        if self._tls is None:
            # To read the certificates takes as long as hundreds of requests, so it is done once and beside the loop.
            self._tls = await asyncio.to_thread(library.main.httpx.create_ssl_context)

        class Single(library.main.openai.AsyncOpenAI):  # type: ignore[misc]  # it is loaded late
            max_retries = property(lambda _: 0, lambda _, _value: None)

        http_client = library.main.openai.DefaultAsyncHttpxClient(verify=self._tls)
        base_url = upstream.api_base or None
        async with Single(api_key=upstream.api_key, base_url=base_url, http_client=http_client) as client:
            yield client

    async def _build_progress(
        self, upstream: Upstream, answer: Mapping[str, Any], cost: Callable[[Any], int | None]
    ) -> Progress:
        """Builds the job's result. The upstream has done its work, so failures are final: a retry would be charged."""
        try:
            files = await self._read_files(upstream, answer.get("data") or ())
        except UpstreamFailed:
            return Progress("failed", "", error="The model's provider did not hand out what it had made.")
        if not files:
            return Progress("failed", "", error="The model's provider sent no image.")
        renderings = [_build_rendering(file) for file in files]
        valid_renderings = tuple(rendering for rendering in renderings if rendering is not None)
        if len(valid_renderings) < len(files):
            return Progress("failed", "", error="The model's provider sent something that is no image.")
        return Progress("completed", "", valid_renderings, units=len(valid_renderings), cost=cost(answer.get("usage")))

    async def _read_files(self, upstream: Upstream, data: Sequence[Mapping[str, Any]]) -> list[bytes]:
        async def read_image(item: Mapping[str, Any]) -> bytes:
            if encoded_image := item.get("b64_json"):
                return _decode_image(encoded_image)
            return await self._files.read_file(upstream, item["url"], _LARGEST)

        # Some models answer with a text beside the images, or in place of them.
        return await asyncio.gather(*(read_image(item) for item in data if item.get("b64_json") or item.get("url")))


def _decode_image(encoded_image: str) -> bytes:
    try:
        # Some send it as a data URL.
        return b64decode(encoded_image.rpartition("base64,")[2], validate=True)
    except NotBase64 as exc:
        raise UpstreamMalformed from exc


def _build_rendering(file: bytes) -> Rendering | None:
    content_type = detect_content_type(file[:DETECTION_BYTES])
    return Rendering(content_type, file) if content_type and content_type.startswith("image/") else None


def _build_arguments(provider: str, model: str, request: MediaRequest) -> dict[str, Any]:
    """Builds LiteLLM's arguments beside the prompt. Raises RequestRefused for values that the provider lacks."""
    arguments = {name: value for name, value in request.parameters.items() if name not in ("input_images", "mask")}
    arguments |= request.provider
    if "mask" in request.parameters and not request.parameters.get("input_images"):
        raise RequestRefused("A mask needs an image in `input_images`.", details={"param": "mask"})
    if provider == "gemini":
        return _build_gemini_arguments(model, arguments)
    # The library leaves out or replaces values that it does not understand.
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
        # The first model of the family makes one size only and refuses the parameter.
        if model.startswith("gemini-2.5") and shape.pop("imageSize") != "1K":
            raise RequestRefused("The model makes only images of the size 1K.", details={"param": "size"})
    elif size is not None:
        if ratio is not None:
            raise RequestRefused("Send either a size in pixels or an aspect ratio.", details={"param": "aspect_ratio"})
        arguments["size"] = _check_size(size)
    if shape:
        arguments["imageConfig"] = shape
    return arguments


def _check_size(size: str) -> str:
    if _SIZE.fullmatch(size) is None:
        raise RequestRefused("`size` must be like 1024x1024.", details={"param": "size"})
    return size


def _check_ratio(ratio: str) -> str:
    if _RATIO.fullmatch(ratio) is None:
        raise RequestRefused("`aspect_ratio` must be like 16:9.", details={"param": "aspect_ratio"})
    return ratio
