"""Computes with vectors as numpy matrices. Import this module late, because numpy is slow to import."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np


def normalise(rows: Sequence[Any]) -> tuple[int, list[bytes]]:
    """Scales vectors to length 1; returns their number of dimensions, and each as little-endian 16-bit floats.

    rows: lists of numbers, or base64 of little-endian 32-bit floats. Raises ValueError for anything else.
    """
    try:
        matrix = np.stack([_decode(row) for row in rows])
    except TypeError as exc:
        raise ValueError("not vectors") from exc
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if matrix.ndim != 2 or not matrix.shape[1] or not np.isfinite(lengths).all():
        raise ValueError("not vectors")
    halves = (matrix / np.maximum(lengths, 1e-12)).astype("<f2")
    return matrix.shape[1], [row.tobytes() for row in halves]


def compute_scores(query: bytes, vectors: Sequence[bytes]) -> list[float]:
    """Returns the cosine similarity of each vector to the query."""
    if not vectors:
        return []
    scores: list[float] = (_widen(vectors) @ _widen([query])[0]).tolist()
    return scores


def compute_similarities(vectors: Sequence[bytes]) -> list[list[float]]:
    """Returns the cosine similarity of each pair of vectors."""
    if not vectors:
        return []
    matrix = _widen(vectors)
    rows: list[list[float]] = (matrix @ matrix.T).tolist()
    return rows


def _decode(row: Any) -> Any:
    return np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else np.asarray(row, "f4")


def _widen(vectors: Sequence[bytes]) -> Any:
    return np.frombuffer(b"".join(vectors), "<f2").reshape(len(vectors), -1).astype("f4")
