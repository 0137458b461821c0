"""The media type of a file by its name, and how long browsers may keep it."""

import re

_TEXTS = {
    "html": "text/html",
    "htm": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "cjs": "text/javascript",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "vtt": "text/vtt",
    "ics": "text/calendar",
    "xml": "application/xml",
    "rss": "application/rss+xml",
    "atom": "application/atom+xml",
}
_OTHERS = {
    "json": "application/json",
    "map": "application/json",
    "webmanifest": "application/manifest+json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "avif": "image/avif",
    "ico": "image/x-icon",
    "bmp": "image/bmp",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "ttf": "font/ttf",
    "otf": "font/otf",
    "wasm": "application/wasm",
    "pdf": "application/pdf",
    "mp3": "audio/mpeg",
    "m4a": "audio/mp4",
    "ogg": "audio/ogg",
    "wav": "audio/wav",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "zip": "application/zip",
    "glb": "model/gltf-binary",
}
_COMPRESSED_WELL = frozenset((*_TEXTS, "json", "map", "webmanifest", "svg", "wasm", "ttf", "otf", "ico", "bmp"))
_HASH = re.compile(r"[.-]([A-Za-z0-9_-]{8,64})(?:\.[a-z0-9]{1,12}){1,2}")
_HEX = re.compile(r"[0-9a-f]{8,64}")
_BUILT = re.compile(r"(?:^|/)(?:assets|_next/static|static/(?:js|css|media)|_app/immutable|_astro|_nuxt|chunks)/")
IMMUTABLE, CHECKED = "public, max-age=31536000, immutable", "no-cache"


def find_media_type(path: str) -> str:
    """Returns the type; `application/octet-stream` for what is not known, so that no browser runs it."""
    ending = _find_ending(path)
    if ending in _TEXTS:
        return f"{_TEXTS[ending]}; charset=utf-8"
    return _OTHERS.get(ending, "application/octet-stream")


def is_compressible(path: str) -> bool:
    return _find_ending(path) in _COMPRESSED_WELL


def find_cache_control(path: str) -> str:
    """Returns how long a file may be kept: for ever if its name holds a digest of its content, as build tools write
    it; else browsers ask each time whether it has changed.
    """
    if _find_ending(path) in ("html", "htm"):
        return CHECKED
    match = _HASH.search(path.rpartition("/")[2])
    if match is None:
        return CHECKED
    digest = match[1]
    has_both = any(map(str.isdigit, digest)) and any(map(str.isalpha, digest))
    if _HEX.fullmatch(digest):
        return IMMUTABLE if has_both else CHECKED
    is_mixed = has_both or (digest != digest.lower() and digest != digest.upper())
    return IMMUTABLE if is_mixed and _BUILT.search(path) else CHECKED


def _find_ending(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""
