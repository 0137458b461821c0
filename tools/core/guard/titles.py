"""Titles of calls: our own words, and words that a stranger may have chosen, which can never pass for ours."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from baobab.tools.core.guard.escaping import escape_json, escape_text

CUT = 60
"""The most characters of strangers' words in a title."""
_EXCERPT = 140
_PLAIN = re.compile(r"[A-Za-z0-9_.:@/+-]{1,64}", re.ASCII)
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*")')
_BLANKS = re.compile(r"\s+")

TitlePart = tuple[str, bool]
"""A part of a title, and whether the words are our own: of the server, or of whoever wrote the graph."""


def split_quoted(sentence: str) -> list[TitlePart]:
    """Splits a sentence of ours into its parts: what stands in the quotes of JSON is a stranger's."""
    pieces = _QUOTED.split(sentence)
    return [(piece, place % 2 == 0) for place, piece in enumerate(pieces) if piece]


def join_parts(parts: Sequence[TitlePart]) -> str:
    return "".join(text for text, _ in parts)


def is_plain(value: Any) -> bool:
    """Returns whether a value is an amount, or a name such as an address or a number: no free text."""
    return isinstance(value, int | float) or (isinstance(value, str) and _PLAIN.fullmatch(value) is not None)


def write_line(text: str, most: int) -> str:
    """Writes a text on one line, with escapes for what is invisible, cut at so many characters."""
    return _cut(escape_text(_flatten(text, most)), most, is_whole=len(text) <= 4 * most)


def quote_line(text: str, most: int = CUT) -> str:
    """Returns the same as a string of JSON."""
    return escape_json(_cut(_flatten(text, most), most, is_whole=len(text) <= 4 * most))


def _flatten(text: str, most: int) -> str:
    return _BLANKS.sub(" ", text[: 4 * most]).strip()


def _cut(line: str, most: int, *, is_whole: bool) -> str:
    return line if len(line) <= most and is_whole else f"{line[: most - 1].rstrip()}…"


def write_excerpt(value: Any) -> str | None:
    """Writes the text that says most of a value, on one line; None where the value has none.

    That is the longest text of several words. Of a value without one, its longest text.
    """
    texts = list(_list_texts(value))
    if not texts:
        return None
    longest = max(texts, key=lambda text: (" " in text.strip(), len(text)))
    return write_line(longest, _EXCERPT) or None


def _list_texts(value: Any) -> Sequence[str]:
    if isinstance(value, str):
        return [value]
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for child in children for text in _list_texts(child)]
