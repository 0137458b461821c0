"""Reads the text of a document: pdf, docx, pptx, xlsx, html, Markdown, CSV, mail and plain text."""

import asyncio
import json
from array import array
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from baobab.runtime.documents.child_process import ChildFailed, ChildTookTooLong, run_child
from baobab.runtime.documents.document import (
    DEFAULT,
    Block,
    BlockKind,
    ParsedDocument,
    ParseLimits,
    UnreadableDocument,
)

_KINDS: tuple[BlockKind, ...] = get_args(BlockKind)
_LONGEST_TITLE, _LONGEST_REASON = 500, 500
_NUMBERS = 5
"""The numbers that the child writes for each block: kind, level, page, start, end. A level or page of 0 means None."""


async def parse_document(
    source: Path, *, name: str, media_type: str | None, limits: ParseLimits = DEFAULT
) -> ParsedDocument:
    """Reads a document in a child process. name, media_type: declared by the sender; the content has the last word.

    Raises UnreadableDocument, and OSError if there is no such file.

    Raises UnreadableDocument, and OSError where there is no such file.
    """
    size = (await asyncio.to_thread(source.stat)).st_size
    if size == 0:
        raise UnreadableDocument("The file is empty.")
    if size > limits.source_bytes:
        raise UnreadableDocument(f"The file has {size} bytes; documents of up to {limits.source_bytes} bytes are read.")
    options = {"name": name[-300:], "media_type": (media_type or "")[:300], **asdict(limits)}
    # A character has at most four bytes in UTF-8.
    most = 4 * limits.text_characters + 8 * _NUMBERS * limits.blocks + 10_000
    try:
        answer = await run_child("parse", options, source, seconds=limits.seconds, most=most)
    except ChildTookTooLong as exc:
        raise UnreadableDocument(f"Reading the document takes more than {limits.seconds:g} seconds.") from exc
    except ChildFailed as exc:
        raise UnreadableDocument(
            f"The document cannot be read: it is damaged, or reading it takes more than "
            f"{limits.memory_bytes // 2**20} MB of memory."
        ) from exc
    return await asyncio.to_thread(_decode, answer)


def _decode(answer: bytes) -> ParsedDocument:
    """Decodes the child's answer: a line of JSON, the numbers of the blocks, the text.

    A document may have taken over the child, so its answer is as untrusted as the document. Raises UnreadableDocument.

    A document may have taken the child over, so what it wrote is as doubtful as the document. Raises
    UnreadableDocument.
    """
    try:
        line, _, rest = answer.partition(b"\n")
        header = json.loads(line)
        if "refused" in header:
            raise UnreadableDocument(str(header["refused"])[:_LONGEST_REASON])
        length = int(header["blocks"]) * _NUMBERS * 8
        numbers = array("q", rest[:length])
        text = rest[length:].decode()
        blocks = _build_blocks(numbers, len(text))
        title = header["title"]
        pages = header["pages"]
        return ParsedDocument(
            text,
            blocks,
            str(header["media_type"])[:100],
            None if title is None else str(title)[:_LONGEST_TITLE],
            None if pages is None else int(pages),
        )
    except (ValueError, LookupError, TypeError, OverflowError) as exc:
        raise UnreadableDocument("The document cannot be read: it is damaged.") from exc


def _build_blocks(numbers: "array[int]", length: int) -> tuple[Block, ...]:
    """Builds the blocks. Raises ValueError or LookupError for numbers that do not describe blocks of such a text."""
    blocks = []
    before = 0
    for at in range(0, len(numbers), _NUMBERS):
        kind, level, page, start, end = numbers[at : at + _NUMBERS]
        if not (before <= start < end <= length and kind >= 0 and 0 <= level <= 6 and page >= 0):
            raise ValueError("not a block")
        blocks.append(Block(_KINDS[kind], level or None, page or None, start, end))
        before = end
    return tuple(blocks)
