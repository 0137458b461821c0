"""The signs of vectors, one bit for each number: a thirty-second of their bytes, by which the nearest are chosen before
they are compared exactly.

Vectors that point the same way differ in few signs. Among the thousands that differ least are nearly always the nearest
ten.
"""

from typing import Any

import numpy as np

_ROWS_AT_ONCE = 16_384
"""Few enough that what is computed of them stays in the processor's cache."""


class Signs:
    """The signs of the rows of a matrix to which rows are added."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._words = -(-dimensions // 64)
        self._bits = np.zeros((0, self._words), np.uint64)

    def follow(self, matrix: Any) -> None:
        """Adds the signs of the rows that are new."""
        known, plain = len(self._bits), matrix.view(np.ndarray)
        if known == len(plain):
            return
        bits = np.empty((len(plain), self._words), np.uint64)
        bits[:known] = self._bits
        for start in range(known, len(plain), _ROWS_AT_ONCE):
            part = plain[start : start + _ROWS_AT_ONCE]
            bits[start : start + len(part)] = self._pack(part)
        self._bits = bits

    def choose(self, vector: Any, count: int, wanted: Any = None) -> Any:
        """Returns the rows whose signs differ least from the vector's, at least so many, in their order.

        wanted: which rows may be chosen, as booleans; None for all. At least so many of them are.
        """
        different = self._count_different(self._pack(vector[np.newaxis])[0])
        if wanted is not None:
            different[~wanted] = self._dimensions + 1
        most = int(np.searchsorted(np.cumsum(np.bincount(different)), count))
        return np.flatnonzero(different <= most)

    def _count_different(self, of_vector: Any) -> Any:
        different = np.empty(len(self._bits), np.uint16)
        mixed = np.empty((_ROWS_AT_ONCE, self._words), np.uint64)
        counts = np.empty((_ROWS_AT_ONCE, self._words), np.uint8)
        for start in range(0, len(self._bits), _ROWS_AT_ONCE):
            part = self._bits[start : start + _ROWS_AT_ONCE]
            size = len(part)
            np.bitwise_xor(part, of_vector, out=mixed[:size])
            np.bitwise_count(mixed[:size], out=counts[:size])
            # Column by column: a sum along the short axis takes several times as long.
            total = different[start : start + size]
            total[:] = counts[:size, 0]
            for word in range(1, self._words):
                total += counts[:size, word]
        return different

    def _pack(self, rows: Any) -> Any:
        bits = np.packbits(rows > 0, axis=1)
        padded = np.zeros((len(rows), self._words * 8), np.uint8)
        padded[:, : bits.shape[1]] = bits
        return padded.view(np.uint64)
