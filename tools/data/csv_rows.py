"""Rows as CSV (RFC 4180), in UTF-8: the first line names the columns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MEDIA_TYPE = "text/csv; charset=utf-8"


def format_csv(names: Sequence[str], rows: Sequence[Mapping[str, Any]], *, named: bool = True) -> Iterator[str]:
    """The lines of rows. A null is an empty field, an empty text is `""`; what is neither text nor number is JSON.

    named: whether the first line names the columns.
    """
    if named:
        yield ",".join(map(_quote, names)) + "\r\n"
    for row in rows:
        yield ",".join([_format_value(row[name]) for name in names]) + "\r\n"


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    return _quote(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _quote(text: str) -> str:
    if text and not any(character in text for character in ',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'
