"""The jobs of triggers: they take what has happened, make deliveries, and start schedules."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, exists, select, update

from baobab.runtime.jobs.job_tables import events, jobs
from baobab.storage.sql.database import Database, Unit
from baobab.tools.core import AppNotFound, Job, RateLimited, RetryLater, Services
from baobab.tools.core.app_events import HOUR, Occurrence
from baobab.tools.core.auth.directory import App
from baobab.tools.core.auth.tables import accounts
from baobab.tools.core.job import LEFT_UNDONE
from baobab.tools.core.jobs import SUBSCRIBED, Event
from baobab.tools.core.limits.rate_limits import resolve_answer
from baobab.tools.core.mail import Mail
from baobab.tools.triggers.actions import MakerGone, send_webhook, start_agent
from baobab.tools.triggers.functions import OVERLAPS, start_function
from baobab.tools.triggers.schedules import find_tick, parse_schedule
from baobab.tools.triggers.subscriptions import (
    DELIVER,
    NOTICE,
    TriggerSubscriptions,
    enqueue_delivery,
    name_jobs,
    write_delivery,
)
from baobab.tools.triggers.tables import DUE, FREEZES, PENDING, deliveries, triggers_table
from baobab.tools.triggers.toolset import triggers

MOST_A_MINUTE = 600
"""How many deliveries an app makes in a minute; others wait."""
MOST_AT_ONCE, _WINDOW_SECONDS = 200, 20
"""They are spread over the minute, so that other apps need not wait for all of them."""
TELL_AFTER = 5
"""After so many failures in a row, the owner is told."""
_MOVING_SECONDS, _PAUSED_SECONDS, _LEAST_PAUSE_SECONDS = 5.0, 60.0, 5.0
_KEPT, _LATE = timedelta(days=30), timedelta(minutes=2)
_ROUND = 500
_triggers, _deliveries = triggers_table.c, deliveries.c


def subscriptions_of(services: Services) -> TriggerSubscriptions:
    subscriptions = services.subscriptions
    assert isinstance(subscriptions, TriggerSubscriptions)
    return subscriptions


@triggers.job(on=SUBSCRIBED, attempts=1000, drop=True)
async def triggers_take(job: Job, event: Event) -> None:
    """Take an event for which a trigger waits."""
    try:
        app = await job.services.directory.app(event.app_id)
    except AppNotFound:
        return
    subscriptions = subscriptions_of(job.services)
    # It may have been told by a process that did not know for what the app waits.
    if await subscriptions.waits_for(app.id, event.type):
        await subscriptions.take(app, subscriptions.read_event(event))


@triggers.job(attempts=1000, drop=True)
async def triggers_catch_up(job: Job, app_id: str, trigger_id: str) -> None:
    """Take what was emitted while not all processes knew of a new trigger."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    subscriptions = subscriptions_of(services)
    database = services.stores_of(app.region).database
    async with database.reading() as connection:
        query = select(triggers_table).where(_triggers.app_id == app_id, _triggers.id == trigger_id)
        trigger: Any = (await connection.execute(query)).first()
    if trigger is None or trigger.status != "active":
        return
    types = subscriptions.list_types(trigger.event)
    is_new = (events.c.at >= trigger.since, events.c.app_id == app_id, events.c.type.in_(sorted(types)))
    for place in dict.fromkeys((services.database, database)):
        async with place.reading() as connection:
            rows = (await connection.execute(select(events).where(*is_new).order_by(events.c.at))).all()
        for row in rows:
            event = Event(row.id, row.type, row.at, row.app_id, row.data, row.origin)
            await subscriptions.take(app, subscriptions.read_event(event))


async def _drop_deliveries(services: Services, database: Database, jobs_dropped: Sequence[Mapping[str, Any]]) -> None:
    del services
    values = {"status": "skipped", "error": LEFT_UNDONE, "next_attempt_at": None}
    async with database.writing(lock=None) as connection:
        for each in jobs_dropped:
            is_one = (_deliveries.app_id == each["app_id"], _deliveries.id == each["delivery_id"], PENDING)
            await connection.execute(update(deliveries).where(*is_one).values(**values))


@triggers.job(attempts=1000, drop=_drop_deliveries)
async def triggers_deliver(job: Job, app_id: str, delivery_id: str) -> None:
    """Start what a trigger starts, for one event."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    database = services.stores_of(app.region).database
    async with database.reading() as connection:
        of_delivery = (_deliveries.app_id == app_id, _deliveries.id == delivery_id)
        delivery: Any = (await connection.execute(select(deliveries).where(*of_delivery))).first()
        if delivery is None or delivery.status != "pending":
            return
        of_trigger = (_triggers.app_id == app_id, _triggers.id == delivery.trigger_id)
        trigger: Any = (await connection.execute(select(triggers_table).where(*of_trigger))).first()
        if trigger is None:
            return
        if await FREEZES.is_frozen(connection.execute, app_id):
            raise RetryLater(_MOVING_SECONDS, "the app is being moved")
    if trigger.status == "paused":
        words = "The trigger was paused before this was started. Resume it, and send this again if it still matters."
        await _settle(services, database, app, trigger, delivery, {"status": "skipped", "error": words})
        return
    pause: float | None = None
    try:
        await _require_turn(services, database, app)
        if "agent" in trigger.action:
            values: Mapping[str, Any] = await start_agent(job, app, trigger, delivery)
        elif "function" in trigger.action:
            values = await start_function(job, app, trigger, delivery)
        else:
            attempt = await send_webhook(job, app, trigger, delivery)
            values, pause = attempt.values, attempt.pause
    except MakerGone as gone:
        await _pause(services, database, app, trigger, str(gone))
        values = {"status": "failed", "error": f"The trigger was paused: {gone}"[:500], "next_attempt_at": None}
    except RetryLater as again:
        until = services.clock.now() + timedelta(seconds=again.seconds)
        await _settle(services, database, app, trigger, delivery, {"error": str(again)[:500], "next_attempt_at": until})
        raise
    await _settle(services, database, app, trigger, delivery, values)
    if pause is not None:
        raise RetryLater(pause, str(values["error"]))


async def _require_turn(services: Services, database: Database, app: App) -> None:
    """Raises RetryLater while the app is paused, or has started as much as it may in a minute."""
    if app.is_paused:
        raise RetryLater(_PAUSED_SECONDS, "The app is paused.")
    try:
        await resolve_answer(services.limits.spend(NOTICE, app.id, MOST_AT_ONCE, _WINDOW_SECONDS))
    except RateLimited as full:
        words = f"An app starts at most {MOST_A_MINUTE} deliveries a minute; this one waits for its turn."
        # Each pause moves all that waits, so it is not made for a single turn.
        pause = max(full.retry_after or 0.0, _LEAST_PAUSE_SECONDS)
        await _put_off_others(services, database, app, pause, words)
        raise RetryLater(pause, words) from full


async def _put_off_others(services: Services, database: Database, app: App, pause: float, words: str) -> None:
    """Has all deliveries of an app wait that are due, so that those of other apps do not wait until each has failed."""
    now = services.clock.now()
    until = now + timedelta(seconds=pause)
    is_due = (jobs.c.kind == DELIVER, jobs.c.due_at <= now, jobs.c.finished_at.is_(None), jobs.c.held_by.is_(None))
    of_app = (jobs.c.tenant == app.organisation_id, jobs.c.id.startswith(name_jobs(app.id), autoescape=True))
    async with database.writing(lock=app.id) as connection:
        await connection.execute(update(jobs).where(*of_app, *is_due).values(due_at=until))
        is_waiting = (_deliveries.app_id == app.id, PENDING, _deliveries.next_attempt_at <= now)
        await connection.execute(update(deliveries).where(*is_waiting).values(error=words, next_attempt_at=until))


async def _settle(
    services: Services, database: Database, app: App, trigger: Any, delivery: Any, values: Mapping[str, Any]
) -> None:
    """Writes what became of an attempt, and counts failures in a row."""
    async with database.writing_unit(lock=app.id) as unit:
        if await FREEZES.is_frozen(unit.execute, app.id):
            raise RetryLater(_MOVING_SECONDS, "the app is being moved")
        of_delivery = (_deliveries.app_id == app.id, _deliveries.id == delivery.id)
        is_same = (PENDING, _deliveries.attempts == delivery.attempts, _deliveries.rounds == delivery.rounds)
        if (await unit.execute(update(deliveries).where(*of_delivery, *is_same).values(**values))).rowcount != 1:
            return
        of_trigger = (_triggers.app_id == app.id, _triggers.id == trigger.id)
        if values.get("status") == "delivered" and trigger.failures:
            await unit.execute(update(triggers_table).where(*of_trigger).values(failures=0))
        elif values.get("status") == "failed":
            counting = update(triggers_table).where(*of_trigger).values(failures=_triggers.failures + 1)
            count = (await unit.execute(counting.returning(_triggers.failures))).scalar()
            if count == TELL_AFTER and trigger.tells_failures:
                await _enqueue_telling(unit, services, app, trigger, f"{TELL_AFTER} deliveries in a row have failed.")


async def _pause(services: Services, database: Database, app: App, trigger: Any, reason: str) -> None:
    """Pauses a trigger whose maker has lost the right to it, and tells the owner."""
    async with database.writing_unit(lock=app.id) as unit:
        of_trigger = (_triggers.app_id == app.id, _triggers.id == trigger.id, _triggers.status == "active")
        values = {"status": "paused", "reason": reason, "next_at": None, "updated_at": services.clock.now()}
        if (await unit.execute(update(triggers_table).where(*of_trigger).values(**values))).rowcount:
            await _enqueue_telling(unit, services, app, trigger, f"It was paused: {reason}")
    async with services.database.writing_unit(lock=None) as unit:
        await services.notices.publish(unit, NOTICE, app.id)


async def _enqueue_telling(unit: Unit, services: Services, app: App, trigger: Any, words: str) -> None:
    arguments = {"app_id": app.id, "name": trigger.name, "account_id": trigger.maker.get("account_id"), "words": words}
    await services.jobs.enqueue(unit, triggers_tell.__name__, arguments, tenant=app.organisation_id)


@triggers.job(drop=True)
async def triggers_tell(job: Job, app_id: str, name: str, account_id: str | None, words: str) -> None:
    """Mail whoever made a trigger that it fails."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    async with services.database.reading() as connection:
        query = select(accounts.c.email).where(accounts.c.id == account_id)
        address = (await connection.execute(query)).scalar()
    if address is None:
        return
    values = {"name": name, "app_title": app.title, "words": words}
    values["link"] = f"{services.options.base_url}/console/apps/{app_id}/triggers/{name}"
    mail = Mail(to=address, template="trigger_failing", values=values)
    if job.database is services.database:
        async with job.writing(last=True) as unit:
            await services.mailer.send(unit, mail)
        return
    async with services.database.writing_unit(lock=None) as unit:
        await services.mailer.send(unit, mail)


@triggers.job(every=1.0)
async def triggers_tick(job: Job) -> None:
    """Start the schedules that are due."""
    services, now = job.services, job.services.clock.now()
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        is_due = (DUE, _triggers.next_at <= now, FREEZES.is_thawed(_triggers.app_id))
        query = select(triggers_table).where(*is_due).order_by(_triggers.app_id).limit(2 * _ROUND)
        async with database.reading() as connection:
            rows = (await connection.execute(query)).all()
        by_app: dict[str, list[Any]] = {}
        for row in rows:
            by_app.setdefault(row.app_id, []).append(row)
        for app_id, rows_of_app in by_app.items():
            await _start_due(services, database, app_id, rows_of_app, now)


async def _start_due(services: Services, database: Database, app_id: str, rows: list[Any], now: datetime) -> None:
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    if services.stores_of(app.region).database is not database:
        return
    async with database.writing_unit(lock=app_id) as unit:
        if await FREEZES.is_frozen(unit.execute, app_id):
            return
        for row in rows:
            schedule = parse_schedule(row.schedule, row.time_zone)
            tick = None if app.is_paused else find_tick(schedule, row.next_at, now, catch_up=row.catch_up)
            is_same = (_triggers.app_id == app_id, _triggers.id == row.id, _triggers.next_at == row.next_at)
            moved_on = update(triggers_table).where(*is_same, _triggers.status == "active")
            if not (await unit.execute(moved_on.values(next_at=schedule.find_next(now)))).rowcount or tick is None:
                continue
            data = {"schedule": row.schedule, "timezone": row.time_zone, "scheduled_at": tick.isoformat()}
            hour = Occurrence(f"{HOUR}:{tick.isoformat()}", HOUR, tick, f"{HOUR}:{row.name}", data, is_outside=False)
            overlaps = await _is_running(unit, row) if "function" in row.action else False
            await write_delivery(unit, services, app, row, hour, (0, False), left_out=OVERLAPS if overlaps else None)


async def _is_running(unit: Unit, trigger: Any) -> bool:
    """Returns whether an earlier tick of a trigger has not ended yet."""
    of_trigger = (_deliveries.app_id == trigger.app_id, _deliveries.trigger_id == trigger.id, PENDING)
    return (await unit.execute(select(_deliveries.id).where(*of_trigger).limit(1))).first() is not None


@triggers.job(every=60)
async def triggers_tend(job: Job) -> None:
    """Ask again for deliveries that nobody makes, such as those of an app that was moved, and delete old ones."""
    services, now = job.services, job.services.clock.now()
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        is_late = (PENDING, _deliveries.next_attempt_at < now - _LATE, FREEZES.is_thawed(_deliveries.app_id))
        query = select(_deliveries.app_id, _deliveries.id).where(*is_late).limit(_ROUND)
        async with database.reading() as connection:
            rows = (await connection.execute(query)).all()
        for row in rows:
            await _ask_again(services, database, row.app_id, row.id, now)
        async with database.writing(lock=None, bulk=True) as connection:
            await connection.execute(delete(deliveries).where(_deliveries.created_at < now - _KEPT))


async def _ask_again(services: Services, database: Database, app_id: str, delivery_id: str, now: datetime) -> None:
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    async with database.writing_unit(lock=app_id) as unit:
        is_it = (_deliveries.app_id == app_id, _deliveries.id == delivery_id, PENDING)
        has_job = exists().where(
            jobs.c.id.startswith(f"{name_jobs(app_id)}{delivery_id}:"), jobs.c.finished_at.is_(None)
        )
        if not (await unit.execute(update(deliveries).where(*is_it).values(next_attempt_at=now))).rowcount:
            return
        if not (await unit.execute(select(has_job))).scalar_one():
            await enqueue_delivery(unit, services, app, delivery_id, services.ids.uuid())
