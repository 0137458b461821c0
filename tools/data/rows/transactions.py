"""Runs functions on an app's rows in transactions, with the current catalogue."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import IntegrityError

from baobab.storage.data.store import DataStore
from baobab.storage.sql.database import LockTimeout, StatementOutdated, StatementRefused, StatementTimeout, Unit
from baobab.storage.sql.statements import Statements
from baobab.tools.core import AppMigrating, Call, EndUser
from baobab.tools.core.app_events import ROWS_CHANGED
from baobab.tools.data.actor import Actor
from baobab.tools.data.advice.slow_statements import Slow, SlowNotes, SlowStatements
from baobab.tools.data.errors import (
    QueryRefused,
    QueryTimeout,
    SchemaChanging,
    TablesBusy,
)
from baobab.tools.data.history.change_log import SEQUENCES, Author, ChangeLog, find_author
from baobab.tools.data.history.sequences import Sequences, select_last_numbers
from baobab.tools.data.history.usage import require_within_plan, select_bytes
from baobab.tools.data.rows.attempts import (
    Attempt,
    Attempts,
    Rehearsal,
    Rehearsed,
    Repeats,
    RepeatsOf,
    read_attempt,
)
from baobab.tools.data.rows.claims import add_claims
from baobab.tools.data.rows.row_reader import MOST_BYTES
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.serial_columns import list_sequences
from baobab.tools.data.rows.violations import translate_violation
from baobab.tools.data.schema.catalogue import Catalogue, Catalogues, is_frozen, read_catalogue

T = TypeVar("T")
CHANGED = "data_changed"
"""The notice that rows changed in a table whose changes are sent to subscribers. Its subject is the app."""


TELL = "data_tell"
"""The job that tells triggers what changed."""


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

    quick, single: as in `DataStore.read`. alone: read in a new transaction, for example after the call's was
    committed.
    """
    read = partial(_read_with, call, actor, work, quick=quick, single=single, most_bytes=most_bytes, alone=alone)
    try:
        try:
            return await read(await find_catalogue(call))
        except StatementOutdated:
            # The schema has changed since the catalogue was read.
            call.services.of(Catalogues).forget(call.require_app().id)
        return await read(await find_catalogue(call))
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
    actor = await _look_up(call, catalogue, actor)
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

    In the preview of a call it is always rolled back, and nobody learns of it: what it raises and what it returns are
    what the call would. The function's result must be JSON, because a repeated call gets the result of its first
    attempt. The number of the action becomes the call's `action_id`. attempt: by which a repeated call is recognised;
    left out for an approved call, which is recognised by its approval. inserts_into: the table whose next numbers are
    read along with the catalogue, which saves asking a server for them.
    """
    known_by = attempt or read_attempt(call, actor, None, None)
    author = find_author(call, actor)
    if call.is_preview:
        return await _rehearse(call, actor, author, work, Rehearsal(known_by), inserts_into)
    result, action, is_followed = await _transact(
        call, actor, author, work, RepeatsOf(known_by), call.unit, inserts_into
    )
    if action is not None:
        call.action_id = str(action)
        await _tell_triggers(call, call.unit, action)
    if is_followed:
        await call.services.notices.publish(call.unit, CHANGED, call.require_app().id)
    return result


async def _rehearse(
    call: Call,
    actor: Actor,
    author: Author,
    work: Callable[[Rows, Catalogue], T],
    rehearsal: Rehearsal,
    inserts_into: str | None,
) -> T:
    """Runs a write in a transaction of its own, rolls it back, and returns its result."""
    if not call.unit.is_untouched:
        # Whoever holds a connection must not wait for another. The call has only read so far.
        await call.unit.commit()
    try:
        return (await _transact(call, actor, author, work, rehearsal, None, inserts_into))[0]
    except Rehearsed as rehearsed:
        result: T = rehearsed.result
        return result


async def write_part(
    call: Call, actor: Actor, author: Author, work: Callable[[Rows, Catalogue], T], repeats: Repeats
) -> T:
    """Writes one part of a long write, in a transaction of its own."""
    result, action, is_followed = await _transact(call, actor, author, work, repeats, None)
    is_awaited = action is not None and await call.services.subscriptions.waits_for(call.require_app().id, ROWS_CHANGED)
    if is_followed or is_awaited:
        async with call.services.database.writing_unit(lock=None) as unit:
            if is_followed:
                await call.services.notices.publish(unit, CHANGED, call.require_app().id)
            if action is not None:
                await _tell_triggers(call, unit, action)
    return result


async def _tell_triggers(call: Call, unit: Unit, action: int) -> None:
    """Enqueues the job that tells the app's triggers what an action changed, if any waits for rows. Where the rows are
    in another database and the process ends before the commit here, `data_follow` finds what was not told.
    """
    app = call.require_app()
    if await call.services.subscriptions.waits_for(app.id, ROWS_CHANGED, unit):
        arguments, job_id = {"app_id": app.id}, f"{TELL}:{app.id}:{action}"
        await call.services.jobs.enqueue(unit, TELL, arguments, job_id=job_id, tenant=app.organisation_id)


async def _transact(
    call: Call,
    actor: Actor,
    author: Author,
    work: Callable[[Rows, Catalogue], T],
    repeats: Repeats,
    unit: Unit | None,
    inserts_into: str | None = None,
) -> tuple[T, int | None, bool]:
    """Returns the function's result, the number of the action, and whether a subscriber may follow what changed."""
    app_id, store = call.require_app().id, call.stores.data
    now, most_bytes = format_moment(call), call.services.options.undo_bytes
    cached_catalogue = await call.services.of(Catalogues).get(app_id)
    actor = await _look_up(call, cached_catalogue, actor)
    if not cached_catalogue.version:
        return work(Rows(_NO_STATEMENTS, store, app_id, cached_catalogue, actor, now), cached_catalogue), None, False

    target = cached_catalogue.tables.get(inserts_into or "")
    names = [*SEQUENCES, *(list_sequences(target) if target is not None else ())]

    def run(statements: Statements) -> tuple[T, int | None, bool]:
        catalogue, bytes_before, sequences = _find_current(statements, store, app_id, cached_catalogue, names)
        attempts = Attempts(statements, store, app_id, now, sequences)
        earlier = repeats.find(attempts)
        if earlier is not None:
            return *earlier, False
        log = ChangeLog(statements, store, app_id, sequences, author, now, most_bytes)
        rows = Rows(statements, store, app_id, catalogue, actor, now, log=log, sequences=sequences)
        rows.slow_seconds = call.services.options.slow_seconds
        result = work(rows, catalogue)
        log.write()
        if call.is_preview:
            call.is_undoable = log.is_undoable and call.is_undoable is not False
        if rows.slow:
            SlowStatements(statements, store, app_id).keep(rows.slow, now)
        require_within_plan(call, statements, bytes_before)
        repeats.keep(attempts, result, log.action)
        sequences.write()
        return result, log.action, any(catalogue.table(name).live_since for name in log.tables)

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


async def _look_up(call: Call, catalogue: Catalogue, actor: Actor) -> Actor:
    """Returns an actor with role and claims. Warns whoever acts as a user whom the app does not have."""
    known_actor = await add_claims(call.services, call.require_app().id, catalogue, actor)
    if known_actor.is_unknown and not isinstance(call.caller, EndUser):
        call.warn(f"The app has no user {actor.user_id}: this is what a user with that id would get.")
    return known_actor


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

    def confine(self, confinement: Any) -> Any:
        raise RuntimeError("the app has no database")


_NO_STATEMENTS = _NoStatements()
