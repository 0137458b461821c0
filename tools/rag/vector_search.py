"""Search by meaning: exact in a mapped file where the rows are in SQLite, by pgvector in Postgres."""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Integer,
    String,
    Text,
    and_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
    text,
    tuple_,
)
from sqlalchemy.dialects import postgresql

from baobab.storage.sql.database import Execute
from baobab.storage.sql.tables import is_listed
from baobab.storage.vectors.folders import name_folder
from baobab.storage.vectors.halves import write_halfvec
from baobab.tools.core import Call, Services
from baobab.tools.rag.embedding import MATRICES
from baobab.tools.rag.tables import documents, vectors

_MOST_OPEN, _MOST_SELECTIONS, _MOST_KNOWN = 200, 8, 2000
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
    """The documents of a collection that a search may find.

    revision: what tells whether a copy of what the collection holds is still right.
    owner: the user whose documents they are; None for everybody's.
    ids: the only ones, if a filter has chosen some.
    """

    app_id: str
    collection_id: str
    revision: tuple[int, int]
    owner: str | None
    ids: tuple[str, ...] | None = None

    def list_conditions(self, dialect: str) -> tuple[ColumnElement[bool], ...]:
        """Returns the conditions for rows of `documents`; `list_parameters` has their values."""
        return build_conditions(dialect, is_owned=self.owner is not None, has_ids=self.ids is not None)

    def list_parameters(self) -> dict[str, Any]:
        """Returns the values for the conditions of `list_conditions`."""
        values: dict[str, Any] = {"of_app": self.app_id, "of_collection": self.collection_id}
        if self.owner is not None:
            values["of_owner"] = self.owner
        if self.ids is not None:
            values["of_ids"] = list(self.ids)
        return values


@cache
def build_conditions(dialect: str, *, is_owned: bool, has_ids: bool) -> tuple[ColumnElement[bool], ...]:
    """Returns the conditions of a scope. Statements with them are built once, because the ids are one parameter,
    however many there are.
    """
    columns = documents.c
    conditions: list[ColumnElement[bool]] = [
        columns.app_id == bindparam("of_app"),
        columns.collection_id == bindparam("of_collection"),
        columns.version.is_not(None),
    ]
    if is_owned:
        conditions.append(columns.user_id == bindparam("of_owner"))
    if has_ids:
        conditions.append(is_listed(dialect, columns.id, "of_ids"))
    return tuple(conditions)


def select_places(dialect: str) -> Any:
    """Selects the places of `list_place_parameters`, in as many parameters however many they are."""
    if dialect == "postgresql":
        columns = (
            bindparam("documents", type_=postgresql.ARRAY(postgresql.TEXT)),
            bindparam("versions", type_=postgresql.ARRAY(postgresql.INTEGER)),
            bindparam("positions", type_=postgresql.ARRAY(postgresql.INTEGER)),
        )
        names = (column("document_id", String), column("version", Integer), column("position", Integer))
        return select(*func.unnest(*columns).table_valued(*names, name="places").render_derived().c)
    places_table = func.json_each(bindparam("places", type_=Text)).table_valued("value")
    parts = [func.json_extract(places_table.c.value, literal_column(f"'$[{number}]'")) for number in range(3)]
    # The columns' own types are needed, or SQLite would not use its index.
    return select(*(cast(part, kind) for part, kind in zip(parts, (Text, Integer, Integer), strict=True)))


def list_place_parameters(dialect: str, places: Sequence[Place]) -> dict[str, Any]:
    """Returns the parameters of `select_places`."""
    if dialect == "postgresql":
        ids, versions, positions = zip(*places, strict=True)
        return {"documents": list(ids), "versions": list(versions), "positions": list(positions)}
    return {"places": json.dumps(places)}


class VectorSearch:
    """The nearest vectors of one model within a scope."""

    def __init__(self, services: Services) -> None:
        self._folder = services.options.data / "vectors"
        self._files: OrderedDict[tuple[str, str, int], _OpenFile] = OrderedDict()
        self._models: OrderedDict[tuple[str, str, str | None], tuple[tuple[int, int], list[str]]] = OrderedDict()

    async def list_models(self, call: Call, scope: Scope) -> list[str]:
        """Returns the models that made the vectors in the scope: one, except while another model makes them anew.

        Then there may be one that made none of those that a filter has chosen.
        """
        scope = replace(scope, ids=None)
        name = (scope.app_id, scope.collection_id, scope.owner)
        if name in self._models:
            revision, models = self._models[name]
            if revision == scope.revision:
                return models
        conditions = scope.list_conditions(call.stores.database.dialect)
        query = select(documents.c.embedding_model).where(*conditions).distinct()
        async with call.reading() as execute:
            models = [row.embedding_model for row in await execute(query, scope.list_parameters())]
        _keep(self._models, name, (scope.revision, models), _MOST_KNOWN)
        return models

    async def find_nearest(self, call: Call, scope: Scope, model: str, query: bytes, limit: int) -> list[Place]:
        """Returns the nearest chunks, the nearest first. It holds no connection while it computes."""
        if call.stores.database.dialect == "postgresql":
            async with call.reading() as execute:
                return await _find_in_postgres(execute, scope, model, query, limit)
        try:
            return await self._open(scope, len(query) // 2).find_nearest(call, scope, model, query, limit)
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
            file = _OpenFile(name_folder(self._folder, *name), dimensions)
        _keep(self._files, name, file, _MOST_OPEN)
        return file


class _OpenFile:
    def __init__(self, folder: Path, dimensions: int) -> None:
        self._folder, self._dimensions = folder, dimensions
        self._file: Any = None
        self._turn = asyncio.Lock()
        # The collection's contents when the file was last compared with it.
        self._revision: tuple[int, int] | None = None
        self._selections: OrderedDict[tuple[str, str | None], Any] = OrderedDict()

    async def find_nearest(self, call: Call, scope: Scope, model: str, query: bytes, limit: int) -> list[Place]:
        async with self._turn:
            if self._file is None:
                await MATRICES.get()
                kind = import_module("baobab.storage.vectors.vector_file").VectorFile
                self._file = kind(self._folder, self._dimensions)
            if self._revision != scope.revision:
                self._revision = None
                self._selections.clear()
                await self._follow(call, scope)
                self._revision = scope.revision
            selection = await self._select(call, scope, model)
            neighbours = await asyncio.to_thread(self._file.search, query, selection, limit)
        return [Place(neighbour.key[0], neighbour.key[1], neighbour.position) for neighbour in neighbours]

    async def _follow(self, call: Call, scope: Scope) -> None:
        """Adds the vectors of documents that were added to the collection since."""
        keys = await self._read_keys(call, replace(scope, owner=None, ids=None))
        missing = await asyncio.to_thread(self._file.find_missing, keys)
        for start in range(0, len(missing), _READ_AT_ONCE):
            new_vectors = await _read_vectors(call, scope.app_id, missing[start : start + _READ_AT_ONCE])
            await asyncio.to_thread(self._file.append, new_vectors)

    async def _select(self, call: Call, scope: Scope, model: str) -> Any:
        of_model = documents.c.embedding_model == model
        if scope.ids is not None:
            return await asyncio.to_thread(self._file.select, await self._read_keys(call, scope, of_model))
        name = (model, scope.owner)
        selection = self._selections.get(name)
        if selection is None or not self._file.has(selection):
            keys = await self._read_keys(call, scope, of_model)
            selection = await asyncio.to_thread(self._file.select, keys)
        _keep(self._selections, name, selection, _MOST_SELECTIONS)
        return selection

    async def _read_keys(self, call: Call, scope: Scope, *conditions: ColumnElement[bool]) -> list[tuple[str, int]]:
        """Returns the versions of documents that searches in the scope see."""
        live = select(documents.c.id, documents.c.version)
        all_conditions = (*scope.list_conditions("sqlite"), documents.c.dimensions == self._dimensions, *conditions)
        async with call.reading() as execute:
            return [(row[0], row[1]) for row in await execute(live.where(*all_conditions), scope.list_parameters())]


def _keep(cache_entries: OrderedDict[Any, Any], name: Any, value: Any, most: int) -> None:
    """Keeps a value as the latest, and forgets the oldest of too many."""
    cache_entries[name] = value
    cache_entries.move_to_end(name)
    while len(cache_entries) > most:
        cache_entries.popitem(last=False)


async def _read_vectors(call: Call, app_id: str, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], list[bytes]]:
    columns = vectors.c
    query = select(columns.document_id, columns.version, columns.vector)
    query = query.where(columns.app_id == app_id, tuple_(columns.document_id, columns.version).in_(keys))
    vectors_of: dict[tuple[str, int], list[bytes]] = {}
    async with call.reading() as execute:
        for row in await execute(query.order_by(columns.document_id, columns.version, columns.position)):
            vectors_of.setdefault((row.document_id, row.version), []).append(row.vector)
    return vectors_of


async def _find_in_postgres(execute: Execute, scope: Scope, model: str, query: bytes, limit: int) -> list[Place]:
    conditions = (*scope.list_conditions("postgresql"), documents.c.embedding_model == model)
    chunk_count = select(func.coalesce(func.sum(documents.c.chunk_count), 0)).where(*conditions)
    count = (await execute(chunk_count, scope.list_parameters())).scalar_one()
    is_exact = int(count) <= _MOST_COMPARED
    if not is_exact:
        # The index goes on until enough rows have passed the conditions.
        await execute(text("SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true)"))
        places = await _rank_in_postgres(execute, scope, conditions, query, limit)
        if len(places) == limit:
            return places
    # Without that index: few rows are compared one by one, and so are those of a scope that the index did not reach.
    await execute(text("SELECT set_config('enable_indexscan', 'off', true)"))
    return await _rank_in_postgres(execute, scope, conditions, query, limit)


async def _rank_in_postgres(
    execute: Execute, scope: Scope, conditions: Sequence[ColumnElement[bool]], query: bytes, limit: int
) -> list[Place]:
    dimensions = len(query) // 2
    # The expression and the number stand in the statement as they do in the index, or it would not be used.
    distance = text(f"(rag_vectors.vector::halfvec({dimensions})) <=> CAST(:near AS halfvec({dimensions})) AS distance")
    has_dimensions: Any = literal_column(f"rag_vectors.dimensions = {dimensions}", Boolean)
    place = (vectors.c.document_id, vectors.c.version, vectors.c.position)
    has_version = and_(
        documents.c.app_id == vectors.c.app_id,
        documents.c.id == vectors.c.document_id,
        documents.c.version == vectors.c.version,
    )
    ranking = (
        select(*place, distance.bindparams(near=write_halfvec(query)))
        .select_from(vectors.join(documents, has_version))
        .where(
            vectors.c.app_id == scope.app_id,
            vectors.c.collection_id == scope.collection_id,
            has_dimensions,
            *conditions,
        )
        .order_by(text("distance"))
        .limit(limit)
    )
    rows = (await execute(ranking, scope.list_parameters())).all()
    return [Place(row.document_id, row.version, row.position) for row in sorted(rows, key=lambda row: row.distance)]
