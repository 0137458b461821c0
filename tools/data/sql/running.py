"""Runs a statement of an app's own code for a caller: what it reads in a transaction that only reads, what it writes in
one like that of any other write.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from baobab.storage.data.row_security import SqlRole
from baobab.storage.fair_slots import FairSlots
from baobab.storage.sql.database import PrivilegeRefused
from baobab.storage.sql.statements import Statements
from baobab.tools.core import Call, Services
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import QueryTimeout, SqlInvalid, SqlNotAllowed, SqlNotOffered
from baobab.tools.data.rows.row_requests import open_table
from baobab.tools.data.rows.row_security import is_sql_guarded, raise_sql_guard
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import find_catalogue, format_moment, read_rows, write_rows
from baobab.tools.data.schema.catalogue import Catalogue, read_catalogue
from baobab.tools.data.schemas import Row, SqlAnswer
from baobab.tools.data.sql.names import Scope
from baobab.tools.data.sql.queries import QueryWriter, name_outputs
from baobab.tools.data.sql.reading import READ_SECONDS, Identify, Reader
from baobab.tools.data.sql.statements import Statement
from baobab.tools.data.sql.writing import StatementWriter

_ROLES: dict[str, SqlRole] = {"service": "sql", "user": "sql_user", "anon": "sql_anon"}
_WRITE_SECONDS = 2.0
"""How long the query of a write may run: the other writers of the app wait for it."""
_TURN_SECONDS = 15.0
_IS_GUARDED = "sql_is_guarded"


class SqlTurns:
    """The writes by statements that run at the same time in one process. They hold a connection and their app's lock
    while a query of strangers runs, so each app has one, and all together leave connections for everybody else.
    """

    def __init__(self, services: Services) -> None:
        del services
        self._slots = FairSlots(3, of_key=1, of_caller=1)

    @asynccontextmanager
    async def take(self, app_id: str, actor: Actor) -> AsyncIterator[None]:
        """Waits for a turn. Raises QueryTimeout if none comes."""
        context = self._slots.acquire_slot(app_id, (actor.role, actor.user_id))
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await context.__aenter__()
        except TimeoutError as exc:
            raise QueryTimeout("Other statements of the app that write were running.") from exc
        try:
            yield
        finally:
            await context.__aexit__(None, None, None)


async def run_query(call: Call, actor: Actor, statement: Statement, params: Sequence[Any]) -> list[Row]:
    """Returns the rows of a statement that only reads."""
    await _require_roles(call)

    def read(rows: Rows, catalogue: Catalogue) -> list[Row]:
        writer = _open_writer(call, rows, catalogue, params)
        query, outputs = writer.write_query(statement.tree, Scope())
        names = name_outputs(outputs)
        writer.values.require_all_used()
        if not catalogue.version:
            raise SqlInvalid("The app has no tables yet.", remediation="Declare one with op:schema_apply.")
        reader = _open_reader(call, rows, READ_SECONDS)
        return [dict(zip(names, values, strict=True)) for values in reader.read(writer, query, outputs)]

    try:
        return await read_rows(call, actor, read, alone=True)
    except PrivilegeRefused as exc:
        raise SqlNotAllowed("The statement reaches for something that is not the app's own.") from exc


async def run_write(call: Call, actor: Actor, statement: Statement, params: Sequence[Any]) -> SqlAnswer:
    """Makes a statement's write, and returns the rows of its RETURNING and how many rows it wrote."""
    await _require_roles(call)

    def write(rows: Rows, catalogue: Catalogue) -> SqlAnswer:
        writer = _open_writer(call, rows, catalogue, params)
        reader = _open_reader(call, rows, _WRITE_SECONDS)
        return StatementWriter(rows, catalogue, writer, reader).run(statement)

    async with call.services.of(SqlTurns).take(call.require_app().id, actor):
        return await write_rows(call, actor, write)


def _open_writer(call: Call, rows: Rows, catalogue: Catalogue, params: Sequence[Any]) -> QueryWriter:
    store = call.stores.data
    return QueryWriter(
        store,
        call.require_app().id,
        catalogue,
        rows.actor,
        format_moment(call),
        params,
        lambda name: open_table(catalogue, rows, name, "SELECT"),
        has_own_rows_by_function=store.dialect == "postgresql" and rows.actor.role != "service",
    )


def _open_reader(call: Call, rows: Rows, seconds: float) -> Reader:
    return Reader(rows.statements, call.stores.data, _find_identity(call, rows.actor), seconds)


def _find_identity(call: Call, actor: Actor) -> Identify:
    roles, app_id = call.stores.data.row_security, call.require_app().id

    def identify(seconds: float) -> tuple[str, Sequence[Any]] | None:
        if roles is None:
            return None
        role, claims = _ROLES[actor.role], json.dumps(dict(actor.claims)) if actor.claims else ""
        moment = format_moment(call)
        return roles.become_sql(app_id, role, actor.user_id, actor.user_role, moment, seconds=seconds, claims=claims)

    return identify


async def _require_roles(call: Call) -> None:
    """Makes sure that the app has its roles on Postgres, with policies for its present tables. Raises SqlNotOffered if
    the database's user may not create roles.
    """
    store, app_id = call.stores.data, call.require_app().id
    if store.dialect == "sqlite":
        return
    catalogue = await find_catalogue(call)
    if not catalogue.version or catalogue.memory.get(_IS_GUARDED):
        return
    roles = store.row_security
    if roles is None:
        raise SqlNotOffered

    def look(statements: Statements) -> bool:
        return is_sql_guarded(statements, roles, app_id, catalogue)

    def create(statements: Statements) -> int:
        current = read_catalogue(statements, store, app_id)
        if not is_sql_guarded(statements, roles, app_id, current):
            raise_sql_guard(statements, store, app_id, current, roles)
        return current.version

    if not await store.read(app_id, look, quick=True):
        try:
            version = await store.write(app_id, create)
        except PrivilegeRefused as exc:
            raise SqlNotOffered from exc
        if version != catalogue.version:
            return
    catalogue.memory[_IS_GUARDED] = True
