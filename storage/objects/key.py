"""What may be the key of an object: what means the same on every engine, and nothing outside of it anywhere."""

from __future__ import annotations

import re

from baobab.storage.objects.errors import InvalidContentType, InvalidKey

# S3 allows 1024, its prefix included.
LONGEST_KEY = 900

# Control characters, and what XML, in which S3 lists, cannot hold.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\\\\\ud800-\udfff\ufffe\uffff]")
_CONTENT_TYPE = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")


def check_key(key: str) -> str:
    """The key: segments between slashes, at least two, at most 900 bytes of UTF-8 together. Raises InvalidKey."""
    segments = key.split("/")
    if len(segments) < 2:
        raise InvalidKey("it names no app")
    _check(key, segments)
    return key


def is_key(text: str) -> bool:
    try:
        check_key(text)
    except InvalidKey:
        return False
    return True


def check_prefix(prefix: str) -> str:
    """The prefix: whole segments, with the slash behind the last one. Raises InvalidKey."""
    # Without the slash, what is meant for app_1 would reach app_10.
    if not prefix.endswith("/"):
        raise InvalidKey("a prefix ends in a slash")
    _check(prefix, prefix[:-1].split("/"))
    return prefix


def check_content_type(content_type: str) -> str:
    if _CONTENT_TYPE.fullmatch(content_type) is None:
        raise InvalidContentType
    return content_type


def _check(text: str, segments: list[str]) -> None:
    if _FORBIDDEN.search(text):
        raise InvalidKey("a character in it is not allowed")
    if any(segment in ("", ".", "..") for segment in segments):
        raise InvalidKey("a segment of it is empty, a dot or two dots")
    if len(text.encode()) > LONGEST_KEY:
        raise InvalidKey(f"it is longer than {LONGEST_KEY} bytes")
