"""The vectors of one collection in a memory-mapped file, for exact search. In a very large file, the signs of the
vectors preselect the rows that are compared exactly.

The file is a copy that can be made again: the rows of the database are what counts. Versions of documents are appended,
and never changed; a journal beside the file says which rows are whose. Several processes may use it at once.

    vectors.find_missing(keys)            # the versions whose vectors are not in the file yet
    vectors.append({key: vectors_of_it})
    selection = vectors.select(keys)      # may be used again and again, while has(selection)
    vectors.search(query, selection, 10)
"""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from baobab.storage.vectors.folders import lock_writers
from baobab.storage.vectors.signs import Signs

Key = tuple[str, int]
"""A document and its version."""
_MOST_GATHERED = 0.3
"""The share of all rows up to which the rows are collected one by one; above it, all rows are multiplied."""
_MOST_COMPARED = 50_000
"""The number of rows up to which a search compares all of them exactly."""
_FEWEST_CHOSEN, _CHOSEN_FOR_EACH = 2000, 40
"""How many rows are preselected by their signs above that: at least, and for each result."""
_MOST_CHOSEN, _COMPARED_TOGETHER = 10_000, 10**9
"""If there are fewer rows, more of them are preselected, because counting signs takes less time: at most so many,
and at most so many for the product of both numbers.
"""
_FEWEST_DEAD = 1000
_GATHERED_AT_ONCE = 512
"""A number of rows small enough to stay in the processor's cache. Collecting all rows first takes twice as long."""


class Neighbour(NamedTuple):
    """A vector near the query: its version, its place among the version's vectors, and its cosine similarity to the
    query.
    """

    key: Key
    position: int
    score: float


class Selection(NamedTuple):
    """The document versions to search. It is valid only for the file that made it, and until that file is rewritten."""

    rows: int
    is_wanted: Any
    """For each version in the file, whether it is selected."""
    contents: object


class _Files(NamedTuple):
    journal: Path
    vectors: Path


class VectorFile:
    """A file of vectors. Call its methods in threads, one at a time. They raise FileNotFoundError if its folder is
    deleted.
    """

    def __init__(self, folder: Path, dimensions: int) -> None:
        self._folder = folder
        self._dimensions = dimensions
        self._forget()

    def find_missing(self, keys: Collection[Key]) -> list[Key]:
        """Returns the versions whose vectors are not in the file. If most vectors in the file belong to other versions,
        these are removed: `keys` are all versions that anybody may still search.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._read_journal()
        missing = [key for key in keys if key not in self._ordinals]
        dead = self._rows - sum(int(self._counts[self._ordinals[key]]) for key in keys if key in self._ordinals)
        if dead > max(_FEWEST_DEAD, self._rows // 2):
            self._compact(keys)
        return missing

    def append(self, fresh: Mapping[Key, Sequence[bytes]]) -> None:
        """Adds the vectors of versions. Each vector is little-endian 16-bit floats of length 1."""
        with lock_writers(self._folder):
            self._read_journal()
            mine = {key: vectors for key, vectors in fresh.items() if key not in self._ordinals}
            files = self._name_files(self._generation)
            with files.vectors.open("ab") as file:
                # Behind the last row of the journal may be what a killed process has left.
                file.truncate(self._rows * self._dimensions * 4)
                for vectors in mine.values():
                    file.write(np.frombuffer(b"".join(vectors), "<f2").astype("<f4").tobytes())
                file.flush()
                os.fdatasync(file.fileno())
            with files.journal.open("ab") as file:
                file.truncate(self._journal_bytes)
                for (document, version), vectors in mine.items():
                    file.write(f"{document} {version} {len(vectors)}\n".encode())
                file.flush()
                os.fdatasync(file.fileno())
            self._read_journal()

    def select(self, keys: Collection[Key]) -> Selection:
        """Selects those of the versions whose vectors are in the file."""
        is_wanted = np.zeros(len(self._keys), bool)
        is_wanted[[self._ordinals[key] for key in keys if key in self._ordinals]] = True
        return Selection(int(self._counts[is_wanted].sum()), is_wanted, self._contents)

    def has(self, selection: Selection) -> bool:
        """Returns whether a selection is still valid: the file has not been rewritten since it was made."""
        return selection.contents is self._contents

    def search(self, query: bytes, selection: Selection, limit: int) -> list[Neighbour]:
        """Returns the selected vectors that are nearest to the query, nearest first."""
        matrix, selected_count, eligible = self._matrix, selection.rows, selection.is_wanted
        vector = np.frombuffer(query, "<f2").astype("f4")
        if not selected_count:
            return []
        if len(eligible) < len(self._keys):
            # Other versions have been appended since.
            eligible = np.append(eligible, np.zeros(len(self._keys) - len(eligible), bool))
        if selected_count > _MOST_COMPARED:
            rows = self._choose_rows(vector, eligible, selected_count, limit)
            scores = _multiply_rows(matrix, rows, vector)
        elif selected_count <= self._rows * _MOST_GATHERED:
            rows = np.flatnonzero(eligible[self._owners])
            scores = _multiply_rows(matrix, rows, vector)
        else:
            rows = None
            scores = matrix @ vector
            if selected_count < self._rows:
                scores[~eligible[self._owners]] = -np.inf
        best = _find_largest(scores, min(limit, selected_count))
        row_numbers = best if rows is None else rows[best]
        return [self._describe(int(row), float(scores[at])) for row, at in zip(row_numbers, best, strict=True)]

    def _choose_rows(self, vector: Any, eligible: Any, selected_count: int, limit: int) -> Any:
        self._signs.follow(self._matrix)
        affordable = min(_MOST_CHOSEN, _COMPARED_TOGETHER // selected_count)
        count = min(max(_FEWEST_CHOSEN, _CHOSEN_FOR_EACH * limit, affordable), selected_count)
        return self._signs.choose(vector, count, eligible[self._owners] if selected_count < self._rows else None)

    def _describe(self, row: int, score: float) -> Neighbour:
        ordinal = int(self._owners[row])
        return Neighbour(self._keys[ordinal], row - int(self._firsts[ordinal]), score)

    def _forget(self) -> None:
        self._generation = 0
        self._vectors_inode = 0
        self._journal_bytes = 0
        self._rows = 0
        self._keys: list[Key] = []
        self._ordinals: dict[Key, int] = {}
        self._counts = np.zeros(0, np.int64)
        self._firsts = np.zeros(0, np.int64)
        self._owners = np.zeros(0, np.int32)
        self._matrix: Any = None
        self._signs = Signs(self._dimensions)
        self._contents = object()

    def _read_journal(self) -> None:
        """Reads what this or another process has added since the last time."""
        newest = max((int(path.stem) for path in self._folder.glob("*.journal")), default=0)
        if newest != self._generation:
            self._forget()
            self._generation = newest
        try:
            files = self._name_files(newest)
            if self._rows and files.vectors.stat().st_ino != self._vectors_inode:
                # The folder was deleted and made again. No new file gets the number of one that is mapped.
                self._forget()
                self._generation = newest
            with files.journal.open("rb") as file:
                file.seek(self._journal_bytes)
                text = file.read()
        except FileNotFoundError:
            self._forget()
            return
        whole = text[: text.rfind(b"\n") + 1]
        counts = []
        for line in whole.decode().splitlines():
            document, version, count = line.split(" ")
            self._ordinals[document, int(version)] = len(self._keys)
            self._keys.append((document, int(version)))
            counts.append(int(count))
        if counts:
            self._journal_bytes += len(whole)
            self._counts = np.append(self._counts, counts)
            self._firsts = np.cumsum(self._counts) - self._counts
            self._rows = int(self._counts.sum())
            self._owners = np.repeat(np.arange(len(self._keys), dtype=np.int32), self._counts)
        self._map_rows()

    def _map_rows(self) -> None:
        shape = (self._rows, self._dimensions)
        if self._matrix is None or self._matrix.shape != shape:
            files = self._name_files(self._generation)
            try:
                if not self._rows:
                    self._matrix = np.zeros(shape, "f4")
                    return
                with files.vectors.open("rb") as file:
                    self._matrix = np.memmap(file, "<f4", "r", shape=shape)
                    self._vectors_inode = os.fstat(file.fileno()).st_ino
            except (ValueError, FileNotFoundError):
                # It holds less than the journal says: made again from the rows of the database.
                files.journal.unlink(missing_ok=True)
                self._forget()
                self._matrix = np.zeros((0, self._dimensions), "f4")

    def _compact(self, keys: Collection[Key]) -> None:
        """Writes the rows that are still wanted to new files."""
        with lock_writers(self._folder):
            self._read_journal()
            matrix, kept_keys = self._matrix, [key for key in keys if key in self._ordinals]
            old, new = self._name_files(self._generation), self._name_files(self._generation + 1)
            with new.vectors.open("wb") as file:
                for key in kept_keys:
                    ordinal = self._ordinals[key]
                    first = int(self._firsts[ordinal])
                    file.write(matrix[first : first + int(self._counts[ordinal])].tobytes())
                file.flush()
                os.fdatasync(file.fileno())
            draft = new.journal.with_suffix(".draft")
            lines = [
                f"{document} {version} {self._counts[self._ordinals[document, version]]}\n"
                for document, version in kept_keys
            ]
            draft.write_text("".join(lines))
            # From here on the new generation counts; who has mapped the old one keeps it.
            draft.replace(new.journal)
            old.journal.unlink(missing_ok=True)
            old.vectors.unlink(missing_ok=True)
            self._read_journal()

    def _name_files(self, generation: int) -> _Files:
        return _Files(self._folder / f"{generation}.journal", self._folder / f"{generation}.vectors")


def _multiply_rows(matrix: Any, rows: Any, vector: Any) -> Any:
    """Returns the dot product of each of these rows with the vector."""
    # Without the wrapper of a mapped array, of which each piece would cost.
    plain = matrix.view(np.ndarray)
    scores = np.empty(len(rows), "f4")
    gathered_rows = np.empty((_GATHERED_AT_ONCE, plain.shape[1]), "f4")
    for start in range(0, len(rows), _GATHERED_AT_ONCE):
        part = rows[start : start + _GATHERED_AT_ONCE]
        piece = gathered_rows[: len(part)]
        # `clip` writes in place; the rows are all there.
        np.take(plain, part, axis=0, out=piece, mode="clip")
        np.dot(piece, vector, out=scores[start : start + len(part)])
    return scores


def _find_largest(scores: Any, count: int) -> Any:
    """Returns the positions of the largest numbers, largest first; of equal numbers, the first."""
    positions = np.argpartition(-scores, count - 1)[:count] if count < len(scores) else np.arange(len(scores))
    return positions[np.lexsort((positions, -scores[positions]))]
