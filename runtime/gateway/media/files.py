"""Fetches files over the network: images that callers refer to by URL, and images and videos from upstreams.

The URLs come from callers and from upstreams' answers, so the egress rules apply. Only the address that the operator
has set for a provider is trusted.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from baobab.runtime.gateway.errors import RequestRefused, UpstreamFailed, UpstreamMalformed, UpstreamTimeout
from baobab.runtime.gateway.media.content_type import DETECTION_BYTES, detect_content_type
from baobab.runtime.gateway.refusal import build_refusal
from baobab.runtime.gateway.upstream import Upstream
from baobab.runtime.net.egress import Egress, EgressError, EgressStream, EgressTimeout, EgressTooLarge

LARGEST_INPUT = 20 * 2**20
"""The most bytes of an image that a caller refers to."""

# The most bytes of all images of one field together.
_LARGEST_INPUTS = 64 * 2**20
_INPUT_SECONDS = 60.0

_SECONDS = 600.0
_HOPS = 3
_ANYWHERE = ("0.0.0.0/0", "::/0")


@dataclass(frozen=True, slots=True)
class Image:
    """A fetched image. content_type: detected from its bytes."""

    url: str
    content_type: str
    content: bytes


class RemoteFiles:
    """Fetches files; each process has one. outgoing: the egress client with the rules for foreign addresses."""

    def __init__(self, outgoing: Egress) -> None:
        self._outgoing = outgoing
        self._trusted_egress = Egress(_ANYWHERE, require_open=outgoing.require_open)

    async def close(self) -> None:
        await self._trusted_egress.close()

    async def fetch_images(self, urls: Iterable[str], name: str) -> list[Image]:
        """Fetches the images at the URLs. name: the request's field. Raises RequestRefused for what is no image."""
        images_read: list[Image] = []
        bytes_left = _LARGEST_INPUTS
        try:
            async with asyncio.timeout(_INPUT_SECONDS):
                # One after the other, because all at once could need too much memory.
                for url in urls:
                    images_read.append(await self._fetch_image(url, name, min(bytes_left, LARGEST_INPUT)))
                    bytes_left -= len(images_read[-1].content)
        except TimeoutError as exc:
            raise _image_error(name, "Their hosts take too long.") from exc
        return images_read

    @asynccontextmanager
    async def open_file(
        self, upstream: Upstream, url: str, headers: Mapping[str, str], max_bytes: int
    ) -> AsyncGenerator[EgressStream, None]:
        """Opens a file that an upstream has made, at its own address or at one from its answer. Translates errors."""
        is_own_address = bool(upstream.api_base) and _url_origin(url) == _url_origin(upstream.api_base)
        client = self._trusted_egress if is_own_address else self._outgoing
        try:
            async with client.stream(
                "GET",
                url,
                headers=headers,
                max_bytes=max_bytes,
                timeout=_SECONDS,
                follow=_HOPS,
                cross_host=not is_own_address,
                https_only=not is_own_address,
            ) as answer:
                if answer.status != 200:
                    raise build_refusal(answer.status, b"", {"retry-after": answer.headers.get("Retry-After") or ""})
                yield answer
        except EgressTooLarge as exc:
            raise UpstreamMalformed(f"The file has more than {max_bytes} bytes.") from exc
        except EgressTimeout as exc:
            raise UpstreamTimeout from exc
        except EgressError as exc:
            raise UpstreamFailed from exc

    async def read_file(self, upstream: Upstream, url: str, max_bytes: int) -> bytes:
        """Reads a file of an upstream in one piece. No key is sent: such URLs contain what they need."""
        async with self.open_file(upstream, url, {}, max_bytes) as answer:
            return b"".join([piece async for piece in answer])

    async def _fetch_image(self, url: str, name: str, max_bytes: int) -> Image:
        options: dict[str, Any] = {"follow": _HOPS, "cross_host": True, "https_only": True}
        try:
            answer = await self._outgoing.request("GET", url, max_bytes=max_bytes, timeout=_INPUT_SECONDS, **options)
        except EgressError as exc:
            raise _image_error(name, exc.message) from exc
        if answer.status != 200:
            raise _image_error(name, f"Its host answers {answer.status}.")
        content_type = detect_content_type(answer.body[:DETECTION_BYTES])
        if content_type is None or not content_type.startswith("image/"):
            raise _image_error(name, "It is no PNG, JPEG, WebP or GIF.")
        return Image(url, content_type, answer.body)


def _image_error(name: str, why: str) -> RequestRefused:
    return RequestRefused(
        f"An image of `{name}` cannot be used. {why}",
        remediation=f"Give https addresses of public images of at most {LARGEST_INPUT // 2**20} MB each.",
        details={"param": name},
    )


def _url_origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
