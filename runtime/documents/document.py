"""The parsed form of a document, and the limits of parsing."""

from dataclasses import dataclass
from typing import Literal

BlockKind = Literal["heading", "paragraph", "table", "list", "code"]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a document's text, from the character `start` to before `end`.

    level: 1 to 6 for a heading, otherwise None. page: counted from 1; None where the format has no pages.
    """

    kind: BlockKind
    level: int | None
    page: int | None
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The text of a document and its blocks, in order and without overlap.

    media_type: the type of the content, whatever the sender declared. pages: None if the format has no pages.
    pictures: the pages whose text has yet to be recognised; 0 stands for a document without pages.
    """

    text: str
    blocks: tuple[Block, ...]
    media_type: str
    title: str | None
    pages: int | None
    pictures: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """The limits of reading one document. A document that exceeds any of them is refused as a whole.

    unpacked_bytes, archive_ratio: how large a docx, xlsx or pptx is without its compression, and how often larger
    than the file. pictures: how many pages have their text recognised, each within `picture_seconds` and
    `picture_memory_bytes`.
    """

    seconds: float = 20.0
    memory_bytes: int = 768 * 2**20
    source_bytes: int = 64 * 2**20
    text_characters: int = 10_000_000
    blocks: int = 100_000
    pages: int = 2_000
    unpacked_bytes: int = 256 * 2**20
    archive_ratio: int = 100
    archive_members: int = 5_000
    pictures: int = 200
    picture_pixels: int = 50_000_000
    picture_seconds: float = 120.0
    picture_memory_bytes: int = 1536 * 2**20


DEFAULT = ParseLimits()


class UnreadableDocument(Exception):
    """The document cannot be read. `reason` is a sentence for the person who sent it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
