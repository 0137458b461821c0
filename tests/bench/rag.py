"""Search by meaning in a mapped file: all vectors, a tenth of them, and what a start costs, against plain numpy."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from baobab.storage.vectors.vector_file import Key, VectorFile

_DOCUMENTS, _CHUNKS, _DIMENSIONS, _QUERIES, _NEAREST = 10_000, 10, 384, 30, 10


def run() -> dict[str, float]:
    """Returns medians in milliseconds, and recall at 10 against 32-bit floats."""
    random = np.random.default_rng(7)
    vectors = random.standard_normal((_DOCUMENTS * _CHUNKS, _DIMENSIONS), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = vectors[random.choice(len(vectors), _QUERIES)] + 0.05 * random.standard_normal((_QUERIES, _DIMENSIONS))
    queries = (queries / np.linalg.norm(queries, axis=1, keepdims=True)).astype("f4")
    keys: list[Key] = [(f"document-{number}", 1) for number in range(_DOCUMENTS)]
    tenth = keys[::10]
    with tempfile.TemporaryDirectory() as folder:
        file = VectorFile(Path(folder) / "vectors", _DIMENSIONS)
        file.find_missing(keys)
        began = time.perf_counter()
        for start in range(0, _DOCUMENTS, 100):
            file.append(dict(_pack(vectors, keys, start)))
        written = time.perf_counter() - began
        began = time.perf_counter()
        opened = VectorFile(Path(folder) / "vectors", _DIMENSIONS)
        missing = opened.find_missing(keys)
        reopened = time.perf_counter() - began
        assert missing == []
        halves = [query.astype("<f2").tobytes() for query in queries]
        hits = 0
        for query, half in zip(queries, halves, strict=True):
            exact = set(np.argsort(-(vectors @ query))[:_NEAREST].tolist())
            found = {int(at.key[0][9:]) * _CHUNKS + at.position for at in opened.search(half, keys, _NEAREST)}
            hits += len(exact & found)
        return {
            "numpy, all": _measure(lambda at: np.argpartition(-(vectors @ queries[at]), _NEAREST)),
            "all": _measure(lambda at: opened.search(halves[at], keys, _NEAREST)),
            "a tenth": _measure(lambda at: opened.search(halves[at], tenth, _NEAREST)),
            "written": written * 1000,
            "opened again": reopened * 1000,
            "recall": hits / _QUERIES / _NEAREST,
        }


def report(found: dict[str, float]) -> Iterator[str]:
    """Yields the lines of the report."""
    yield f"\nRetrieval: {_DOCUMENTS * _CHUNKS} vectors of {_DIMENSIONS} dimensions in a mapped file"
    for name, value in found.items():
        unit = "" if name == "recall" else " ms"
        yield f"  {name:<14}{value:10.2f}{unit}"


def _pack(vectors: Any, keys: list[Key], start: int) -> Iterator[tuple[Key, list[bytes]]]:
    for number in range(start, start + 100):
        rows = vectors[number * _CHUNKS : (number + 1) * _CHUNKS].astype("<f2")
        yield keys[number], [row.tobytes() for row in rows]


def _measure(work: Callable[[int], Any]) -> float:
    """Returns the median time of one call in milliseconds."""
    times = []
    for at in range(_QUERIES):
        began = time.perf_counter()
        work(at)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000
