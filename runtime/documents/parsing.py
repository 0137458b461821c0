"""Reads the text of a document: pdf, docx, pptx, xlsx, html, Markdown, CSV, mail, plain text, and pictures of text."""

import asyncio
import dataclasses
import json
from array import array
from collections.abc import Mapping
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
from baobab.runtime.documents.networks import find_networks

_KINDS: tuple[BlockKind, ...] = get_args(BlockKind)
_LONGEST_TITLE, _LONGEST_REASON = 500, 500
_NUMBERS = 5
"""The numbers that the child writes for each block: kind, level, page, start, end. A level or page of 0 means None."""
_BETWEEN = "\n\n"


async def parse_document(
    source: Path, *, name: str, media_type: str | None, limits: ParseLimits = DEFAULT
) -> ParsedDocument:
    """Reads a document in a child process. name, media_type: declared by the sender; the content has the last word.

    Pages that are pictures are read one after the other, each in a process of its own, so that others have their turn
    in between. Raises UnreadableDocument, and OSError if there is no such file.
    """
    size = (await asyncio.to_thread(source.stat)).st_size
    if size == 0:
        raise UnreadableDocument("The file is empty.")
    if size > limits.source_bytes:
        raise UnreadableDocument(f"The file has {size} bytes; documents of up to {limits.source_bytes} bytes are read.")
    options = {"name": name[-300:], "media_type": (media_type or "")[:300], **dataclasses.asdict(limits)}
    document = await _run("parse", options, source, limits)
    if not document.pictures:
        return document
    if find_networks():
        return await _recognise(document, options, source, limits)
    if not document.blocks:
        raise UnreadableDocument(
            "The text of this file is a picture, and this server does not recognise text in pictures. Ask its operator "
            "to install rapidocr, or let a model read the picture and add its answer."
        )
    return document


async def _recognise(
    document: ParsedDocument, options: Mapping[str, object], source: Path, limits: ParseLimits
) -> ParsedDocument:
    """Returns the document with the text of its pictures. Raises UnreadableDocument."""
    if len(document.pictures) > limits.pictures:
        raise UnreadableDocument(
            f"The document has {len(document.pictures)} pages that are pictures; up to {limits.pictures} are read. "
            "Split it."
        )
    own_limits = dataclasses.replace(
        limits, seconds=limits.picture_seconds, memory_bytes=limits.picture_memory_bytes, pages=limits.pictures
    )
    options = {**options, **dataclasses.asdict(own_limits), "media_type": document.media_type}
    read = [document]
    for page in document.pictures:
        try:
            read.append(await _run("recognise", {**options, "page": page}, source, own_limits))
        except UnreadableDocument as exc:
            raise UnreadableDocument(f"Page {page}: {exc.reason}" if page else exc.reason) from exc
    return _join(read, limits)


def _join(parts: list[ParsedDocument], limits: ParseLimits) -> ParsedDocument:
    """Joins the parts of a document page by page. Raises UnreadableDocument."""
    texts: list[str] = []
    blocks: list[Block] = []
    at = 0
    blocks_with_text = [(block, part.text) for part in parts for block in part.blocks]
    for block, text in sorted(blocks_with_text, key=lambda each: each[0].page or 0):
        texts.append(text[block.start : block.end])
        blocks.append(dataclasses.replace(block, start=at, end=at + len(texts[-1])))
        at = blocks[-1].end + len(_BETWEEN)
    if not blocks:
        raise UnreadableDocument("The document has no text.")
    if at > limits.text_characters or len(blocks) > limits.blocks:
        raise UnreadableDocument(f"The document has more than {limits.text_characters} characters of text. Split it.")
    title = next((part.title for part in parts if part.title), None)
    return dataclasses.replace(parts[0], text=_BETWEEN.join(texts), blocks=tuple(blocks), title=title, pictures=())


async def _run(task: str, options: Mapping[str, object], source: Path, limits: ParseLimits) -> ParsedDocument:
    """Runs a task on the document and returns its answer. Raises UnreadableDocument."""
    # A character has at most four bytes in UTF-8; a page is named by at most five.
    most = 4 * limits.text_characters + 8 * _NUMBERS * limits.blocks + 8 * limits.pages + 10_000
    try:
        answer = await run_child(task, options, source, seconds=limits.seconds, most=most)
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
    """
    try:
        line, _, remainder = answer.partition(b"\n")
        header = json.loads(line)
        if "refused" in header:
            raise UnreadableDocument(str(header["refused"])[:_LONGEST_REASON])
        length = int(header["blocks"]) * _NUMBERS * 8
        numbers = array("q", remainder[:length])
        text = remainder[length:].decode()
        blocks = _build_blocks(numbers, len(text))
        title = header["title"]
        pages = header["pages"]
        return ParsedDocument(
            text,
            blocks,
            str(header["media_type"])[:100],
            None if title is None else str(title)[:_LONGEST_TITLE],
            None if pages is None else int(pages),
            tuple(map(int, header["pictures"])),
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
