"""Splits the text of a document into chunks, each a part of it with its place, its page and its headings.

    split_text(text, blocks, size=512, overlap=64)

A chunk ends with its page, so that its page can be cited. Within a page it ends where the text has an end of its own:
before a heading, after a block, a paragraph, a sentence or a word, whichever comes first in this order within the
second half of the chunk.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

_SENTENCE_END = re.compile(r"[.!?\u2026][\"'\u201d\u2019)\]]*(?=\s)|[\u3002\uff01\uff1f]")
_SPACE = re.compile(r"\s")
_MOST_HEADINGS, _LONGEST_HEADING = 6, 200


class Block(Protocol):
    """A part of a text, as a parser found it. start, end: offsets into the text."""

    @property
    def kind(self) -> str: ...
    @property
    def level(self) -> int | None: ...
    @property
    def page(self) -> int | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """`text[start:end]` of a document. headings: those that it stands below, the outermost first."""

    start: int
    end: int
    page: int | None
    headings: tuple[str, ...]


class TooManyChunks(ValueError):
    """The text has more chunks than allowed."""


def split_text(text: str, blocks: Sequence[Block], *, size: int, overlap: int, most: int = 50_000) -> list[Chunk]:
    """Returns the chunks of a text in order. None is longer than `size` characters, and together they contain every
    word.

    overlap: how many characters of a chunk the next one may repeat, unless a heading or the end of a page is
    between them; below `size`.
    Raises TooManyChunks.
    """
    outline = _Outline(text, sorted(blocks, key=lambda block: block.start))
    chunks: list[Chunk] = []
    position = 0
    while True:
        position = _skip_space(text, position)
        if position >= len(text):
            return chunks
        end, is_border = outline.find_end(position, size, overlap)
        trimmed_end = position + len(text[position:end].rstrip())
        if trimmed_end > position:
            if len(chunks) == most:
                raise TooManyChunks
            chunks.append(Chunk(position, trimmed_end, outline.find_page(position), outline.find_headings(position)))
        repeats = not is_border and end < len(text)
        position = _begin_word(text, max(end - overlap, position + 1), end) if repeats else end


class _Outline:
    def __init__(self, text: str, blocks: Sequence[Block]) -> None:
        self._text = text
        self._blocks = blocks
        self._starts = [block.start for block in blocks]
        self._ends = sorted({block.end for block in blocks})
        self._page_starts = [after.start for before, after in pairwise(blocks) if after.page != before.page]
        self._heading_starts: list[int] = []
        self._paths: list[tuple[str, ...]] = []
        path: list[tuple[int, str]] = []
        for block in blocks:
            if block.kind == "heading":
                level = block.level or 1
                title = " ".join(text[block.start : block.end].strip("# \t\n").split())[:_LONGEST_HEADING]
                path = [(above, name) for above, name in path if above < level] + [(level, title)]
                self._heading_starts.append(block.start)
                self._paths.append(tuple(name for _, name in path[-_MOST_HEADINGS:]))

    def find_end(self, start: int, size: int, overlap: int) -> tuple[int, bool]:
        """Returns where a chunk ends that begins at `start`, and whether a heading or another page comes next."""
        limit = start + size
        page = self._find_page_start(start, limit)
        heading = self._find_heading(start + size // 4, limit if page is None else page)
        if heading is not None:
            return heading, True
        if page is not None:
            return page, True
        if limit >= len(self._text):
            return len(self._text), False
        # Each chunk is well beyond the overlap, so that the next one begins later than this one.
        least = start + max(size // 2, overlap + (size - overlap) // 2)
        end = self._find_block_end(least, limit)
        for separator in ("\n\n", "\n"):
            if end is None and (at := self._text.rfind(separator, least, limit)) >= 0:
                end = at + len(separator)
        if end is None:
            end = max((match.end() for match in _SENTENCE_END.finditer(self._text, least, limit)), default=None)
        if end is None:
            end = max((match.end() for match in _SPACE.finditer(self._text, least, limit)), default=None)
        return end if end is not None else limit, False

    def find_page(self, position: int) -> int | None:
        at = bisect_right(self._starts, position) - 1
        return self._blocks[max(at, 0)].page if self._blocks else None

    def find_headings(self, position: int) -> tuple[str, ...]:
        at = bisect_right(self._heading_starts, position) - 1
        return self._paths[at] if at >= 0 else ()

    def _find_heading(self, after: int, limit: int) -> int | None:
        at = bisect_right(self._heading_starts, after)
        return (
            self._heading_starts[at] if at < len(self._heading_starts) and self._heading_starts[at] <= limit else None
        )

    def _find_page_start(self, after: int, limit: int) -> int | None:
        at = bisect_right(self._page_starts, after)
        return self._page_starts[at] if at < len(self._page_starts) and self._page_starts[at] <= limit else None

    def _find_block_end(self, least: int, limit: int) -> int | None:
        at = bisect_right(self._ends, limit) - 1
        return self._ends[at] if at >= 0 and self._ends[at] > least else None


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _begin_word(text: str, start: int, end: int) -> int:
    """Moves `start` forward to the beginning of a word, if there is one before `end`."""
    if text[start - 1].isspace():
        return start
    match = _SPACE.search(text, start, end)
    return match.end() if match else start
