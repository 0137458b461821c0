"""Vectors of texts, kept with a byte for each dimension, and with a bit for each, by which most are ruled out."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from baobab.runtime.gateway.builtin import embeddings
from baobab.runtime.gateway.builtin.threads import THREADS
from baobab.runtime.late_import import LateImport
from baobab.storage.vectors.numpy_import import import_numpy

_LONGEST = 4000
"""Characters of a text of which its vector is made."""
_COMPARED_AT_ONCE = 300
"""Vectors that are compared without a thread."""


def _import_signs() -> ModuleType:
    NUMPY.import_now()
    return import_module("baobab.storage.vectors.signs")


NUMPY = LateImport(import_numpy)
SIGNS = LateImport(_import_signs)


@dataclass(frozen=True, slots=True)
class Vector:
    """parts: a signed byte for each dimension. bits: the sign of each, packed."""

    parts: bytes
    bits: bytes


def name_embedder() -> str:
    """Returns the id of the embedder that is used. Vectors of two embedders are not compared."""
    return embeddings.list_installed()[0]


async def embed_texts(texts: Sequence[str]) -> list[Vector]:
    """Returns the vectors of some texts, made in the thread of the built-in models. Raises Unavailable while it has too
    much to do for this caller.
    """
    np = await NUMPY.get()
    vectors: list[Vector] = []
    with THREADS.reserve_place():
        for piece in embeddings.split_work([text[:_LONGEST] for text in texts]):
            vectors += await THREADS.run_work(partial(_embed, np, piece))
    return vectors


def _embed(np: Any, texts: Sequence[str]) -> list[Vector]:
    vectors = []
    for vector in embeddings.load_best().embed(texts):
        numbers = np.frombuffer(vector, dtype=np.float32)
        scaled_numbers = np.round(numbers * (127 / max(float(np.abs(numbers).max()), 1e-9))).astype(np.int8)
        vectors.append(Vector(scaled_numbers.tobytes(), np.packbits(numbers > 0).tobytes()))
    return vectors


async def compare(vector: bytes, other_vectors: Sequence[bytes]) -> list[float]:
    """Returns how close a vector is to each of the others, from -1 to 1."""
    work = partial(_compare, await NUMPY.get(), vector, other_vectors)
    return work() if len(other_vectors) <= _COMPARED_AT_ONCE else await asyncio.to_thread(work)


def _compare(np: Any, vector: bytes, other_vectors: Sequence[bytes]) -> list[float]:
    # Not as a product of matrices: for so few numbers, waking the threads of a library would take most of the time.
    first, rows = _read_numbers(np, [vector])[0], _read_numbers(np, other_vectors)
    products = np.einsum("ij,j->i", rows, first)
    squares = np.einsum("ij,ij->i", rows, rows) * np.float64(first @ first)
    closeness: list[float] = (products / np.sqrt(np.maximum(squares, 1e-9))).tolist()
    return closeness


async def group_vectors(vectors: Sequence[bytes], closeness: float) -> list[list[int]]:
    """Returns the places of vectors that are so close to each other, or to others of their group; of two at least."""
    np = await NUMPY.get()
    return await asyncio.to_thread(_group, np, vectors, closeness)


def _group(np: Any, vectors: Sequence[bytes], closeness: float) -> list[list[int]]:
    rows = _normalise(np, vectors)
    is_near = rows @ rows.T >= closeness
    groups, is_ungrouped = [], is_near.sum(axis=1) > 1
    while is_ungrouped.any():
        group = is_near[is_ungrouped.argmax()]
        while (wider := is_near[group].any(axis=0)).sum() > group.sum():
            group = wider
        groups.append([int(place) for place in np.flatnonzero(group)])
        is_ungrouped &= ~group
    return groups


def _normalise(np: Any, vectors: Sequence[bytes]) -> Any:
    numbers = _read_numbers(np, vectors)
    return numbers / np.maximum(np.linalg.norm(numbers, axis=1, keepdims=True), 1e-9)


def _read_numbers(np: Any, vectors: Sequence[bytes]) -> Any:
    """Returns the vectors as rows of floats, of which sums and products are exact: they are whole numbers."""
    return np.frombuffer(b"".join(vectors), dtype=np.int8).reshape(len(vectors), -1).astype(np.float32)
