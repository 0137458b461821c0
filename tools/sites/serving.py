"""Answers the pages of a deployment: which file a path means, and its bytes as the browser wants them."""

import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote

from baobab.storage.objects.errors import ObjectDamaged, StoreUnavailable
from baobab.storage.objects.store import ObjectStore
from baobab.storage.sql.database import Execute
from baobab.tools.core import Call
from baobab.tools.core.errors import Damaged
from baobab.tools.core.stream import Stream
from baobab.tools.core.traffic import TrafficCounter
from baobab.tools.sites import rules
from baobab.tools.sites.errors import SiteRangeNotSatisfiable, SiteStoreFailed
from baobab.tools.sites.known_files import File, KnownFiles
from baobab.tools.sites.media_types import CHECKED, find_cache_control, find_media_type, is_compressible
from baobab.tools.sites.schemas import Conditions
from baobab.tools.sites.tables import FREEZES, build_content_key, site_traffic

STATUSES = (200, 206, 301, 302, 303, 304, 307, 308, 404)
_RANGE = re.compile(r"bytes\s*=\s*(\d{0,15})\s*-\s*(\d{0,15})\s*", re.ASCII)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\\]")
_ENCODINGS = {
    name: re.compile(rf"(?:^|,)\s*{name}\s*(?:;\s*q=([0-9.]{{1,5}})\s*)?(?:,|$)", re.IGNORECASE)
    for name in ("gzip", "br")
}
_TAG_ENDINGS = {"": "", "gzip": "-gz", "br": "-br"}
_NOT_FOUND = b"Not found\n"
_NOT_FOUND_HTML = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Not found</title></head>
<body><main><h1>Not found</h1><p>There is no page here. Please check the address.</p></main></body></html>
"""
_NOT_FOUND_PAGE, _FALLBACKS = "404.html", ("200.html", "index.html")

HEADERS = {
    "range": "range",
    "accept": "accept",
    "accept_encoding": "accept-encoding",
    "if_none_match": "if-none-match",
    "if_range": "if-range",
}


class SiteTraffic(TrafficCounter):
    """What sites have sent, as far as this process has not written it yet."""

    table, freezes = site_traffic, FREEZES


def choose_status(stream: Stream) -> int:
    return stream.status or 200


async def answer_page(
    call: Call, execute: Execute, deployment: Any, path: str, conditions: Conditions, *, private: bool = False
) -> Stream:
    """Returns the answer to a path of a deployment. Raises SiteRangeNotSatisfiable, SiteStoreFailed or Damaged.

    path: as it stands in the address after the first slash, decoded. private: whether no shared cache may keep it.
    """
    known_files = call.services.of(KnownFiles)
    files = await known_files.find(execute, deployment, {*_list_candidates(path), _NOT_FOUND_PAGE, *_FALLBACKS})
    name = next((name for name in _list_candidates(path) if name in files), None)
    moved_path = None if name is None else _find_moved_path(path, name)
    if moved_path is not None:
        return redirect(call, moved_path, 308)
    if name is None:
        rule = rules.find_redirect(deployment.rules["redirects"], f"/{path}")
        if rule is not None and rule[1] != rules.REWRITE:
            return redirect(call, *rule)
        if rule is not None:
            rewritten_names = _list_candidates(rule[0].removeprefix("/"))
            files |= await known_files.find(execute, deployment, rewritten_names)
            name = next((name for name in rewritten_names if name in files), None)
    if name is None and _is_navigation(path, conditions):
        # A site with a page for what is not found has a file for each of its paths, unless it says `200.html`.
        fallbacks = _FALLBACKS if _NOT_FOUND_PAGE not in files else _FALLBACKS[:1]
        name = next((name for name in fallbacks if name in files), None)
    if name is not None:
        brotli = None
        if is_compressible(name):
            # Build tools write it beside the file. A site without such files is asked once.
            brotli = (await known_files.find(execute, deployment, [f"{name}.br"])).get(f"{name}.br")
        return _serve(call, deployment, files[name], path, conditions, private=private, brotli=brotli)
    if _NOT_FOUND_PAGE in files:
        return _serve(call, deployment, files[_NOT_FOUND_PAGE], path, {}, private=private, status=404)
    return _answer_nothing(call, is_browser=_is_navigation(path, conditions))


def _list_candidates(path: str) -> list[str]:
    """Returns the files that a path can mean, the first choice first; none for one that no file can have."""
    if _UNSAFE.search(path) or path.startswith("/") or any(part in (".", "..") for part in path.split("/")):
        return []
    if path == "":
        return ["index.html"]
    if path.endswith("/"):
        return [f"{path}index.html", f"{path[:-1]}.html"]
    return [path, f"{path}.html", f"{path}/index.html"]


def _find_moved_path(path: str, name: str) -> str | None:
    """Returns the one address of a page, if the path is another: relative links in it depend on the slash."""
    if path and not path.endswith("/") and name == f"{path}/index.html":
        return f"/{quote(path)}/"
    if path.endswith("/") and not name.endswith("/index.html") and name != "index.html":
        return f"/{quote(path[:-1])}"
    return None


def _serve(
    call: Call,
    deployment: Any,
    file: File,
    path: str,
    conditions: Conditions,
    *,
    private: bool,
    status: int = 200,
    brotli: File | None = None,
) -> Stream:
    """Builds the answer with a file. brotli: the same content, compressed by whoever deployed it."""
    range_, accept_encoding = conditions.get("range", ""), conditions.get("accept_encoding", "")
    is_varied = file.gzip_bytes is not None or brotli is not None
    if brotli is not None and not range_ and _takes("br", accept_encoding):
        encoding, sent_file, size = "br", brotli, brotli.size_bytes
    elif file.gzip_bytes is not None and not range_ and _takes("gzip", accept_encoding):
        encoding, sent_file, size = "gzip", file, file.gzip_bytes
    else:
        encoding, sent_file, size = "", file, file.size_bytes
    tag = f'"{sent_file.sha256[:40]}{_TAG_ENDINGS[encoding]}"'
    media_type = find_media_type(file.path)
    cache_control = "private, no-store" if private else find_cache_control(file.path) if status == 200 else CHECKED
    headers = {"etag": tag, "cache-control": cache_control}
    if is_varied:
        headers["vary"] = "Accept-Encoding"
    headers |= dict(rules.list_headers(deployment.rules["headers"], f"/{path}"))
    if private:
        headers |= {"cache-control": cache_control, "x-robots-tag": "noindex"}
    known_tags = [known_tag.strip().removeprefix("W/") for known_tag in conditions.get("if_none_match", "").split(",")]
    if status == 200 and (tag in known_tags or known_tags == ["*"]):
        return _build(call, sent_file, headers, media_type, 304)
    headers["accept-ranges"] = "bytes"
    start, end = 0, size
    continues = conditions.get("if_range", "") in ("", tag)
    part = _parse_range(range_, size) if continues and status == 200 else None
    if part is not None:
        start, end = part
        status = 206
        headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
    if encoding:
        headers["content-encoding"] = encoding
    headers["content-length"] = str(end - start)
    return _build(call, sent_file, headers, media_type, status, start, end, is_compressed=encoding == "gzip")


def _build(
    call: Call,
    file: File,
    headers: dict[str, str],
    media_type: str,
    status: int,
    start: int = 0,
    end: int = 0,
    *,
    is_compressed: bool = False,
) -> Stream:
    _add_headers(call, headers)
    app_id = call.require_app().id
    end = start if call.context.method == "HEAD" else end
    call.services.of(SiteTraffic).add(app_id, call.now, end - start)
    key = build_content_key(app_id, file.stored_by, file.sha256, compressed=is_compressed)
    return Stream(_read(call.stores.objects, key, start, end), media_type, status=status)


def redirect(call: Call, location: str, status: int, headers: Mapping[str, str] | None = None) -> Stream:
    """Builds an answer that sends the browser to another address."""
    _add_headers(call, {"location": location, "cache-control": CHECKED, "content-length": "0", **(headers or {})})
    return Stream(_read_text(b""), "text/plain; charset=utf-8", status=status)


def _answer_nothing(call: Call, *, is_browser: bool) -> Stream:
    content, media_type = (_NOT_FOUND_HTML, "text/html") if is_browser else (_NOT_FOUND, "text/plain")
    _add_headers(call, {"cache-control": CHECKED, "content-length": str(len(content)), "vary": "Accept"})
    text = b"" if call.context.method == "HEAD" else content
    return Stream(_read_text(text), f"{media_type}; charset=utf-8", status=404)


def _is_navigation(path: str, conditions: Conditions) -> bool:
    """Returns whether a browser wants a page here, and not a script, a picture or data."""
    return "." not in path.rpartition("/")[2] and "text/html" in conditions.get("accept", "").lower()


def _takes(encoding: str, accept_encoding: str) -> bool:
    match = _ENCODINGS[encoding].search(accept_encoding)
    return match is not None and (match[1] is None or match[1].strip("0.") != "")


def _parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Returns the first byte and the one after the last; None for the whole. Raises SiteRangeNotSatisfiable.

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
        raise SiteRangeNotSatisfiable(details={"size_bytes": size}, headers={"content-range": f"bytes */{size}"})
    return start, min(end, size)


def _add_headers(call: Call, headers: dict[str, str]) -> None:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    call.headers = [*(call.headers or ()), *pairs]


async def _read_text(text: bytes) -> AsyncGenerator[bytes, None]:
    if text:
        yield text


async def _read(objects: ObjectStore, key: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
    # The object is opened with the first piece, so that an unread stream has nothing to close.
    if start == end:
        return
    try:
        reader = await objects.get(key, start=start, end=end)
        if reader is None:
            raise Damaged("The bytes of this file are missing.")
        async with contextlib.aclosing(reader):
            async for piece in reader:
                yield piece
    except StoreUnavailable as exc:
        raise SiteStoreFailed from exc
    except ObjectDamaged as exc:
        raise Damaged("The bytes of this file are damaged.") from exc
