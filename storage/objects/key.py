"""Which object keys are valid: those that mean the same in every store and cannot lead out of it."""

from __future__ import annotations

import re

from baobab.storage.objects.errors import InvalidContentType, InvalidKey

# S3 allows 1024 bytes, including the store's prefix.
LONGEST_KEY = 900

# Control characters, and characters that XML, the format of S3's lists, cannot hold.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\\\\\ud800-\udfff\ufffe\uffff]")
_CONTENT_TYPE = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")


def check_key(key: str) -> str:
    """Returns the key if it is valid: at least two segments between slashes, at most 900 bytes of UTF-8. Raises
    InvalidKey.
    """
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
    """Returns the prefix if it is valid: whole segments and a slash at the end. Raises InvalidKey."""
    # Without the slash, a prefix for app_1 would also match app_10.
    if not prefix.endswith("/"):
        raise InvalidKey("a prefix must end with a slash")
    _check(prefix, prefix[:-1].split("/"))
    return prefix


def check_content_type(content_type: str) -> str:
    if _CONTENT_TYPE.fullmatch(content_type) is None:
        raise InvalidContentType
    return content_type


def _check(text: str, segments: list[str]) -> None:
    if _FORBIDDEN.search(text):
        raise InvalidKey("it has a character that is not allowed")
    if any(segment in ("", ".", "..") for segment in segments):
        raise InvalidKey("one of its segments is empty, a dot or two dots")
    if len(text.encode()) > LONGEST_KEY:
        raise InvalidKey(f"it is longer than {LONGEST_KEY} bytes")
