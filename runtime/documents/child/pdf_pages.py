"""PDF: joins the lines of each page to paragraphs. Text in larger letters is a heading; tables are read as
paragraphs.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2 as pdfium
from pypdfium2 import raw

from baobab.runtime.documents.child.charsets import load_charsets
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder, clean_text

load_charsets("utf-16-le", "utf-16-be", "utf-8", "latin-1")
_LARGER, _GAP = 1.15, 0.6
_LONGEST_HEADING = 200
_PASSWORD = 4
"""The value of FPDF_GetLastError for a document that needs a password."""


@dataclass
class _Line:
    """A line of a page: the size of its letters and their position above the bottom of the page, in points."""

    text: str
    page: int
    size: float
    top: float
    bottom: float


def read_document(source: bytes, builder: TextBuilder, _options: dict[str, Any]) -> None:
    try:
        document = pdfium.PdfDocument(source)
        builder.require_pages(len(document))
        lines = [line for number in range(len(document)) for line in _read_page(document, number, builder)]
        builder.title = document.get_metadata_value("Title")
    except pdfium.PdfiumError as exc:
        if raw.FPDF_GetLastError() == _PASSWORD or "password" in str(exc).lower():
            raise Refused("The document is protected by a password. Save it without one and upload it again.") from exc
        raise Refused("The PDF is damaged: its pages cannot be read.") from exc
    if lines:
        _add_lines(lines, builder)


def _read_page(document: pdfium.PdfDocument, number: int, builder: TextBuilder) -> Iterator[_Line]:
    """Yields the lines of a page. One that only looks as if it had text is noted as a picture."""
    page = document[number]
    text_page = page.get_textpage()
    try:
        at, has_text = 0, False
        # Each character of the page is one of the text, so that the position of a line's is known.
        for line in text_page.get_text_range(errors="replace").split("\n") if text_page.count_chars() else ():
            text = clean_text(line).strip()
            if text:
                has_text = True
                begin = at + len(line) - len(line.lstrip())
                yield _Line(text, number + 1, *_measure(text_page, begin))
            at += len(line) + 1
        if not has_text and raw.FPDFPage_CountObjects(page):
            builder.pictures.append(number + 1)
    finally:
        text_page.close()
        page.close()


def _measure(text_page: pdfium.PdfTextPage, at: int) -> tuple[float, float, float]:
    """Returns the size of a character and the upper and lower edge of its font there; zeros if it has none."""
    box = raw.FS_RECTF()
    if not raw.FPDFText_GetLooseCharBox(text_page, at, ctypes.byref(box)):
        return 0.0, 0.0, 0.0
    top, bottom = max(box.top, box.bottom), min(box.top, box.bottom)
    # The size of a font says little where the page is scaled; what it measures on the page is comparable.
    return round(top - bottom, 1), top, bottom


def _add_lines(lines: list[_Line], builder: TextBuilder) -> None:
    weights: Counter[float] = Counter()
    for line in lines:
        weights[line.size] += len(line.text)
    usual = max(weights, key=lambda size: weights[size])
    sizes = sorted({line.size for line in lines if _is_heading(line, usual)}, reverse=True)
    levels = {size: min(level, 6) for level, size in enumerate(sizes, 1)}
    paragraph: list[_Line] = []
    for line in lines:
        if paragraph and _is_apart(paragraph[-1], line):
            _add_paragraph(paragraph, levels, usual, builder)
            paragraph = []
        paragraph.append(line)
    _add_paragraph(paragraph, levels, usual, builder)


def _is_heading(line: _Line, usual: float) -> bool:
    return usual > 0 and line.size > _LARGER * usual and len(line.text) <= _LONGEST_HEADING


def _is_apart(before: _Line, line: _Line) -> bool:
    """Returns whether a line begins a new paragraph."""
    if line.page != before.page or abs(line.size - before.size) > 0.1 * max(line.size, before.size):
        return True
    return not 0 <= before.bottom - line.top + line.size <= (1 + _GAP) * max(line.size, 1.0)


def _add_paragraph(lines: list[_Line], levels: dict[float, int], usual: float, builder: TextBuilder) -> None:
    first = lines[0]
    text = "\n".join(line.text for line in lines)
    if _is_heading(first, usual) and len(text) <= _LONGEST_HEADING:
        builder.add("heading", text.replace("\n", " "), level=levels[first.size], page=first.page)
    else:
        builder.add("paragraph", text, page=first.page)
