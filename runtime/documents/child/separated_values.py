"""CSV and similar formats: one table."""

import csv
import io
from collections.abc import Iterator
from typing import Any

from baobab.runtime.documents.child.plain_text import decode_text, read_charset
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder, clean_text

_LONGEST_CELL = 1_000_000


def read_document(source: bytes, builder: TextBuilder, options: dict[str, Any]) -> None:
    text = clean_text(decode_text(source, read_charset(options["media_type"])))
    builder.add_table(read_rows(text))


def read_rows(text: str) -> Iterator[list[str]]:
    """Returns the rows of a table. Raises Refused."""
    csv.field_size_limit(_LONGEST_CELL)
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=find_delimiter(text))
    except csv.Error as exc:
        raise Refused(
            f"The table has a cell of more than {_LONGEST_CELL} characters: perhaps a quote is open."
        ) from exc


def find_delimiter(text: str) -> str:
    """Returns the delimiter that is most frequent in the first row; a comma if there is none."""
    row = next((line for line in text[:20_000].split("\n") if line.strip()), "")
    return max(",;\t|", key=row.count)
