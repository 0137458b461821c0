"""Search by meaning: exact in a mapped file where the rows are in SQLite, by pgvector in Postgres."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Boolean, ColumnElement, and_, any_, func, literal, literal_column, select, text, tuple_
from sqlalchemy.dialects import postgresql

from baobab.storage.database import Execute
from baobab.storage.vectors.folders import name_folder
from baobab.storage.vectors.halves import write_halfvec
from baobab.tools.core.call import Call
from baobab.tools.core.services import Services
from baobab.tools.rag.embedding import MATRICES
from baobab.tools.rag.tables import documents, vectors

_MOST_OPEN = 200
_READ_AT_ONCE = 50
_MOST_COMPARED = 20_000
"""The chunks up to which Postgres compares them one by one, which finds the nearest exactly."""


class Place(NamedTuple):
    """A chunk: its document, the version of it, and the position in that."""

    document_id: str
    version: int
    position: int


@dataclass(frozen=True, slots=True)
class Scope:
    """What a search may find: documents of a collection. ids: the only ones, if a filter has chosen some."""

    app_id: str
    collection_id: str
    conditions: tuple[ColumnElement[bool], ...]
    ids: tuple[str, ...] | None = None

    def list_conditions(self, dialect: str) -> list[ColumnElement[bool]]:
        """The conditions for rows of `documents`."""
        found = [
            documents.c.app_id == self.app_id,
            documents.c.collection_id == self.collection_id,
            documents.c.version.is_not(None),
            *self.conditions,
        ]
        if self.ids is not None:
            found.append(is_one_of(dialect, documents.c.id, self.ids))
        return found


def is_one_of(dialect: str, value: Any, ids: Sequence[str]) -> ColumnElement[bool]:
    """Whether a column has one of these values, however many they are, in one parameter of the statement."""
    if dialect == "postgresql":
        found: ColumnElement[bool] = value == any_(literal(list(ids), postgresql.ARRAY(postgresql.TEXT)))
        return found
    listed = func.json_each(json.dumps(list(ids))).table_valued("value")
    within: ColumnElement[bool] = value.in_(select(listed.c.value))
    return within


class VectorSearch:
    """The nearest vectors of one model within a scope."""

    def __init__(self, services: Services) -> None:
        self._folder = services.options.data / "vectors"
        self._files: OrderedDict[tuple[str, str, int], _OpenFile] = OrderedDict()

    async def find_nearest(self, call: Call, scope: Scope, model: str, query: bytes, limit: int) -> list[Place]:
        """Returns the nearest chunks, the nearest first. It holds no connection while it computes."""
        if call.stores.database.dialect == "postgresql":
            async with call.reading() as execute:
                return await _find_in_postgres(execute, scope, model, query, limit)
        live = select(documents.c.id, documents.c.version)
        live = live.where(*scope.list_conditions("sqlite"), documents.c.embedding_model == model)
        async with call.reading() as execute:
            keys = [(row.id, row.version) for row in await execute(live)]
        try:
            return await self._open(scope, len(query) // 2).find_nearest(call, scope, query, keys, limit)
        except FileNotFoundError:
            # The collection was deleted since its row was read, and its folder is gone.
            return []

    def close(self, app_id: str, collection_id: str) -> None:
        """Closes the files of a collection that is gone."""
        for name in [name for name in self._files if name[:2] == (app_id, collection_id)]:
            del self._files[name]

    def _open(self, scope: Scope, dimensions: int) -> "_OpenFile":
        name = (scope.app_id, scope.collection_id, dimensions)
        file = self._files.get(name)
        if file is None:
            folder = name_folder(self._folder, scope.app_id, scope.collection_id, dimensions)
            file = self._files[name] = _OpenFile(folder, dimensions)
        self._files.move_to_end(name)
        while len(self._files) > _MOST_OPEN:
            self._files.popitem(last=False)
        return file


class _OpenFile:
    def __init__(self, folder: Path, dimensions: int) -> None:
        self._folder, self._dimensions = folder, dimensions
        self._file: Any = None
        self._turn = asyncio.Lock()

    async def find_nearest(
        self, call: Call, scope: Scope, query: bytes, keys: Collection[tuple[str, int]], limit: int
    ) -> list[Place]:
        async with self._turn:
            if self._file is None:
                await MATRICES.get()
                kind = import_module("baobab.storage.vectors.vector_file").VectorFile
                self._file = kind(self._folder, self._dimensions)
            missing = await asyncio.to_thread(self._file.find_missing, keys)
            for start in range(0, len(missing), _READ_AT_ONCE):
                fresh = await _read_vectors(call, scope.app_id, missing[start : start + _READ_AT_ONCE])
                await asyncio.to_thread(self._file.append, fresh)
            found = await asyncio.to_thread(self._file.search, query, keys, limit)
        return [Place(neighbour.key[0], neighbour.key[1], neighbour.position) for neighbour in found]


async def _read_vectors(call: Call, app_id: str, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[bytes]]:
    columns = vectors.c
    query = select(columns.document_id, columns.version, columns.vector)
    query = query.where(columns.app_id == app_id, tuple_(columns.document_id, columns.version).in_(keys))
    found: dict[tuple[str, int], list[bytes]] = {}
    async with call.reading() as execute:
        for row in await execute(query.order_by(columns.document_id, columns.version, columns.position)):
            found.setdefault((row.document_id, row.version), []).append(row.vector)
    return found


async def _find_in_postgres(execute: Execute, scope: Scope, model: str, query: bytes, limit: int) -> list[Place]:
    which = (*scope.list_conditions("postgresql"), documents.c.embedding_model == model)
    count = (await execute(select(func.coalesce(func.sum(documents.c.chunk_count), 0)).where(*which))).scalar_one()
    is_exact = int(count) <= _MOST_COMPARED
    if not is_exact:
        # The index goes on until enough rows have passed the conditions.
        await execute(text("SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true)"))
        found = await _rank_in_postgres(execute, scope, which, query, limit)
        if len(found) == limit:
            return found
    # Without that index: few rows are compared one by one, and so are those of a scope that the index did not reach.
    await execute(text("SELECT set_config('enable_indexscan', 'off', true)"))
    return await _rank_in_postgres(execute, scope, which, query, limit)


async def _rank_in_postgres(
    execute: Execute, scope: Scope, which: Sequence[ColumnElement[bool]], query: bytes, limit: int
) -> list[Place]:
    dimensions = len(query) // 2
    # The expression and the number stand in the statement as they do in the index, or it would not be used.
    near = text(f"(rag_vectors.vector::halfvec({dimensions})) <=> CAST(:near AS halfvec({dimensions})) AS distance")
    has_dimensions: Any = literal_column(f"rag_vectors.dimensions = {dimensions}", Boolean)
    place = (vectors.c.document_id, vectors.c.version, vectors.c.position)
    has_version = and_(
        documents.c.app_id == vectors.c.app_id,
        documents.c.id == vectors.c.document_id,
        documents.c.version == vectors.c.version,
    )
    ranked = (
        select(*place, near.bindparams(near=write_halfvec(query)))
        .select_from(vectors.join(documents, has_version))
        .where(vectors.c.app_id == scope.app_id, vectors.c.collection_id == scope.collection_id, has_dimensions, *which)
        .order_by(text("distance"))
        .limit(limit)
    )
    rows = (await execute(ranked)).all()
    return [Place(row.document_id, row.version, row.position) for row in sorted(rows, key=lambda row: row.distance)]


async def read_vectors_of(execute: Execute, app_id: str, places: Sequence[Place]) -> dict[Place, bytes]:
    """Returns the vectors of some chunks."""
    columns = vectors.c
    key = tuple_(columns.document_id, columns.version, columns.position)
    query = select(columns.document_id, columns.version, columns.position, columns.vector)
    # SQLite finds the document by its index, and reads all there are for the pairs alone.
    of_documents = columns.document_id.in_({place.document_id for place in places})
    query = query.where(columns.app_id == app_id, of_documents, key.in_([tuple(place) for place in places]))
    return {Place(row[0], row[1], row[2]): row.vector for row in await execute(query)} if places else {}
