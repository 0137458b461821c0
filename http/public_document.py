"""Documents that are the same for everybody: compressed once, and asked for again only when they have changed.

Only these are compressed. A page that is made for one person has secrets, such as the token of its forms, beside text
that somebody else may choose; the length of a compressed page would then tell the secret piece by piece (BREACH).
"""

import asyncio
import gzip
import re
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

_REFUSED = re.compile(r"q\s*=\s*0(\.0*)?")
_SMALLEST = 1000
"""Bytes; a smaller answer fits into one packet anyway."""
_LARGEST_AT_ONCE = 100_000
"""Bytes; a larger document is compressed in a thread, so that no other request waits for it."""


class PublicDocument:
    """A document with its headers. It answers 304 to whoever has it already."""

    def __init__(self, content: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> None:
        self.content = content
        digest = sha256(content).hexdigest()[:32]
        self._tags = (f'"{digest}"', f'"{digest}-gzip"')
        own_headers = {name.lower(): value for name, value in (headers or {}).items()}
        vary = ", ".join(value for value in (own_headers.get("vary"), "accept-encoding") if value)
        # The address has no version: checking the cached copy each time avoids mixing two releases.
        self._headers = {"cache-control": "no-cache", **own_headers, "content-type": content_type, "vary": vary}

    @cached_property
    def _gzip_content(self) -> bytes:
        return gzip.compress(self.content, 6, mtime=0)

    async def answer(self, request: Request) -> Response:
        """Returns the answer to a request."""
        names = ("accept-encoding", "if-none-match")
        status, headers, content = await self.choose(*(request.headers.get(name, "") for name in names))
        return Response(content, status, headers)

    async def choose(self, accept_encoding: str, if_none_match: str) -> tuple[int, dict[str, str], bytes]:
        """Returns status, headers and body for a reader who sent these two headers; empty for one that was not sent."""
        is_packed = len(self.content) >= _SMALLEST and _accepts_gzip(accept_encoding)
        headers = {**self._headers, "etag": self._tags[is_packed]}
        if self._is_known(if_none_match):
            del headers["content-type"]
            return 304, headers, b""
        if not is_packed:
            return 200, headers, self.content
        if len(self.content) > _LARGEST_AT_ONCE:
            await asyncio.to_thread(lambda: self._gzip_content)
        return 200, {**headers, "content-encoding": "gzip"}, self._gzip_content

    def _is_known(self, if_none_match: str) -> bool:
        """Compares weakly, as RFC 9110 requires for If-None-Match: proxies that compress make our tag a weak one."""
        tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
        return tags == ["*"] or not set(self._tags).isdisjoint(tags)


def _accepts_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return not _REFUSED.fullmatch(quality.strip())
    return False
