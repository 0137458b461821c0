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

    media_type: what the content is, whatever its sender called it. pages: None where the format has no pages.
    """

    text: str
    blocks: tuple[Block, ...]
    media_type: str
    title: str | None
    pages: int | None


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """The limits of reading one document. A document that exceeds any of them is refused as a whole.

    unpacked_bytes, archive_ratio: how large a docx, xlsx or pptx is without its compression, and how often larger
    than the file.
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


DEFAULT = ParseLimits()


class UnreadableDocument(Exception):
    """The document cannot be read. `reason` is a sentence for the person who sent it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
