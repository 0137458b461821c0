"""The same questions find the same chunks in mapped files and in Postgres, within a tolerance that the docs state.

Rows are in SQLite or in Postgres by the backend of the run. Both are held to what numpy finds in the stored vectors, so
they are held to each other.
"""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from sqlalchemy import select

from baobab.storage.sql.tables import metadata
from baobab.tools.rag import vector_search
from tests.backends import prepare_data
from tests.clock import FixedClock
from tests.installation import open_installation
from tests.tools.rag.conftest import RagApp

ROUNDING = 0.001
"""How much a score may differ, and so how much farther than the tenth nearest a chunk may be that is found."""
LEAST_OVERLAP = 0.9
"""How many of the nearest ten the index of Postgres finds, on the average."""
TOP = 10
THINGS = ("baobab", "harbour", "violin", "glacier", "oven", "comet", "ledger", "beetle", "canal", "lantern")
DOINGS = ("stores water", "carries cargo")
PARTS = 3
FILTERS: tuple[tuple[dict[str, Any] | None, range], ...] = (
    (None, range(PARTS)),
    ({"part": {"$lt": 2}}, range(2)),
    ({"part": 2}, range(2, 3)),
)
"""Each with the documents that it lets through."""
_USED = "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_user_indexes WHERE indexrelname LIKE 'ix_rag_vectors_near_%'"
_ALTER = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I {}', current_database()); END $$"


def write_text(part: int) -> str:
    return "\n\n".join(
        f"The {thing} in house {part} {doing}, and so does the one beside the {other}."
        for thing, other in zip(THINGS, reversed(THINGS), strict=True)
        for doing in DOINGS
    )


async def read_vectors(app: RagApp) -> tuple[dict[str, int], list[tuple[str, str]], Any]:
    """The part of each document; of each chunk its document and id, and its text; and the vectors in that order."""
    documents, chunks, vectors = (metadata.tables[f"rag_{name}"].c for name in ("documents", "chunks", "vectors"))
    same = (chunks.document_id == vectors.document_id) & (chunks.position == vectors.position)
    query = select(chunks.document_id, chunks.position, chunks.text, vectors.vector)
    query = query.where(chunks.app_id == app.id, vectors.app_id == app.id, same)
    of_documents = select(documents.id, documents.metadata).where(documents.app_id == app.id)
    async with app.baobab.application.services.regions["local"].database.reading() as connection:
        rows = (await connection.execute(query)).all()
        parts = {row.id: row.metadata["part"] for row in await connection.execute(of_documents)}
    table = np.stack([np.frombuffer(row.vector, np.float16).astype(np.float32) for row in rows])
    names = [(f"{row.document_id}:{row.position}", row.text) for row in rows]
    return parts, names, table / np.linalg.norm(table, axis=1, keepdims=True)


async def measure_overlap(app: RagApp) -> float:
    """Asks for chunks by their own texts. Checks each score, and returns how many of the nearest are found."""
    parts, names, table = await read_vectors(app)
    assert len(names) == PARTS * len(THINGS) * len(DOINGS)
    overlaps = []
    for number in range(0, len(names), len(names) // 3):
        likeness = table @ table[number]
        scores = {name: float(score) for (name, _), score in zip(names, likeness, strict=True)}
        for condition, matching_parts in FILTERS:
            matching_scores = [
                score for name, score in scores.items() if parts[name.partition(":")[0]] in matching_parts
            ]
            tenth = sorted(matching_scores, reverse=True)[TOP - 1]
            result = await app.query(names[number][1], mode="vector", topK=TOP, filter=condition)
            assert len({chunk["id"] for chunk in result}) == TOP
            assert all(chunk["metadata"]["part"] in matching_parts for chunk in result)
            assert all(abs(chunk["score"] - scores[chunk["id"]]) < ROUNDING for chunk in result)
            answered_scores = [chunk["score"] for chunk in result]
            assert all(first >= second - ROUNDING for first, second in itertools.pairwise(answered_scores))
            overlaps.append(sum(scores[chunk["id"]] >= tenth - ROUNDING for chunk in result) / TOP)
    return sum(overlaps) / len(overlaps)


async def test_the_nearest_are_found_with_and_without_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, clock = tmp_path / "data", FixedClock()
    url = prepare_data(data).get("BAOBAB_DATABASE_URL")
    if url:
        # So few rows would be sorted otherwise, and the index would stay unused.
        execute(url, _ALTER.format("SET cpu_operator_cost = 1"))
    before = execute(url, _USED) if url else 0
    async with open_installation(data, clock=clock) as installation:
        app = RagApp(installation, clock, await installation.create_app())
        await app.create(chunkSize=100, chunkOverlap=0)
        for part in range(PARTS):
            await app.ingest(write_text(part), metadata={"part": part})
        assert await measure_overlap(app) == 1
        # As if there were more chunks than Postgres compares one by one.
        monkeypatch.setattr(vector_search, "_MOST_COMPARED", 0)
        assert await measure_overlap(app) >= LEAST_OVERLAP
    if url:
        assert execute(url, _USED) > before
        execute(url, _ALTER.format("RESET cpu_operator_cost"))


def execute(url: str, statement: str) -> Any:
    """What a statement answers first, if it answers anything."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row and row[0]
