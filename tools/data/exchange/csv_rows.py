"""Writes and reads rows as CSV (RFC 4180) in UTF-8. The first line names the columns. An empty field is null, `""` is
an empty text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from baobab.tools.data.exchange.records import BrokenRecord, Record

MEDIA_TYPE = "text/csv; charset=utf-8"
DELIMITERS = (",", ";", "\t", "|")
_PLAIN = {each: re.compile(rf"[^{re.escape(each)}\r\n]*") for each in DELIMITERS}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The first characters of texts that a spreadsheet might take for a formula."""
_LINE_END = re.compile(r"[\r\n]")


def format_csv(
    names: Sequence[str], rows: Sequence[Mapping[str, Any]], *, header: bool = True, escape_formulas: bool = False
) -> Iterator[str]:
    """Returns rows as lines of CSV. Values that are neither texts nor numbers become JSON.

    header: whether the first line names the columns. escape_formulas: whether texts that a spreadsheet might take for a
    formula get an apostrophe before them.
    """
    write = _escape if escape_formulas else _quote
    if header:
        yield ",".join(map(write, names)) + "\r\n"
    for row in rows:
        yield ",".join([_format_value(row[name], write) for name in names]) + "\r\n"


def _format_value(value: Any, write: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        text: str = write(value)
        return text
    return _quote(json.dumps(value, ensure_ascii=False))


def _escape(text: str) -> str:
    return _quote(f"'{text}" if text.startswith(_FORMULA) else text)


def _quote(text: str) -> str:
    if text and not any(character in text for character in ',"\r\n') and text == text.strip():
        return text
    return '"' + text.replace('"', '""') + '"'


class CsvRecords:
    """Splits CSV into records as its text arrives."""

    def __init__(self, delimiter: str = ",") -> None:
        """delimiter: one of DELIMITERS."""
        self._delimiter = delimiter
        self._waiting = ""
        self._line = 1

    @property
    def waiting(self) -> int:
        """Characters of the record that is not complete yet."""
        return len(self._waiting)

    def feed(self, text: str, *, final: bool = False) -> Iterator[Record]:
        """Returns the records that are complete now, each as its fields. An empty field without quotes is None."""
        buffer, start = self._waiting + text, 0
        while start < len(buffer):
            fields, end = _read_record(buffer, start, final, self._delimiter)
            if end is None:
                break
            raw = buffer[start:end]
            yield Record(self._line, raw, fields)
            self._line += raw.count("\n") + (raw.endswith("\r"))
            start = end
        self._waiting = buffer[start:]


def _read_record(
    buffer: str, start: int, final: bool, delimiter: str
) -> tuple[list[str | None] | BrokenRecord, int | None]:
    """Returns the fields of the record at a position and where the next one begins. None if its end has not arrived
    yet.
    """
    fields: list[str | None] = []
    position, length = start, len(buffer)
    while True:
        if buffer.startswith('"', position):
            end = _find_closing_quote(buffer, position + 1)
            if end < 0 or (end + 1 == length and not final):
                return (BrokenRecord("a quote is not closed"), length) if final else (fields, None)
            fields.append(buffer[position + 1 : end].replace('""', '"'))
            position = end + 1
        else:
            match = _PLAIN[delimiter].match(buffer, position)
            assert match is not None
            fields.append(match[0] or None)
            position = match.end()
        if position == length:
            return fields, (length if final else None)
        if buffer[position] == delimiter:
            position += 1
            continue
        if buffer[position] not in "\r\n":
            return _skip_line(buffer, position, final)
        if buffer[position] == "\r":
            if position + 1 == length and not final:
                return fields, None
            position += buffer.startswith("\n", position + 1)
        return fields, position + 1


def _find_closing_quote(buffer: str, position: int) -> int:
    end = buffer.find('"', position)
    while end >= 0 and buffer.startswith('"', end + 1):
        end = buffer.find('"', end + 2)
    return end


def _skip_line(buffer: str, position: int, final: bool) -> tuple[BrokenRecord, int | None]:
    """Skips to the end of the line, for a record with text behind a closing quote."""
    broken_record = BrokenRecord("something stands behind the quote that closes a field")
    match = _LINE_END.search(buffer, position)
    if match is None:
        return broken_record, len(buffer) if final else None
    end = match.end()
    if match[0] == "\r":
        if end == len(buffer) and not final:
            return broken_record, None
        end += buffer.startswith("\n", end)
    return broken_record, end
