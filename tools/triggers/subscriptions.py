"""Which events the triggers of each app wait for, and what is written down when one has happened."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json
from sqlalchemy import func, select, update

from baobab.runtime.agents.tables import runs
from baobab.runtime.json_logic.context import EvaluationContext, RuleError
from baobab.runtime.json_logic.rule import Rule
from baobab.storage.sql.database import Database, Execute, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppNotFound, RetryLater, Services, Unavailable
from baobab.tools.core.app_events import CUSTOM, ROWS_CHANGED, AppEvent, Occurrence
from baobab.tools.core.auth.directory import App
from baobab.tools.core.jobs import Event
from baobab.tools.triggers.functions import fits_function
from baobab.tools.triggers.tables import FREEZES, PENDING, deliveries, positions, triggers_table

NOTICE = "triggers"
"""The notice that the triggers of an app changed. Its subject is the app."""
CUSTOM_TYPE = "app.custom"
"""The type under which an app's own events are emitted."""
DELIVER = "triggers_deliver"
MOST_DEPTH = 5
"""How many triggers may lie before an event, where one has caused the next."""
MOST_WAITING = 5000
"""The most deliveries of an app that wait. While there are so many, further events wait where they were written."""
MOST_BYTES = 64 * 1024
"""The most bytes of an event as receivers get it."""
LOOP = (
    f"{MOST_DEPTH} triggers lie before this event, each of which caused the next: that looks like a loop, so nothing "
    "was started. Narrow the filters of these triggers so that none starts what causes its own event."
)
_FULL_SECONDS, _MOVING_SECONDS = 5.0, 5.0
_MOST_CACHED = 20_000
_LOST = "{} changes of rows were never seen: the log of changes had grown beyond its bound before they could be taken."

_triggers, _deliveries, _positions = triggers_table.c, deliveries.c, positions.c


class TriggerSubscriptions:
    """Implements the port of tools/core/app_events.py. What each app waits for is cached until a notice comes.

    events: what toolsets declare, by name.
    """

    def __init__(self, events: Mapping[str, AppEvent]) -> None:
        self.events = events
        self._types = {event.of for event in events.values()} | {CUSTOM_TYPE, ROWS_CHANGED}
        self._awaited: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self._changes = 0
        self._services: Services | None = None

    def bind(self, services: Services) -> None:
        """Attaches the services. Before that, nobody waits for anything."""
        self._services = services
        services.notices.subscribe(NOTICE, self._forget)

    async def waits_for(self, app_id: str, type_: str, unit: Unit | None = None, *, about: str | None = None) -> bool:
        services = self._services
        if type_ not in self._types or services is None:
            return False
        prefixes_by_type = self._awaited.get(app_id)
        if prefixes_by_type is None:
            try:
                prefixes_by_type = await self._look_up(services, app_id, unit)
            except (AppNotFound, Unavailable):
                prefixes_by_type = None
        # Where it cannot be known now, the job that takes the event finds out.
        return prefixes_by_type is None or _is_awaited(prefixes_by_type, type_, about)

    def may_wait_for(self, app_id: str, type_: str, *, about: str | None = None) -> bool:
        if type_ not in self._types or self._services is None:
            return False
        prefixes_by_type = self._awaited.get(app_id)
        return prefixes_by_type is None or _is_awaited(prefixes_by_type, type_, about)

    async def _look_up(
        self, services: Services, app_id: str, unit: Unit | None
    ) -> Mapping[str, tuple[str, ...]] | None:
        """Reads for what the app waits. Whoever holds a connection must not wait for another one: None then."""
        app = services.directory.cached_app(app_id) if unit is not None else await services.directory.app(app_id)
        if app is None:
            return None
        database = services.stores_of(app.region).database
        if unit is None:
            async with database.reading() as connection:
                return await self._load(connection.execute, app_id)
        return await self._load(unit.execute, app_id) if unit.database is database else None

    async def list_positions(self) -> Mapping[str, int]:
        numbers: dict[str, int] = {}
        waits_for_rows = select(_triggers.app_id).where(_triggers.table_name.is_not(None), _triggers.status == "active")
        query = select(_positions.app_id, _positions.change).where(_positions.app_id.in_(waits_for_rows))
        for database in _list_databases(self._open_services):
            async with database.reading() as connection:
                numbers |= {row.app_id: row.change for row in await connection.execute(query)}
        return numbers

    async def find_position(self, app: App) -> int | None:
        if not await self.waits_for(app.id, ROWS_CHANGED):
            return None
        async with self._open_services.stores_of(app.region).database.reading() as connection:
            query = select(_positions.change).where(_positions.app_id == app.id)
            return (await connection.execute(query)).scalar()

    async def take(
        self, app: App, occurrences: Sequence[Occurrence], *, position: tuple[int, int] | None = None, lost: int = 0
    ) -> None:
        services = self._open_services
        database = services.stores_of(app.region).database
        async with database.reading() as connection:
            rows = await self._find_triggers(connection.execute, app.id, occurrences)
            if rows:
                await _require_room(connection.execute, app.id)
            causes = await _find_causes(connection.execute, app.id, occurrences) if rows else {}
        # Rules of the app's own run outside the event loop.
        fitting = await asyncio.to_thread(self._match, rows, occurrences) if rows else []
        async with database.writing_unit(lock=app.id) as unit:
            if await FREEZES.is_frozen(unit.execute, app.id):
                raise RetryLater(_MOVING_SECONDS, "the app is being moved")
            if position is not None:
                step = update(positions).where(_positions.app_id == app.id, _positions.change == position[0])
                if (await unit.execute(step.values(change=position[1]))).rowcount != 1:
                    # Another job has taken these changes.
                    return
            if lost:
                of_rows = (_triggers.app_id == app.id, _triggers.table_name.is_not(None))
                await unit.execute(update(triggers_table).where(*of_rows).values(remark=_LOST.format(lost)))
            for trigger, occurrence, problem in fitting:
                depth, is_tainted = causes.get(occurrence.run_id or "", (0, False))
                cause = (max(depth, occurrence.depth), is_tainted or occurrence.is_outside)
                await write_delivery(unit, services, app, trigger, occurrence, cause, problem)

    def read_event(self, event: Event) -> list[Occurrence]:
        """Returns what an event that was emitted is for triggers: nothing, or one or more."""
        origin = event.origin or {"run_id": None, "outside": True}
        run_id, is_outside, depth = origin.get("run_id"), bool(origin.get("outside")), origin.get("depth", 0)
        if event.type == CUSTOM_TYPE:
            name, event_id = CUSTOM + event.data["name"], event.data.get("id") or event.id
            subject = str(event.data.get("subject") or name)
            data = event.data["data"]
            return [
                Occurrence(event_id, name, event.at, subject, data, run_id=run_id, is_outside=is_outside, depth=depth)
            ]
        return [
            Occurrence(
                event.id,
                kind.name,
                event.at,
                f"{kind.name.partition('.')[0]}:{_read_path(event.data, kind.subject)}",
                event.data,
                run_id=run_id,
                is_outside=is_outside,
                depth=depth,
            )
            for kind in self.events.values()
            if kind.of == event.type and kind.applies(event.data)
        ]

    def list_types(self, name: str) -> set[str]:
        """Returns the types under which an event is emitted."""
        if name.startswith(CUSTOM):
            return {CUSTOM_TYPE}
        kind = self.events.get(name)
        return set() if kind is None else {kind.of}

    @property
    def _open_services(self) -> Services:
        if self._services is None:
            raise RuntimeError("the triggers have no services yet")
        return self._services

    async def _load(self, execute: Execute, app_id: str) -> Mapping[str, tuple[str, ...]]:
        """Returns the types for which the app waits, each with the beginnings of what its events are about."""
        changes = self._changes
        is_active = (_triggers.app_id == app_id, _triggers.status == "active")
        rows = await execute(select(_triggers.event, _triggers.prefix).where(*is_active).distinct())
        prefixes_by_type: dict[str, tuple[str, ...]] = {}
        for row in rows:
            for type_ in self.list_types(row.event):
                prefixes_by_type[type_] = (*prefixes_by_type.get(type_, ()), row.prefix or "")
        if changes == self._changes:
            # Otherwise a trigger may have changed while this was read.
            while len(self._awaited) >= _MOST_CACHED:
                del self._awaited[next(iter(self._awaited))]
            self._awaited[app_id] = prefixes_by_type
        return prefixes_by_type

    def _match(
        self, rows: Sequence[Any], occurrences: Sequence[Occurrence]
    ) -> list[tuple[Any, Occurrence, str | None]]:
        matches: list[tuple[Any, Occurrence, str | None]] = []
        for occurrence in occurrences:
            for row in rows:
                if row.event != occurrence.name or not _is_later(row, occurrence):
                    continue
                if row.table_name is not None and row.table_name != occurrence.data.get("table"):
                    continue
                if row.prefix is not None and not self._find_about(occurrence).startswith(row.prefix):
                    continue
                if not fits_function(row.action, occurrence.data):
                    continue
                event = describe_event(row.app_id, occurrence, occurrence.sequence)
                fits, problem = find_misfit(row.filter, {"event": event})
                if fits or problem:
                    matches.append((row, occurrence, problem))
        return matches

    def _find_about(self, occurrence: Occurrence) -> str:
        kind = self.events.get(occurrence.name)
        return "" if kind is None else _read_path(occurrence.data, kind.subject)

    def _forget(self, app_id: str) -> None:
        self._changes += 1
        self._awaited.pop(app_id, None)

    async def _find_triggers(self, execute: Execute, app_id: str, occurrences: Sequence[Occurrence]) -> list[Any]:
        names = {occurrence.name for occurrence in occurrences}
        conditions = (_triggers.app_id == app_id, _triggers.status == "active", _triggers.event.in_(sorted(names)))
        return list((await execute(select(triggers_table).where(*conditions))).all()) if names else []


async def write_delivery(
    unit: Unit,
    services: Services,
    app: App,
    trigger: Any,
    occurrence: Occurrence,
    cause: tuple[int, bool],
    problem: str | None = None,
    *,
    left_out: str | None = None,
) -> str | None:
    """Writes what a trigger is to deliver, with its job. Returns the delivery's id; None if there was one already.

    cause: how many triggers lie before the event, and whether it comes from outside. problem: why it fails at once.
    left_out: why it is not made at all.
    """
    depth, is_tainted = cause
    sequence = occurrence.sequence
    if sequence is None:
        next_number = update(positions).where(_positions.app_id == app.id).values(sequence=_positions.sequence + 1)
        sequence = (await unit.execute(next_number.returning(_positions.sequence))).scalar_one()
    status, error = "pending", None
    if problem is not None:
        status, error = "failed", problem
    elif left_out is not None or depth >= MOST_DEPTH:
        status, error = "skipped", left_out or LOOP
    now = services.clock.now()
    row = {
        "app_id": app.id,
        "id": services.ids.uuid_at(now),
        "trigger_id": trigger.id,
        "event_id": occurrence.id,
        "event": occurrence.name,
        "subject": occurrence.subject[:400],
        "sequence": sequence,
        "payload": build_payload(app.id, occurrence, sequence),
        "depth": depth,
        "tainted": is_tainted,
        "status": status,
        "attempts": 0,
        "rounds": 0,
        "error": error,
        "created_at": now,
        "next_attempt_at": now if status == "pending" else None,
    }
    insertion = build_upsert(unit.database.dialect, deliveries).values(row).on_conflict_do_nothing()
    if not (await unit.execute(insertion)).rowcount:
        return None
    if status == "pending":
        await enqueue_delivery(unit, services, app, row["id"], 0)
    return str(row["id"])


async def enqueue_delivery(unit: Unit, services: Services, app: App, delivery_id: str, number: int | str) -> None:
    """Enqueues the job of a delivery. number: tells apart the jobs of one delivery."""
    arguments, job_id = {"app_id": app.id, "delivery_id": delivery_id}, f"{name_jobs(app.id)}{delivery_id}:{number}"
    await services.jobs.enqueue(unit, DELIVER, arguments, job_id=job_id, tenant=app.organisation_id)


def name_jobs(app_id: str) -> str:
    """Returns the beginning of the ids of the jobs that make deliveries of an app."""
    return f"{DELIVER}:{app_id}:"


def describe_event(app_id: str, occurrence: Occurrence, sequence: int | None) -> dict[str, Any]:
    """Returns the whole of an event. sequence: None where it has no number yet, as in a filter."""
    return {
        "id": occurrence.id,
        "type": occurrence.name,
        "timestamp": occurrence.at.isoformat(),
        "app_id": app_id,
        "subject": occurrence.subject,
        "sequence": sequence,
        "data": dict(occurrence.data),
    }


def build_payload(app_id: str, occurrence: Occurrence, sequence: int) -> dict[str, Any]:
    """Returns an event as receivers and templates see it. What makes it too long is left out, and named."""
    payload = describe_event(app_id, occurrence, sequence)
    if len(to_json(payload)) > MOST_BYTES:
        data, left_out = payload["data"], []
        for name in sorted(data, key=lambda each: -len(to_json(data[each]))):
            data[name] = None
            left_out.append(name)
            if len(to_json(payload)) <= MOST_BYTES:
                break
        payload["left_out"] = left_out
    return payload


def find_misfit(rule: Any, values: Mapping[str, Any]) -> tuple[bool, str | None]:
    """Returns whether a filter fits an event, and why it cannot be told, if it cannot."""
    if rule is None:
        return True, None
    try:
        return Rule(rule, ("event",)).is_met(EvaluationContext(values)), None
    except RuleError as exc:
        return False, f"The filter cannot be evaluated: {exc}."


def _is_awaited(prefixes_by_type: Mapping[str, tuple[str, ...]], type_: str, about: str | None) -> bool:
    prefixes = prefixes_by_type.get(type_)
    return prefixes is not None and (about is None or about.startswith(prefixes))


def _is_later(row: Any, occurrence: Occurrence) -> bool:
    if row.table_name is not None:
        return bool((occurrence.sequence or 0) > row.since_change)
    return bool(occurrence.at >= row.since)


async def _require_room(execute: Execute, app_id: str) -> None:
    query = select(func.count()).where(_deliveries.app_id == app_id, PENDING)
    if (await execute(query)).scalar_one() >= MOST_WAITING:
        raise RetryLater(_FULL_SECONDS, f"{MOST_WAITING} deliveries of the app wait already")


async def _find_causes(execute: Execute, app_id: str, occurrences: Sequence[Occurrence]) -> dict[str, tuple[int, bool]]:
    """Returns of each run that caused an event how many triggers lie before it, and whether it has read text from
    outside. A run that is gone may have.
    """
    run_ids = {occurrence.run_id for occurrence in occurrences if occurrence.run_id is not None}
    if not run_ids:
        return {}
    query = select(runs.c.id, runs.c.tainted, runs.c.caller).where(runs.c.app_id == app_id, runs.c.id.in_(run_ids))
    causes = {row.id: (_read_depth(row.caller), bool(row.tainted)) for row in await execute(query)}
    return {run_id: causes.get(run_id, (0, True)) for run_id in run_ids}


def _read_depth(caller: Mapping[str, Any]) -> int:
    return int((caller.get("trigger") or {}).get("depth", 0))


def _read_path(data: Mapping[str, Any], path: str) -> str:
    value: Any = data
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return str(value)


def _list_databases(services: Services) -> list[Database]:
    return list(dict.fromkeys(stores.database for stores in services.regions.values()))


async def create_position(unit: Unit, app_id: str, change: int) -> None:
    """Begins to count for an app. change: the number of the last change of rows."""
    row = {"app_id": app_id, "change": change, "sequence": 0}
    await unit.execute(build_upsert(unit.database.dialect, positions).values(row).on_conflict_do_nothing())
