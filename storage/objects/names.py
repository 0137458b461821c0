"""Converts keys to paths in a folder, and back.

A key is cut after each slash, and within segments that are too long for a file name. All pieces but the last are
folders, so that a folder holds keys with one beginning, and a walk through sorted folders yields the keys in order. The
names work on file systems that ignore case or change accents; no name is "..", and none is both a file and a folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
_FILE, _SEGMENT, _PART = "=", "+", "~"

# A piece ends as soon as it has this length, and so has at most 11 characters more. A rule that looked ahead would cut
# two segments with one beginning in different places, and lose their order.
_CUT = 228

_NAME = re.compile(r"((?:[a-z0-9._-]++|\^[a-z]|%[0-9a-f]{2})*)([=+~])")
_ESCAPED = re.compile(r"\^([a-z])|((?:%[0-9a-f]{2})+)")


def build_path(key: str) -> Path:
    """Returns the path of an object's file, relative to the store's folder."""
    *folders, segment = key.split("/")
    *parts, last = _cut(segment)
    return build_folder("".join(f"{folder}/" for folder in folders)).joinpath(
        *(part + _PART for part in parts), last + _FILE
    )


def build_folder(prefix: str) -> Path:
    """Returns the folder of a prefix, which is "" or ends with a slash."""
    path = Path()
    for segment in prefix.split("/")[:-1]:
        *parts, last = _cut(segment)
        path = path.joinpath(*(part + _PART for part in parts), last + _SEGMENT)
    return path


def parse_name(name: str) -> tuple[str, bool] | None:
    """Returns the piece of a key that a file name stands for, and whether it is a folder. None for other names."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    piece, kind = match.groups()
    try:
        if "%" in piece or "^" in piece:
            piece = _ESCAPED.sub(_unescape, piece)
    except UnicodeDecodeError:
        return None
    return piece + ("/" if kind == _SEGMENT else ""), kind != _FILE


def _cut(segment: str) -> Iterator[str]:
    piece = ""
    for character in segment:
        piece += _escape(character)
        if len(piece) >= _CUT:
            yield piece
            piece = ""
    yield piece


def _escape(character: str) -> str:
    if character in _PLAIN:
        return character
    if "A" <= character <= "Z":
        return f"^{character.lower()}"
    return "".join(f"%{byte:02x}" for byte in character.encode())


def _unescape(match: re.Match[str]) -> str:
    capital, octets = match.groups()
    if capital is not None:
        return str(capital).upper()
    return bytes.fromhex(str(octets).replace("%", "")).decode()
