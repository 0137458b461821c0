"""Puts the lines of a picture into the order in which a person reads them, and joins them to paragraphs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from statistics import median

from baobab.runtime.documents.child.characters import Line
from baobab.runtime.documents.child.text_builder import TextBuilder

_PROSE, _FEW = 8.0, 2
"""So many times wider than high are the lines of a column, and so many it has at least: others are cells of a row."""
_GUTTER, _APART = 0.8, 1.6
"""The least space between columns and between the middles of the lines of two paragraphs, in heights of a line."""
_LARGER, _LONGEST_HEADING = 1.5, 200


@dataclass
class _Box:
    """A line after the page was put straight. The edges are those of its rectangle, in pixels."""

    text: str
    left: float
    right: float
    middle: float
    height: float

    @property
    def is_prose(self) -> bool:
        return self.right - self.left >= _PROSE * self.height


def add_lines(lines: list[Line], builder: TextBuilder, page: int) -> None:
    """Adds the lines of one page as headings and paragraphs. page: 0 where there are no pages."""
    boxes = _straighten(lines)
    if not boxes:
        return
    usual = median(box.height for box in boxes for _ in box.text)
    rows = [row for region in _find_regions(boxes) for row in (*_join_rows(region), None)]
    paragraph: list[_Box] = []
    for row in rows:
        if paragraph and (row is None or _is_apart(paragraph[-1], row)):
            text = "\n".join(box.text for box in paragraph)
            if paragraph[0].height > _LARGER * usual and len(text) <= _LONGEST_HEADING:
                builder.add("heading", text.replace("\n", " "), level=1, page=page)
            else:
                builder.add("paragraph", text, page=page)
            paragraph = []
        if row is not None:
            paragraph.append(row)


def _straighten(lines: list[Line]) -> list[_Box]:
    """Turns the page by the angle of most of its text."""
    if not lines:
        return []
    angle = median(line.place.angle for line in lines for _ in line.text)
    cos, sin = math.cos(angle), math.sin(angle)
    boxes = []
    for text, (x, y, width, height, _) in lines:
        across, down = x * cos + y * sin, y * cos - x * sin
        boxes.append(_Box(text, across - width / 2, across + width / 2, down, height))
    return boxes


def _find_regions(boxes: list[_Box]) -> list[list[_Box]]:
    """Cuts a page into parts that are read one after the other: columns, and what is above and below them."""
    regions, uncut = [], [boxes]
    while uncut:
        part = sorted(uncut.pop(), key=lambda box: box.middle)
        if not _has_neighbours(part):
            regions.append(part)
            continue
        columns = _cut_columns(part)
        if len(columns) == 1:
            # The widest space, which may be the one between a title and the columns below.
            gaps = [
                (below.middle - below.height / 2 - above.middle - above.height / 2, at)
                for at, (above, below) in enumerate(itertools.pairwise(part), 1)
            ]
            _, at = max(gaps)
            columns = [part[:at], part[at:]]
        uncut += reversed(columns)
    return regions


def _has_neighbours(boxes: list[_Box]) -> bool:
    """Returns whether there may be columns: two lines of prose beside each other."""
    prose = [box for box in boxes if box.is_prose]
    return any(
        below.middle - above.middle < min(above.height, below.height) / 2 for above, below in itertools.pairwise(prose)
    )


def _cut_columns(boxes: list[_Box]) -> list[list[_Box]]:
    """Returns the columns from left to right, or all in one if there is no space between them from top to bottom."""
    gutter = _GUTTER * median(box.height for box in boxes)
    columns: list[list[_Box]] = []
    reach = -math.inf
    for box in sorted(boxes, key=lambda box: box.left):
        if box.left > reach + gutter or not columns:
            columns.append([])
        columns[-1].append(box)
        reach = max(reach, box.right)
    if all(sum(box.is_prose for box in column) >= _FEW for column in columns):
        return columns
    return [boxes]


def _join_rows(boxes: list[_Box]) -> list[_Box]:
    """Joins the lines that are beside each other, as the cells of a table are."""
    rows: list[list[_Box]] = []
    for box in sorted(boxes, key=lambda box: box.middle):
        if rows and box.middle - rows[-1][0].middle < min(box.height, rows[-1][0].height) / 2:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [_join(sorted(row, key=lambda box: box.left)) for row in rows]


def _join(row: list[_Box]) -> _Box:
    first = max(row, key=lambda box: box.height)
    return _Box(" ".join(box.text for box in row), row[0].left, row[-1].right, first.middle, first.height)


def _is_apart(above: _Box, below: _Box) -> bool:
    """Returns whether a row begins a new paragraph."""
    larger = max(above.height, below.height)
    return below.middle - above.middle > _APART * larger or larger > _LARGER * min(above.height, below.height)
