"""The signs of vectors, one bit for each number: a thirty-second of the size of the vectors. They preselect the rows
that are then compared exactly.

Vectors that point in the same direction differ in few signs. The nearest ten are nearly always among the thousands that
differ least.
"""

from bisect import bisect_left
from typing import Any

import numpy as np

_PACKED_AT_ONCE, _COUNTED_AT_ONCE = 16_384, 65_536
"""Numbers of rows that are small enough for the intermediate results to stay in the processor's cache."""
_WORDS_IN_A_BYTE = 3
"""The number of 64-bit words whose set bits can be counted in 8 bits."""
_FEWER = 8
"""Of so many rows, one is looked at to find out roughly which differ least."""


class Signs:
    """The signs of a matrix to which rows are added."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._words = -(-dimensions // 64)
        # The first 64 signs of all rows, then the next 64 of all: counting goes through memory from end to end.
        self._bits = np.zeros((self._words, 0), np.uint64)

    def follow(self, matrix: Any) -> None:
        """Adds the signs of new rows."""
        known_rows, plain = self._bits.shape[1], matrix.view(np.ndarray)
        if known_rows == len(plain):
            return
        bits = np.empty((self._words, len(plain)), np.uint64)
        bits[:, :known_rows] = self._bits
        for start in range(known_rows, len(plain), _PACKED_AT_ONCE):
            part = plain[start : start + _PACKED_AT_ONCE]
            bits[:, start : start + len(part)] = self._pack(part).T
        self._bits = bits

    def choose(self, vector: Any, count: int, eligible: Any = None) -> Any:
        """Returns the rows whose signs differ least from those of the vector, in ascending order: `count` rows or
        more.

        eligible: the rows that may be chosen, as booleans, of which at least that many are true; None for all rows.
        """
        different = count_different(self._bits, self._pack(vector[np.newaxis])[0])
        if eligible is not None:
            different[~eligible] = self._dimensions + 1
        return find_least(different, count, self._dimensions)

    def _pack(self, rows: Any) -> Any:
        bits = np.packbits(rows > 0, axis=1)
        padded_rows = np.zeros((len(rows), self._words * 8), np.uint8)
        padded_rows[:, : bits.shape[1]] = bits
        return padded_rows.view(np.uint64)


def count_different(bits: Any, of_vector: Any) -> Any:
    """Counts for each row in how many signs it differs from a vector.

    bits: the first 64 signs of all rows, then the next 64 of all, as 64-bit words. of_vector: its signs as such words.
    """
    words, rows = bits.shape
    different = np.empty(rows, np.uint16)
    different_bits = np.empty(_COUNTED_AT_ONCE, np.uint64)
    counts, together = np.empty((2, _COUNTED_AT_ONCE), np.uint8)
    for start in range(0, rows, _COUNTED_AT_ONCE):
        total = different[start : start + _COUNTED_AT_ONCE]
        total[:] = 0
        size = len(total)
        for first in range(0, words, _WORDS_IN_A_BYTE):
            together[:size] = 0
            for word in range(first, min(first + _WORDS_IN_A_BYTE, words)):
                np.bitwise_xor(bits[word, start : start + size], of_vector[word], out=different_bits[:size])
                np.bitwise_count(different_bits[:size], out=counts[:size])
                together[:size] += counts[:size]
            total += together[:size]
    return different


def find_least(different: Any, count: int, most: int) -> Any:
    """Returns the rows that differ least, in ascending order: `count` rows or more, if no more than `most` of their
    signs differ.
    """
    # A limit that so many of the first rows do not exceed leaves few rows to look at again.
    most = _find_bound(different[: len(different) // _FEWER], count, most)
    rows = np.flatnonzero(different <= most)
    few = different[rows]
    return rows[few <= _find_bound(few, count, most)]


def _find_bound(different: Any, count: int, most: int) -> int:
    """Returns the least number, up to `most`, that the differences of so many rows do not exceed."""
    # Nine looks at all cost less than a histogram.
    return bisect_left(range(most), count, key=lambda distance: int(np.count_nonzero(different <= distance)))
