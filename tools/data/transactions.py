"""Runs functions on an app's rows in transactions, with the current catalogue, and translates the errors of
databases.
"""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import IntegrityError

from baobab.storage.data.store import DataStore
from baobab.storage.database import LockTimeout, StatementOutdated, StatementRefused, StatementTimeout, Unit
from baobab.storage.statements import Statements
from baobab.tools.core.call import Call
from baobab.tools.core.errors import AppMigrating, BaobabError
from baobab.tools.data.actor import Actor
from baobab.tools.data.attempts import Attempt, Attempts, read_attempt
from baobab.tools.data.broken_references import translate_reference
from baobab.tools.data.catalogue import Catalogue, Catalogues, is_frozen, read_catalogue
from baobab.tools.data.change_log import SEQUENCES, Author, ChangeLog, find_author
from baobab.tools.data.claims import add_claims
from baobab.tools.data.constraints import find_check
from baobab.tools.data.errors import (
    CheckViolation,
    ForeignKeyViolation,
    NotNullViolation,
    QueryRefused,
    QueryTimeout,
    SchemaChanging,
    TablesBusy,
    UniqueViolation,
    Violation,
)
from baobab.tools.data.expression_trees import list_names
from baobab.tools.data.row_reader import MOST_BYTES
from baobab.tools.data.rows import Rows
from baobab.tools.data.sequences import Sequences, select_last_numbers
from baobab.tools.data.serial_columns import list_sequences
from baobab.tools.data.slow_statements import Slow, SlowNotes, SlowStatements
from baobab.tools.data.usage import select_bytes, write_within_plan

T = TypeVar("T")
CHANGED = "data_changed"
"""The notice that rows changed in a table whose changes are sent to subscribers. Its subject is the app."""


async def find_catalogue(call: Call) -> Catalogue:
    return await call.services.of(Catalogues).get(call.require_app().id)


async def read_rows(
    call: Call,
    actor: Actor,
    work: Callable[[Rows, Catalogue], T],
    *,
    quick: bool = False,
    single: bool = False,
    most_bytes: int = MOST_BYTES,
    alone: bool = False,
) -> T:
    """Runs a function that reads rows, all as they are at one moment, and returns its result.

    quick, single: as in `DataStore.read`. alone: whether it has a transaction of its own, for what is read after the
    call's has ended.
    """
    try:
        return await _read_with(
            call,
            actor,
            work,
            await find_catalogue(call),
            quick=quick,
            single=single,
            most_bytes=most_bytes,
            alone=alone,
        )
    except StatementOutdated:
        # The schema has changed since the catalogue was read.
        call.services.of(Catalogues).forget(call.require_app().id)
    except LockTimeout as exc:
        raise SchemaChanging from exc
    try:
        return await _read_with(
            call,
            actor,
            work,
            await find_catalogue(call),
            quick=quick,
            single=single,
            most_bytes=most_bytes,
            alone=alone,
        )
    except (StatementOutdated, LockTimeout) as exc:
        raise SchemaChanging from exc


async def _read_with(
    call: Call,
    actor: Actor,
    work: Callable[[Rows, Catalogue], T],
    catalogue: Catalogue,
    *,
    quick: bool,
    single: bool,
    most_bytes: int,
    alone: bool,
) -> T:
    app_id, store = call.require_app().id, call.stores.data
    now = format_moment(call)
    actor = await add_claims(call.services, app_id, catalogue, actor)
    if not catalogue.version:
        # The app has no database yet. The function raises TableNotFound when it looks up its table.
        return work(Rows(_NO_STATEMENTS, store, app_id, catalogue, actor, now), catalogue)
    slow: list[Slow] = []

    def run(statements: Statements) -> T:
        rows = Rows(statements, store, app_id, catalogue, actor, now, most_bytes)
        # It may be called twice.
        slow.clear()
        rows.slow, rows.slow_seconds = slow, call.services.options.slow_seconds
        return work(rows, catalogue)

    caller = None if actor.role == "service" else (actor.role, actor.user_id)
    try:
        return await store.read(app_id, run, None if alone else call.unit, quick=quick, single=single, caller=caller)
    except StatementTimeout as exc:
        raise QueryTimeout from exc
    except StatementRefused as exc:
        raise QueryRefused from exc
    finally:
        if slow:
            call.services.of(SlowNotes).add(app_id, slow)


async def write_rows(
    call: Call,
    actor: Actor,
    work: Callable[[Rows, Catalogue], T],
    attempt: Attempt | None = None,
    *,
    inserts_into: str | None = None,
) -> T:
    """Runs a function that writes rows, in a transaction that is committed, or rolled back if it raises.

    The function's result must be JSON, because a repeated call gets the result of its first attempt. The number of the
    action becomes the call's `action_id`. attempt: by which a repeated call is recognised; left out for an
    approved call, which is recognised by its approval. inserts_into: the table whose next numbers are read along with
    the catalogue, which saves asking a server for them.
    """
    known_by = attempt or read_attempt(call, actor, None, None)

    def run_once(attempts: Attempts, write: Callable[[], tuple[T, int | None]]) -> tuple[T, int | None]:
        return write() if known_by is None else attempts.run_once(known_by, write)

    author = find_author(call, actor)
    result, action, is_followed = await _transact(call, actor, author, work, run_once, call.unit, inserts_into)
    if action is not None:
        call.action_id = str(action)
    if is_followed:
        await call.services.notices.publish(call.unit, CHANGED, call.require_app().id)
    return result


async def write_part(
    call: Call,
    actor: Actor,
    author: Author,
    work: Callable[[Rows, Catalogue], T],
    begin: Callable[[Attempts], None],
    end: Callable[[Attempts], None],
) -> T:
    """Writes one part of a long write, in a transaction of its own.

    begin, end: are called with the stored attempts in that transaction, before and after the rows are written.
    """

    def keep(attempts: Attempts, write: Callable[[], tuple[T, int | None]]) -> tuple[T, int | None]:
        begin(attempts)
        result = write()
        end(attempts)
        return result

    result, _, is_followed = await _transact(call, actor, author, work, keep, None)
    if is_followed:
        async with call.services.database.writing_unit(lock=None) as unit:
            await call.services.notices.publish(unit, CHANGED, call.require_app().id)
    return result


async def _transact(
    call: Call,
    actor: Actor,
    author: Author,
    work: Callable[[Rows, Catalogue], T],
    around: Callable[[Attempts, Callable[[], tuple[T, int | None]]], tuple[T, int | None]],
    unit: Unit | None,
    inserts_into: str | None = None,
) -> tuple[T, int | None, bool]:
    """Returns the function's result, the number of the action, and whether a subscriber may follow what changed."""
    app_id, store = call.require_app().id, call.stores.data
    now, most_bytes = format_moment(call), call.services.options.undo_bytes
    cached_catalogue = await call.services.of(Catalogues).get(app_id)
    actor = await add_claims(call.services, app_id, cached_catalogue, actor)
    if not cached_catalogue.version:
        return work(Rows(_NO_STATEMENTS, store, app_id, cached_catalogue, actor, now), cached_catalogue), None, False

    target = cached_catalogue.tables.get(inserts_into or "")
    names = [*SEQUENCES, *(list_sequences(target) if target is not None else ())]

    def run(statements: Statements) -> tuple[T, int | None, bool]:
        catalogue, bytes_before, sequences = _find_current(statements, store, app_id, cached_catalogue, names)
        log = ChangeLog(statements, store, app_id, sequences, author, now, most_bytes)
        rows = Rows(statements, store, app_id, catalogue, actor, now, log=log, sequences=sequences)
        rows.slow_seconds = call.services.options.slow_seconds

        def change() -> tuple[T, int | None]:
            result = work(rows, catalogue)
            log.write()
            if rows.slow:
                SlowStatements(statements, store, app_id).keep(rows.slow, now)
            return result, log.action

        write = partial(write_within_plan, call, statements, bytes_before, change)
        result, action = around(Attempts(statements, store, app_id, now, sequences), write)
        sequences.write()
        return result, action, any(catalogue.table(name).live_since for name in log.tables)

    try:
        return await store.write(app_id, run, unit)
    except IntegrityError as exc:
        raise translate_violation(exc, cached_catalogue) from exc
    except StatementOutdated as exc:
        raise SchemaChanging from exc
    except LockTimeout as exc:
        raise TablesBusy from exc
    except StatementTimeout as exc:
        raise QueryTimeout from exc
    except StatementRefused as exc:
        raise QueryRefused from exc


def format_moment(call: Call) -> str:
    return call.now.isoformat()


def require_thawed(statements: Statements, store: DataStore, app_id: str) -> None:
    if is_frozen(statements, store, app_id):
        raise AppMigrating


def _find_current(
    statements: Statements, store: DataStore, app_id: str, cached_catalogue: Catalogue, names: list[str]
) -> tuple[Catalogue, int, Sequences]:
    """Returns the catalogue as the transaction sees it, how many bytes the app's rows take, and the app's sequences, of
    which those with these names are read. Raises AppMigrating while the app is being moved.
    """
    table, usage = store.name_table(app_id, "_catalogue"), select_bytes(store, app_id)
    numbers, values = select_last_numbers(store, app_id, names)
    text = f"SELECT version, frozen, ({usage}), ({numbers}) FROM {table}"
    [(version, is_frozen, bytes_used, last_numbers)] = statements.rows(text, *values)
    if is_frozen:
        raise AppMigrating
    is_current = version == cached_catalogue.version
    catalogue = cached_catalogue if is_current else read_catalogue(statements, store, app_id)
    return catalogue, int(bytes_used), Sequences(statements, store, app_id, last_numbers)


def translate_violation(error: IntegrityError | sqlite3.IntegrityError, catalogue: Catalogue) -> BaobabError:
    """Translates an error of a database into one of the API.

    error: as the driver of SQLite raises it within a transaction, or as SQLAlchemy does.
    """
    cause: Any = getattr(error, "orig", error)
    diagnosis = getattr(cause, "diag", None)
    if diagnosis is not None:
        return _translate_postgres(cause.sqlstate, diagnosis, catalogue)
    text = str(cause)
    kind, _, place = text.partition(" constraint failed: ")
    if kind == "CHECK":
        name, _, constraint = place.partition(".")
        return _describe_check(catalogue, name, constraint)
    table, _, column = place.partition(", ")[0].partition(".")
    if kind == "UNIQUE":
        return _unique(table, [part.partition(".")[2] for part in place.split(", ")])
    if text.startswith("FOREIGN KEY"):
        return ForeignKeyViolation()
    if kind == "NOT NULL":
        return NotNullViolation(
            f"`{column}` of `{table}` must have a value.", details={"column": column, "table": table}
        )
    return Violation()


def _translate_postgres(state: str, diagnosis: Any, catalogue: Catalogue) -> BaobabError:
    if state == "23514":
        return _describe_check(catalogue, diagnosis.table_name or "", diagnosis.constraint_name or "")
    if state == "23505":
        # The columns stand in the detail: `Key (a, b)=(...) already exists.`
        column_list = (diagnosis.message_detail or "").partition("(")[2].partition(")")[0]
        return _unique(diagnosis.table_name or "", [name.strip().strip('"') for name in column_list.split(",")])
    if state == "23503":
        return translate_reference(diagnosis, catalogue)
    if state == "23502":
        column = diagnosis.column_name or ""
        return NotNullViolation(f"`{column}` must have a value.", details={"column": column})
    return Violation()


def _describe_check(catalogue: Catalogue, name: str, constraint: str) -> BaobabError:
    table = catalogue.tables.get(name)
    check, column = (None, None) if table is None else find_check(table, constraint)
    if check is not None:
        columns = sorted({column_name for _, column_name in list_names(check.tree)})
        return CheckViolation(
            f"The row does not fulfil the check `{check.name}` of `{name}`: {check.text[:200]}",
            details={"table": name, "check": check.name, "columns": columns, "expression": check.text},
        )
    if column is not None:
        columns = sorted({column_name for _, column_name in list_names(column.generated_tree)})
        return CheckViolation(
            f"`{column.name}` of `{name}` would be larger than a value of {column.type} can be.",
            details={"table": name, "column": column.name, "columns": columns, "expression": column.generated},
        )
    return Violation()


def _unique(table: str, columns: list[str]) -> UniqueViolation:
    column_list = ", ".join(f"`{column}`" for column in columns)
    return UniqueViolation(
        f"`{table}` has a row with this value of {column_list} already.",
        details={"constraint": f"{table}_{'_'.join(columns)}_unique", "column": columns[0], "columns": columns},
    )


class _NoStatements:
    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        raise RuntimeError("the app has no database")

    def rows_within(self, budget: Any, batch: int, text: str, *values: Any) -> list[tuple[Any, ...]]:
        raise RuntimeError("the app has no database")

    def execute_many(self, text: str, rows: Any) -> None:
        raise RuntimeError("the app has no database")

    def insert_many(self, text: str, rows: Any) -> None:
        raise RuntimeError("the app has no database")

    def become(self, identity: Any) -> None:
        raise RuntimeError("the app has no database")


_NO_STATEMENTS = _NoStatements()
