"""Retrieval: search by meaning in a mapped file beside sqlite-vec, and whole searches, ingest and quality."""

from collections.abc import Iterator
from typing import Any

from tests.bench import rag_searches, rag_vectors


def run() -> dict[str, Any]:
    return {"vectors": rag_vectors.run(), "searches": rag_searches.run()}


def report(figures: dict[str, Any]) -> Iterator[str]:
    """Yields the lines of the report."""
    yield from rag_vectors.report(figures["vectors"])
    yield from rag_searches.report(figures["searches"])
