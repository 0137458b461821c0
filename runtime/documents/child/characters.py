"""Recognises the lines of text in a picture: PP-OCRv6, whose weights are those in the package rapidocr, in onnxruntime.

A network marks where lines are, a second one reads each of them. rapidocr itself would do the rest with OpenCV and
Shapely, which take 200 MB and a second to import; Pillow and a few lines of NumPy suffice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

# In an empty environment, NumPy would start a thread for each core.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import onnxruntime
from PIL import Image

from baobab.runtime.documents.networks import find_networks

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_SIDE, _STEP = 1536, 32
"""The detector gets a picture of at most this size, with sides that its layers can halve."""
_MARKED, _SURE, _CONFIDENT = 0.3, 0.5, 0.5
"""Above these are the marks of a line, their mean, and the mean confidence in its characters."""
_GROWTH = 1.6
"""The detector marks the middle of a line: it is larger by so many times its area, divided by its circumference."""
_SMALLEST = 3
_LINE_HEIGHT, _WIDEST = 48, 3200
_MOST_LINES = 1_000
_TALL = 1.5
_TRIED, _CLEAR = 3, 0.8
"""How many lines are tried upside down, if the mean confidence in them is not above this."""


class Rectangle(NamedTuple):
    """x, y: its centre, in pixels from the upper left corner. angle: that of its width, in radians, clockwise."""

    x: float
    y: float
    width: float
    height: float
    angle: float


class Line(NamedTuple):
    text: str
    place: Rectangle


class CharacterReader:
    """Both networks. It opens no file after it is made, and computes in the thread of its caller."""

    def __init__(self) -> None:
        files = find_networks()
        if files is None:
            raise ImportError("rapidocr and onnxruntime are not installed.")
        # Errors, but no warnings: those are about graphics cards and the like.
        onnxruntime.set_default_logger_severity(3)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # No two pictures have the same size, so nothing is gained by keeping memory for the next one.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        self._detector, self._reader = (
            onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]) for file in files
        )
        characters = self._reader.get_modelmeta().custom_metadata_map["character"].splitlines()
        self._characters = ["", *characters, " "]

    def read_lines(self, picture: Image.Image) -> list[Line]:
        """Returns the lines of a picture in RGB, in no order. A picture that lies on its side or its head is turned."""
        rectangles = self._detect(picture)
        if sum(each.height for each in rectangles) > sum(each.width for each in rectangles):
            picture = picture.transpose(Image.Transpose.ROTATE_90)
            rectangles = self._detect(picture)
        if rectangles and self._is_upside_down(picture, rectangles):
            picture = picture.transpose(Image.Transpose.ROTATE_180)
            rectangles = self._detect(picture)
        lines = []
        for rectangle in rectangles:
            text, confidence = self._read(_cut(picture, rectangle))
            if text and confidence >= _CONFIDENT:
                lines.append(Line(text, rectangle))
        return lines

    def _is_upside_down(self, picture: Image.Image, rectangles: list[Rectangle]) -> bool:
        """Returns whether the longest lines read better upside down, if they do not read well as they are."""
        longest = sorted(rectangles, key=lambda each: each.width, reverse=True)[:_TRIED]
        parts = [_cut(picture, rectangle) for rectangle in longest]
        upright = sum(self._read(part)[1] for part in parts)
        if upright > _CLEAR * len(parts):
            return False
        return sum(self._read(part.transpose(Image.Transpose.ROTATE_180))[1] for part in parts) > upright

    def _detect(self, picture: Image.Image) -> list[Rectangle]:
        """Returns where lines are."""
        scale = min(1.0, _MOST_SIDE / max(picture.size))
        width, height = (max(_STEP, round(side * scale / _STEP) * _STEP) for side in picture.size)
        marks = _run(self._detector, picture.resize((width, height), Image.Resampling.BILINEAR))[0, 0]
        # The two scales differ by the rounding only.
        wider, higher = picture.width / width, picture.height / height
        rectangles = []
        for x, y, long, short, angle in _find_rectangles(marks):
            growth = _GROWTH * long * short / (long + short)
            place = Rectangle(x * wider, y * higher, (long + growth) * wider, (short + growth) * higher, angle)
            rectangles.append(place)
        return rectangles

    def _read(self, line: Image.Image) -> tuple[str, float]:
        """Returns the text of a picture of one line, and how sure the network is of it, 0 to 1."""
        width = min(_WIDEST, max(_LINE_HEIGHT, round(line.width * _LINE_HEIGHT / line.height)))
        odds = _run(self._reader, line.resize((width, _LINE_HEIGHT), Image.Resampling.BILINEAR))[0]
        best = odds.argmax(axis=1)
        # A character that is seen twice in a row is one, unless there is an empty place between them.
        is_first_of_run = (best != 0) & (best != np.concatenate(([0], best[:-1])))
        if not is_first_of_run.any():
            return "", 0.0
        text = "".join(self._characters[at] for at in best[is_first_of_run]).strip()
        return text, float(odds.max(axis=1)[is_first_of_run].mean())


def _run(network: Any, picture: Image.Image) -> NDArray[np.float32]:
    pixels = np.asarray(picture, dtype=np.float32).transpose(2, 0, 1)[None] / 127.5 - 1
    (result,) = network.run(None, {"x": pixels})
    probabilities: NDArray[np.float32] = result
    return probabilities


def _cut(picture: Image.Image, place: Rectangle) -> Image.Image:
    """Returns the part of a picture in a rectangle, turned upright."""
    x, y, width, height, angle = place
    cos, sin = np.cos(angle), np.sin(angle)
    corners = [
        (x + across * width / 2 * cos - down * height / 2 * sin, y + across * width / 2 * sin + down * height / 2 * cos)
        for across, down in ((-1, -1), (-1, 1), (1, 1), (1, -1))
    ]
    size = max(1, round(width)), max(1, round(height))
    part = picture.transform(
        size, Image.Transform.QUAD, [float(at) for corner in corners for at in corner], Image.Resampling.BILINEAR
    )
    return part.transpose(Image.Transpose.ROTATE_90) if height > _TALL * width else part


def _find_rectangles(marks: NDArray[np.float32]) -> Iterator[Rectangle]:
    """Yields the rectangle around each connected area of marks, the largest ones first."""
    rows, starts, ends = _find_runs(marks > _MARKED)
    if not len(rows):
        return
    owners, areas = np.unique(_connect(rows, starts, ends), return_inverse=True)
    count = len(owners)
    lengths = (ends - starts).astype(np.float64)

    def add_up(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(areas, values, count).astype(np.float64)

    sizes = add_up(lengths)
    totals = np.concatenate(([0.0], np.cumsum(marks.ravel(), dtype=np.float64)))
    at = rows * marks.shape[1]
    scores = add_up(totals[at + ends] - totals[at + starts]) / sizes
    middles = (starts + ends - 1) / 2
    xs, ys = add_up(lengths * middles) / sizes, add_up(lengths * rows) / sizes
    off_x, off_y = middles - xs[areas], rows - ys[areas]
    spread_x = add_up(lengths * (off_x**2 + (lengths**2 - 1) / 12)) / sizes
    spread_y = add_up(lengths * off_y**2) / sizes
    covariance = add_up(lengths * off_x * off_y) / sizes
    angles = 0.5 * np.arctan2(2 * covariance, spread_x - spread_y)
    # The direction of what is about as wide as high says nothing; nor does that of a column of letters.
    angles[~(spread_x > 4 * spread_y)] = 0.0
    cos, sin = np.cos(angles)[areas], np.sin(angles)[areas]
    edges = np.stack([starts - 0.5 - xs[areas], ends - 0.5 - xs[areas]])
    along = edges * cos + off_y * sin
    across = off_y * cos - edges * sin
    bounds = [
        _reduce(np.minimum, along.min(axis=0), areas, count),
        _reduce(np.maximum, along.max(axis=0), areas, count),
        _reduce(np.minimum, across.min(axis=0) - 0.5, areas, count),
        _reduce(np.maximum, across.max(axis=0) + 0.5, areas, count),
    ]
    largest = np.argsort(-sizes, kind="stable")[:_MOST_LINES]
    for index in largest:
        left, right, top, bottom = (float(side[index]) for side in bounds)
        if scores[index] < _SURE or min(right - left, bottom - top) < _SMALLEST:
            continue
        angle, middle, level = float(angles[index]), (left + right) / 2, (top + bottom) / 2
        x = float(xs[index]) + middle * np.cos(angle) - level * np.sin(angle)
        y = float(ys[index]) + middle * np.sin(angle) + level * np.cos(angle)
        yield Rectangle(float(x) + 0.5, float(y) + 0.5, right - left, bottom - top, angle)


def _find_runs(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns the row, the first column and the column behind the last one of each run of marks, in their order."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    return rows, starts, ends


def _connect(rows: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the number of the area that each run belongs to. Runs touch if they do so at a corner."""
    parents = list(range(len(rows)))

    def find(run: int) -> int:
        while parents[run] != run:
            parents[run] = parents[parents[run]]
            run = parents[run]
        return run

    above = 0
    all_rows, all_starts, all_ends = rows.tolist(), starts.tolist(), ends.tolist()
    for run, (row, start, end) in enumerate(zip(all_rows, all_starts, all_ends, strict=True)):
        while all_rows[above] < row - 1 or (all_rows[above] == row - 1 and all_ends[above] < start):
            above += 1
        other = above
        while all_rows[other] == row - 1 and all_starts[other] <= end:
            parents[find(other)] = find(run)
            other += 1
    return np.array([find(run) for run in range(len(parents))])


def _reduce(
    operation: np.ufunc, values: NDArray[np.float64], areas: NDArray[np.int64], count: int
) -> NDArray[np.float64]:
    """Returns the least or the greatest value of each area."""
    result = np.full(count, np.inf if operation is np.minimum else -np.inf)
    operation.at(result, areas, values)
    return result
