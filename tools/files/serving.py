"""Answers the bytes of a file in a way that no browser runs code in it."""

import contextlib
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any
from urllib.parse import quote

from baobab.storage.objects.errors import ObjectDamaged, StoreUnavailable
from baobab.storage.objects.store import ObjectStore
from baobab.tools.core import Call
from baobab.tools.core.errors import Damaged
from baobab.tools.core.stream import Stream
from baobab.tools.files.conditions import Version
from baobab.tools.files.errors import RangeNotSatisfiable, StoreFailed
from baobab.tools.files.schemas import Conditions
from baobab.tools.files.tables import build_folder

HEADERS = {
    "accept-ranges": "bytes",
    # No script and no origin, even for types that browsers show, and in old browsers.
    "content-security-policy": "default-src 'none'; media-src 'self'; style-src 'unsafe-inline'; sandbox",
    # A cached copy of an image must not be readable for scripts of other pages.
    "vary": "Origin",
}

_SHOWN = frozenset(
    [
        "image/png",
        "image/jpeg",
        "image/gif",
        "image/webp",
        "image/avif",
        "audio/mpeg",
        "audio/mp4",
        "audio/ogg",
        "audio/wav",
        "audio/webm",
        "video/mp4",
        "video/ogg",
        "video/webm",
        "text/plain",
    ]
)
"""The types that a browser may show in its window. None of them can contain a script, unlike SVG, HTML, XML or PDF."""
_RANGE = re.compile(r"bytes\s*=\s*(\d{0,15})\s*-\s*(\d{0,15})\s*", re.ASCII)
_UNQUOTED = re.compile(r"[^ !#-\[\]-~]")


async def serve(
    call: Call,
    row: Any,
    range_: str,
    conditions: Conditions,
    *,
    cache_control: str,
    download: str | None = None,
    media_type: str | None = None,
) -> tuple[Stream, int]:
    """Returns the bytes of a stored file, or the requested range of them, unless the reader already has them, and how
    many are sent.

    download: the name under which a browser saves the file, instead of showing it; None as its type has it.
    media_type: None for the file's own. Raises RangeNotSatisfiable, StoreFailed or Damaged.
    """
    media_type = media_type or _build_media_type(row.content_type)
    version = Version(f'"{row.sha256}"', row.stored_at)
    add_headers(call, **version.headers, cache_control=cache_control)
    if version.is_known(conditions):
        return build_unchanged(media_type), 0
    objects, key, size = call.stores.objects, build_folder(row.app_id, row.id) + row.stored_as, row.size_bytes
    with translate_errors():
        info = await objects.head(key)
    if info is None or info.size != size:
        raise Damaged("The bytes of this file are missing.")
    part = _parse_range(range_, size) if version.continues(conditions) else None
    start, end = part or (0, size)
    add_headers(call, content_length=str(end - start), content_disposition=_build_disposition(row, download))
    if part is not None:
        add_headers(call, content_range=f"bytes {start}-{end - 1}/{size}")
    end = end if call.context.method != "HEAD" else start
    return Stream(read_bytes(objects, key, start, end), media_type, is_part=part is not None), end - start


def build_cache_control(row: Any, lifetime: int) -> str:
    """Says who may cache the answer: the reader's browser, and also shared caches if every user of the app may read
    the file.

    lifetime: the seconds for which the address is valid. The bytes of a file never change.
    """
    return f"{'public' if row.public else 'private'}, max-age={max(lifetime, 0)}, immutable"


def build_unchanged(media_type: str) -> Stream:
    """Builds the answer for a reader who already has the bytes."""
    return Stream(_read_nothing(), media_type, is_unchanged=True)


def add_headers(call: Call, **headers: str) -> None:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    call.headers = [*(call.headers or ()), *pairs]


async def _read_nothing() -> AsyncGenerator[bytes, None]:
    return
    yield b""


def _parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Returns the first byte and the one after the last; None for the whole file. Raises RangeNotSatisfiable.

    Anything other than a single range of bytes is ignored, as RFC 9110 allows.
    """
    match = _RANGE.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        return None
    if match[1]:
        start, end = int(match[1]), int(match[2]) + 1 if match[2] else size
        if match[2] and end <= start:
            return None
    else:
        start, end = max(size - int(match[2]), 0), size
    if start >= size:
        raise RangeNotSatisfiable(details={"size_bytes": size}, headers={"content-range": f"bytes */{size}"})
    return start, min(end, size)


def _build_disposition(row: Any, download: str | None) -> str:
    is_shown = download is None and row.content_type.partition(";")[0] in _SHOWN
    kind = "inline" if is_shown else "attachment"
    name = (download or row.filename).rpartition("/")[2]
    plain = _UNQUOTED.sub("_", name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _build_media_type(content_type: str) -> str:
    # Without a charset, a browser guesses that of a text.
    return f"{content_type};charset=utf-8" if content_type == "text/plain" else content_type


async def read_bytes(objects: ObjectStore, key: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
    # The object is opened with the first piece, so that an unread stream has nothing to close.
    if start == end:
        return
    with translate_errors():
        reader = await objects.get(key, start=start, end=end)
    if reader is None:
        raise Damaged("The bytes of this file are missing.")
    async with contextlib.aclosing(reader):
        with translate_errors():
            async for piece in reader:
                yield piece


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Turns the errors of the object store into those of the contract."""
    try:
        yield
    except StoreUnavailable as exc:
        raise StoreFailed from exc
    except ObjectDamaged as exc:
        raise Damaged("The bytes of this file are damaged.") from exc
