"""Builds the text of a document and its blocks."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.document import BlockKind

_KINDS: tuple[BlockKind, ...] = ("heading", "paragraph", "table", "list", "code")
# Characters that databases refuse, or invisible: control characters, halves of surrogate pairs, the soft hyphen.
_REMOVED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\xad\ufeff\ufffe\uffff\ud800-\udfff]")
_SPACES = re.compile(r"[^\S\n]+")
_MOST_COLUMNS = 1_000


class TextBuilder:
    """Collects blocks. `options` are the fields of ParseLimits. Raises Refused for a document that exceeds them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._most = options["text_characters"]
        self._most_blocks = options["blocks"]
        self._most_pages = options["pages"]
        self._pieces: list[str] = []
        self._length = 0
        self._numbers = array("q")
        self._grows = False
        self.title: str | None = None
        """The title in the document's properties, otherwise its first heading of level 1."""
        self.pages: int | None = None
        self.pictures: list[int] = []
        """The pages whose text has yet to be recognised: 0 for a document without pages."""

    def add(self, kind: BlockKind, text: str, *, level: int = 0, page: int = 0) -> None:
        """Adds a block after an empty line. A text without visible characters adds nothing."""
        text = clean_text(text).strip("\n" if kind == "code" else None)
        if text:
            if kind == "heading" and level == 1 and self.title is None:
                self.title = text
            self._append("\n\n" if self._length else "", text)
            self._record(kind, min(level, 6), page, self._length - len(text), self._length)

    def add_item(self, text: str, *, page: int = 0) -> None:
        """Adds an item to the list at the end of the text, or begins a list."""
        text = clean_text(text).strip()
        if not text:
            return
        text = "- " + text.replace("\n", "\n  ")
        if self._grows and self._numbers[-3] == page:
            self._append("\n", text)
            self._numbers[-1] = self._length
        else:
            self.add("list", text, page=page)
        self._grows = True

    def add_table(self, rows: Iterable[Sequence[str]], *, page: int = 0) -> None:
        """Adds a table with one line for each row, its cells separated by ` | `. Rows without content are left out."""
        self.add("table", "\n".join(filter(None, map(join_cells, rows))), page=page)

    def add_source(self, text: str) -> None:
        """Adds a text unchanged. Its blocks follow through `mark`."""
        self._append("", text)

    def mark(self, kind: BlockKind, start: int, end: int, *, level: int = 0) -> None:
        """Makes a block of a part of the text that `add_source` has added."""
        if start < end:
            self._record(kind, level, 0, start, end)

    def require_pages(self, pages: int) -> None:
        """Raises Refused if there are too many pages."""
        if pages > self._most_pages:
            raise Refused(f"The document has {pages} pages; up to {self._most_pages} are read. Split it.")
        self.pages = pages

    def encode(self, media_type: str, *, may_be_empty: bool = False) -> bytes:
        """Returns the answer that parsing.py reads. Raises Refused if there is no text."""
        if not (self._numbers or self.pictures or may_be_empty):
            raise Refused("The document has no text.")
        text = "".join(self._pieces)
        title = " ".join(clean_text(self.title or "").split())[:300] or None
        header = {"media_type": media_type, "title": title, "pages": self.pages, "pictures": self.pictures}
        header["blocks"] = len(self._numbers) // 5
        return json.dumps(header).encode() + b"\n" + self._numbers.tobytes() + text.encode()

    def _append(self, *pieces: str) -> None:
        self._pieces += pieces
        self._length += sum(map(len, pieces))
        if self._length > self._most:
            raise Refused(f"The document has more than {self._most} characters of text. Split it.")

    def _record(self, *numbers: Any) -> None:
        kind, *operands = numbers
        self._numbers.extend((_KINDS.index(kind), *operands))
        self._grows = False
        if len(self._numbers) > 5 * self._most_blocks:
            raise Refused(f"The document has more than {self._most_blocks} paragraphs. Split it.")


def clean_text(text: str) -> str:
    """Writes line breaks as \\n and removes characters that cannot be stored or seen."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x85", "\n").replace("\u2028", "\n")
    return _REMOVED.sub("", text.replace("\x0b", "\n").replace("\x0c", "\n").replace("\u2029", "\n"))


def squeeze(text: str) -> str:
    """Replaces each run of spaces and line breaks by one space."""
    return " ".join(text.split())


def squeeze_lines(text: str) -> str:
    """Replaces each run of spaces by one, line by line."""
    return "\n".join(line.strip() for line in _SPACES.sub(" ", text).split("\n")).strip()


def join_cells(cells: Sequence[str]) -> str:
    """Returns a row of a table as a line, without empty cells at its end."""
    line = " | ".join(squeeze(cell) for cell in cells[:_MOST_COLUMNS])
    return line.rstrip(" |")
