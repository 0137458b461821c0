"""Search by meaning in a mapped file: a hundred thousand vectors beside numpy and sqlite-vec, and a million."""

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baobab.storage.vectors.vector_file import Key, Selection, VectorFile
from tests.bench.peers.environments import SQLITE_VEC, install_peer

ROWS, MANY = 100_000, 1_000_000
_CHUNKS, _DIMENSIONS, _QUERIES, _NEAREST = 10, 384, 30, 10
_TOPICS, _DEPTH = 2000, 24
"""The topics around which vectors lie, and the dimensions in which those of one topic differ most."""
_PEER = Path(__file__).parent / "peers" / "sqlite_vec_search.py"


class Cost(NamedTuple):
    """Medians in milliseconds: by the clock, and of the processor."""

    wall: float
    cpu: float


def run() -> dict[str, Any]:
    random = np.random.default_rng(7)
    vectors = _scale(random.standard_normal((ROWS, _DIMENSIONS), dtype=np.float32))
    queries = vectors[random.choice(ROWS, _QUERIES)]
    queries = _scale(queries + 0.05 * random.standard_normal(queries.shape, dtype=np.float32))
    rows = _measure_rows(vectors, queries)
    del vectors
    return rows | {"many": _measure_many(random)}


def report(figures: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of the report."""
    yield f"\nRetrieval: {ROWS} vectors of {_DIMENSIONS} dimensions in a mapped file{'':15}{'ms':>9}{'CPU ms':>9}"
    costs = {name: value for name, value in figures.items() if isinstance(value, Cost)}
    for name, cost in costs.items():
        yield f"  {name:64}{cost.wall:9.2f}{cost.cpu:9.2f}"
    if "sqlite-vec, a tenth" in costs:
        ours, theirs = costs["a tenth"], costs["sqlite-vec, a tenth"]
        ratios = f"{ours.wall / theirs.wall:9.3f}{ours.cpu / theirs.cpu:9.3f}"
        yield f"  {'a tenth against the time of sqlite-vec, to hold at most 0.1':64}{ratios}"
        yield f"  rows of sqlite-vec's answers that ours have, too{'':16}{figures['same as sqlite-vec']:9.3f}"
    for name in ("recall, all", "recall, a tenth"):
        yield f"  {name:64}{figures[name]:9.3f}"
    yield f"  memory, against the bytes of the vectors, to hold at most 1.3{'':3}{figures['memory']:9.2f}"
    many = figures["many"]
    yield f"{MANY} vectors that lie around {_TOPICS} topics"
    for name in ("all", "a tenth"):
        label = name + ("; to hold below 20, at a recall of 0.99" if name == "all" else "")
        yield f"  {label:64}{many[name].wall:9.2f}{many[name].cpu:9.2f}"
    for name in ("recall, all", "recall, a tenth", "opened, s", "memory"):
        yield f"  {name:64}{many[name]:9.3f}"


def _measure_rows(vectors: Any, queries: Any) -> dict[str, Any]:
    keys = _name_documents(ROWS)
    tenth = keys[::10]
    with tempfile.TemporaryDirectory() as folder:
        _write(VectorFile(Path(folder) / "ours", _DIMENSIONS), vectors)
        before = _read_resident()
        file = VectorFile(Path(folder) / "ours", _DIMENSIONS)
        began = time.perf_counter()
        assert file.find_missing(keys) == []
        opening_ms = (time.perf_counter() - began) * 1000
        halves = [query.astype("<f2").tobytes() for query in queries]
        # As a search does: one of the whole collection is selected once, one of a filter's documents each time.
        all_of_it = file.select(keys)
        figures: dict[str, Any] = {
            "numpy, all, in memory": _time(lambda at: np.argpartition(-(vectors @ queries[at]), _NEAREST)),
            "all": _time(lambda at: file.search(halves[at], all_of_it, _NEAREST)),
            "a tenth": _time(lambda at: file.search(halves[at], file.select(tenth), _NEAREST)),
            "opened again": Cost(opening_ms, opening_ms),
            "memory": (_read_resident() - before) / vectors.nbytes,
        }
        is_wanted = np.arange(ROWS) // _CHUNKS % 10 == 0
        figures["recall, all"] = _compute_recall(file, keys, queries, halves, vectors, None)
        figures["recall, a tenth"] = _compute_recall(file, tenth, queries, halves, vectors, is_wanted)
        return figures | _ask_peer(Path(folder), vectors, queries, [_find(file, half, tenth) for half in halves])


def _ask_peer(folder: Path, vectors: Any, queries: Any, ours: list[list[int]]) -> dict[str, Any]:
    """The same in sqlite-vec; nothing where it cannot be installed."""
    try:
        python = install_peer(SQLITE_VEC)
    except subprocess.CalledProcessError:
        return {}
    (folder / "vectors").write_bytes(vectors.tobytes())
    (folder / "queries").write_bytes(queries.tobytes())
    sizes = (str(number) for number in (ROWS, _DIMENSIONS, _QUERIES, _NEAREST))
    process = subprocess.run([str(python), str(_PEER), str(folder), *sizes], capture_output=True, text=True, check=True)
    payload = json.loads(process.stdout)
    same = [len(set(mine) & set(its)) / _NEAREST for mine, its in zip(ours, payload["tenth"]["answers"], strict=True)]
    return {
        "sqlite-vec, all": Cost(payload["all"]["wall"], payload["all"]["cpu"]),
        "sqlite-vec, a tenth": Cost(payload["tenth"]["wall"], payload["tenth"]["cpu"]),
        "same as sqlite-vec": statistics.mean(same),
    }


def _measure_many(random: Any) -> dict[str, Any]:
    """A million: as vectors of texts do, they lie around topics, and differ in few dimensions most."""
    topics = random.standard_normal((_TOPICS, _DIMENSIONS), dtype=np.float32)
    spread = 0.8 * random.standard_normal((_DEPTH, _DIMENSIONS), dtype=np.float32) / np.sqrt(_DEPTH)

    def draw(count: int) -> Any:
        within = random.standard_normal((count, _DEPTH), dtype=np.float32) @ spread
        noise = 0.5 * random.standard_normal((count, _DIMENSIONS), dtype=np.float32)
        return _scale(topics[random.integers(0, _TOPICS, count)] + 4.0 * within + noise)

    queries, keys = draw(_QUERIES), _name_documents(MANY)
    halves = [query.astype("<f2").tobytes() for query in queries]
    with tempfile.TemporaryDirectory() as folder:
        file = VectorFile(Path(folder) / "ours", _DIMENSIONS)
        best: list[list[tuple[float, int]]] = [[] for _ in queries]
        for start in range(0, MANY, ROWS):
            vectors = draw(ROWS)
            _write(file, vectors, start)
            scores = vectors @ queries.T
            for at in range(_QUERIES):
                rows = np.argpartition(-scores[:, at], 200)[:200]
                best[at] += [(float(scores[row, at]), start + int(row)) for row in rows]
        del vectors, scores
        before, began = _read_resident(), time.perf_counter()
        file = VectorFile(Path(folder) / "ours", _DIMENSIONS)
        assert file.find_missing(keys) == []
        opening_seconds = time.perf_counter() - began
        tenth = keys[::10]
        all_of_it = file.select(keys)
        figures: dict[str, Any] = {"opened, s": opening_seconds}
        for name, wanted_keys in (("all", keys), ("a tenth", tenth)):
            _find(file, halves[0], wanted_keys)
            selection = all_of_it if wanted_keys is keys else None
            figures[name] = _time(partial(_search, file, halves, wanted_keys, selection))
            figures[f"recall, {name}"] = statistics.mean(
                _overlap(_find(file, halves[at], wanted_keys), best[at], is_tenth=wanted_keys is tenth)
                for at in range(_QUERIES)
            )
        return figures | {"memory": (_read_resident() - before) / (MANY * _DIMENSIONS * 4)}


def _overlap(found_rows: list[int], best: list[tuple[float, int]], *, is_tenth: bool) -> float:
    rows = [row for _, row in sorted(best, reverse=True) if not is_tenth or row // _CHUNKS % 10 == 0]
    return len(set(found_rows) & set(rows[:_NEAREST])) / _NEAREST


def _compute_recall(
    file: VectorFile, keys: Sequence[Key], queries: Any, halves: list[bytes], vectors: Any, is_wanted: Any
) -> float:
    """Recall at 10 against 32-bit floats."""
    hits = 0
    for query, half in zip(queries, halves, strict=True):
        scores = vectors @ query
        if is_wanted is not None:
            scores[~is_wanted] = -np.inf
        hits += len(set(np.argsort(-scores)[:_NEAREST].tolist()) & set(_find(file, half, keys)))
    return hits / _QUERIES / _NEAREST


def _search(file: VectorFile, halves: list[bytes], keys: Sequence[Key], selection: Selection | None, at: int) -> Any:
    return file.search(halves[at], selection or file.select(keys), _NEAREST)


def _find(file: VectorFile, half: bytes, keys: Sequence[Key]) -> list[int]:
    """The rows that are found: documents have ten each, in their order."""
    return [int(at.key[0][9:]) * _CHUNKS + at.position for at in file.search(half, file.select(keys), _NEAREST)]


def _name_documents(rows: int) -> list[Key]:
    return [(f"document-{number}", 1) for number in range(rows // _CHUNKS)]


def _write(file: VectorFile, vectors: Any, first: int = 0) -> None:
    if not first:
        file.find_missing([])
    halves = vectors.astype("<f2")
    for start in range(0, len(vectors), 10_000):
        rows = {
            (f"document-{(first + row) // _CHUNKS}", 1): [half.tobytes() for half in halves[row : row + _CHUNKS]]
            for row in range(start, start + 10_000, _CHUNKS)
        }
        file.append(rows)


def _scale(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _read_resident() -> int:
    """The bytes of this process that are in memory, mapped files included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _time(work: Callable[[int], Any]) -> Cost:
    times, cpu_times = [], []
    for at in range(_QUERIES):
        began, cpu = time.perf_counter(), time.process_time()
        work(at)
        times.append(time.perf_counter() - began)
        cpu_times.append(time.process_time() - cpu)
    return Cost(statistics.median(times) * 1000, statistics.median(cpu_times) * 1000)
