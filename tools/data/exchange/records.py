"""Splits an imported file into records as its text arrives, for CSV and JSON lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from baobab.tools.core.types import parse_json

LONGEST = 2**20
"""The most characters of one record."""


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """The reason why a record cannot be read."""

    reason: str


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file: the line on which it begins, its text, and its content."""

    line: int
    text: str
    content: Any
    """The fields of a CSV record, the object of a line of JSON, or a BrokenRecord."""


class Records(Protocol):
    @property
    def waiting(self) -> int:
        """Characters of a record that is not complete."""
        ...

    def feed(self, text: str, *, final: bool = False) -> Iterator[Record]:
        """Returns the records that are complete now. final: whether this is the last text."""
        ...


class JsonRecords:
    """Splits JSON lines, each of which is an object."""

    def __init__(self) -> None:
        self._waiting = ""
        self._line = 1

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def feed(self, text: str, *, final: bool = False) -> Iterator[Record]:
        lines = (self._waiting + text).split("\n")
        self._waiting = "" if final else lines.pop()
        for number, line in enumerate(lines):
            is_last = final and number == len(lines) - 1
            if line.strip():
                yield Record(self._line, line if is_last else f"{line}\n", _read_object(line))
            self._line += 1


def _read_object(line: str) -> dict[str, Any] | BrokenRecord:
    if len(line) > LONGEST:
        return BrokenRecord(f"it has more than {LONGEST} characters")
    try:
        value = parse_json(line)
    except ValueError:
        return BrokenRecord("it is not valid JSON")
    return value if isinstance(value, dict) else BrokenRecord("it is not a JSON object")
