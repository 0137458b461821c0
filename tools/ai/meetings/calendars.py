"""Calendars by which bots are sent: each is read again and again, and a bot is sent into each call in it, once.

A row for each event and time at which it begins says what became of it. A bot is sent in the transaction that marks the
row, and only to what the calendar has had a moment before: what was moved, cancelled or declined gets none.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select, update

from baobab.storage.sql.database import Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.ai.meetings.calendar_events import READERS, CalendarEvent, Listing
from baobab.tools.ai.meetings.following import load_bot
from baobab.tools.ai.meetings.outcomes import act_in
from baobab.tools.ai.meetings.schemas import Row
from baobab.tools.ai.meetings.tables import is_of, meeting_calendar_events, meeting_calendars
from baobab.tools.core import AppNotFound, BaobabError, Caller, Forbidden, Job
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.access import find_role
from baobab.tools.core.auth.directory import App
from baobab.tools.core.context import RequestContext

MAKER = "meetings_calendars_set"
"""The tool that whoever set a calendar must still be allowed to call."""
PAUSE = timedelta(minutes=5)
"""After how long a calendar is read again, if no call begins before."""
_SOON = timedelta(seconds=30)
_LEAD = timedelta(minutes=1)
"""How long before an event its bot is sent."""
_AHEAD = timedelta(days=1)
_STOPPABLE = frozenset({"joining", "waiting_room", "in_call"})
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500
_GONE = "The event was moved, cancelled or declined, or the calendar's rule does not fit it any more."
_TOO_LATE = "The call was over before a bot could be sent."
_calendars, _events = meeting_calendars.c, meeting_calendar_events.c


class _MakerGoneError(Exception):
    """Raised where whoever set a calendar may not set it any more. The text says why."""


class _TakenError(Exception):
    """Raised to undo what was done for an event that somebody else has dealt with meanwhile."""


async def follow(job: Job, calendar_id: str) -> None:
    """Reads a calendar, plans what is in it, and sends the bots that are due."""
    services = job.services
    async with services.database.reading() as connection:
        query = select(meeting_calendars).where(_calendars.id == calendar_id, _calendars.enabled)
        row: Row = (await connection.execute(query)).first()
    if row is None:
        return
    try:
        app = await services.directory.app(row.app_id)
    except AppNotFound:
        return
    if app.is_paused or app.organisation_id != row.organisation_id:
        return
    now = services.clock.now()
    try:
        caller = await _restore_maker(job, app, row)
        listing = await _read(job, row, caller, now)
    except (_MakerGoneError, Forbidden) as gone:
        await _write(job, row, {"enabled": False, "reason": str(gone), "updated_at": now})
        return
    except BaobabError as error:
        # Nothing is sent to an event that cannot be looked at: its owner may have disconnected the calendar.
        await _mark_missed(job, row, now, _explain(error))
        values = {"failure": _explain(error), "failed_at": now}
        await _write(job, row, {**values, "next_at": now + (_SOON if _is_passing(error) else PAUSE)})
        return
    events = [event for event in listing.events if _fits(row, event)]
    lost_rows = await _plan(job, row, listing, events, now)
    for event in lost_rows:
        await _call_back(job, event, caller)
    for event in await _list_due(job, row, now):
        await _send(job, row, event, caller, now)
    await _write(job, row, {"read_at": now, "failure": _list_gaps(listing), "failed_at": now})
    await _choose_next(job, row, now)


def _fits(row: Row, event: CalendarEvent) -> bool:
    words = (row.title_contains or "").casefold()
    is_new = event.starts_at >= row.since
    return is_new and words in event.title.casefold() and (event.is_answered or row.unanswered)


def _list_gaps(listing: Listing) -> str | None:
    """Says what of a calendar was left out."""
    gaps = list[str]()
    if not listing.is_whole:
        gaps.append("The calendar has more events within a day than are read at once; the later ones are left out.")
    if listing.unread:
        gaps.append(f"{listing.unread} events have a time that cannot be read.")
    return " ".join(gaps) or None


async def _restore_maker(job: Job, app: App, row: Row) -> Caller:
    services = job.services
    try:
        async with services.database.reading() as connection:
            now = services.clock.now()
            caller = await proposers.restore_caller(connection.execute, services.credits, row.maker, now)
    except BaobabError as error:
        raise _MakerGoneError(error.message) from error
    if not job.registry.may_call(MAKER, caller, await find_role(services.directory, caller, app)):
        raise _MakerGoneError("Whoever set it is no longer an admin of the app, or uses a key with limits now.")
    return act_in(caller, app.organisation_id)


async def _read(job: Job, row: Row, caller: Caller, now: datetime) -> Listing:
    reader = READERS[row.toolkit]
    arguments = {"app_id": row.app_id, "toolName": reader.tool, "params": reader.build(now, now + _AHEAD)}
    arguments |= {"userId": row.app_user_id, "account": row.account}
    result, _ = await job.registry.run(job.registry.find("integrations_read"), arguments, caller, _build_context(job))
    return reader.parse(result["data"])


def _build_context(job: Job) -> RequestContext:
    return RequestContext("job", job.id, base_url=job.services.options.base_url, brings_outside_text=True)


async def _plan(job: Job, row: Row, listing: Listing, events: Sequence[CalendarEvent], now: datetime) -> Sequence[Row]:
    """Writes down what a calendar has now. Returns the rows of bots that were sent to what it has no more."""
    keys = {(event.key, event.starts_at) for event in events}
    # Beyond the last one that was read, nothing is known.
    known_until = now + _AHEAD if listing.is_whole else max((event.starts_at for event in listing.events), default=now)
    lost_rows = list[Row]()
    async with job.services.database.writing_unit(lock=row.organisation_id) as unit:
        for event in events:
            await _plan_event(unit, job, row, event, now)
        is_open = (_events.calendar_id == row.id, _events.ends_at > now, _events.status.in_(("planned", "sent")))
        for each in (await unit.execute(select(meeting_calendar_events).where(*is_open))).all():
            if (each.event_key, each.starts_at) in keys or each.starts_at > known_until:
                continue
            if each.status == "sent":
                lost_rows.append(each)
                continue
            values = {"status": "cancelled", "message": _GONE, "updated_at": now}
            await unit.execute(update(meeting_calendar_events).where(_events.id == each.id).values(**values))
        await unit.execute(_mark_late(row, now, _TOO_LATE))
    return lost_rows


async def _plan_event(unit: Unit, job: Job, row: Row, event: CalendarEvent, now: datetime) -> None:
    facts = {"title": event.title, "meeting_url": event.meeting_url, "ends_at": event.ends_at, "updated_at": now}
    values: dict[str, Any] = {
        "id": job.services.ids.uuid_at(now),
        "organisation_id": row.organisation_id,
        "app_id": row.app_id,
        "calendar_id": row.id,
        "event_key": event.key,
        "starts_at": event.starts_at,
        "status": "planned",
        "created_at": now,
        **facts,
    }
    insertion = build_upsert(unit.database.dialect, meeting_calendar_events).values(values).on_conflict_do_nothing()
    if (await unit.execute(insertion)).rowcount:
        return
    is_it = (
        is_of(meeting_calendar_events, row.organisation_id, row.app_id),
        _events.event_key == event.key,
        _events.starts_at == event.starts_at,
    )
    is_ours = and_(_events.calendar_id == row.id, _events.status == "planned")
    await unit.execute(update(meeting_calendar_events).where(*is_it, is_ours).values(**facts))
    # One that is back where it was, or that another calendar has given up.
    is_free = (_events.status == "cancelled", _events.bot_id.is_(None))
    again = {**facts, "calendar_id": row.id, "status": "planned", "message": None}
    await unit.execute(update(meeting_calendar_events).where(*is_it, *is_free).values(**again))


def _mark_late(row: Row, now: datetime, words: str) -> Any:
    is_late = (_events.calendar_id == row.id, _events.status == "planned", _events.ends_at <= now)
    values = {"status": "missed", "message": func.coalesce(_events.message, words), "updated_at": now}
    return update(meeting_calendar_events).where(*is_late).values(**values)


async def _mark_missed(job: Job, row: Row, now: datetime, words: str) -> None:
    async with job.services.database.writing_unit(lock=row.organisation_id) as unit:
        await unit.execute(_mark_late(row, now, words))


async def _call_back(job: Job, event: Row, caller: Caller) -> None:
    """Makes a bot leave that waits for a call which is not there any more. One that records is in a call."""
    bot = await load_bot(job.services, event.bot_id)
    if bot is None or bot.status not in _STOPPABLE or bot.left_at is not None:
        return
    arguments = {"app_id": event.app_id, "bot_id": bot.id}
    await job.registry.run(job.registry.find("meetings_stop"), arguments, caller, _build_context(job))
    now = job.services.clock.now()
    await _end_event(job, event, {"status": "cancelled", "message": _GONE, "updated_at": now}, _events.status == "sent")


async def _list_due(job: Job, row: Row, now: datetime) -> Sequence[Row]:
    is_due = (_events.calendar_id == row.id, _events.status == "planned", _events.starts_at <= now + _LEAD)
    query = select(meeting_calendar_events).where(*is_due).order_by(_events.starts_at, _events.id)
    async with job.services.database.reading() as connection:
        return (await connection.execute(query)).all()


async def _send(job: Job, row: Row, event: Row, caller: Caller, now: datetime) -> None:
    """Sends the bot of an event, in the transaction that writes it down."""
    is_planned = _events.status == "planned"
    try:
        async with job.services.database.reading() as connection:
            is_recent = (_events.calendar_id == row.id, _events.sent_at > now - timedelta(days=1))
            count = (await connection.execute(select(func.count()).where(*is_recent))).scalar_one()
        if count >= row.most_a_day:
            words = f"The calendar has sent {row.most_a_day} bots within a day, which is the most that it may."
            await _end_event(job, event, {"status": "failed", "message": words, "updated_at": now}, is_planned)
            return
        async with job.services.database.writing_unit(lock=row.organisation_id) as unit:
            tool = job.registry.find("meetings_start")
            arguments = _build_order(row, event)
            bot, _ = await job.registry.run(tool, arguments, caller, _build_context(job), unit=unit)
            values = {"status": "sent", "bot_id": bot["id"], "sent_at": now, "message": None, "updated_at": now}
            marking = update(meeting_calendar_events).where(_events.id == event.id, is_planned)
            if not (await unit.execute(marking.values(**values))).rowcount:
                raise _TakenError
    except _TakenError:
        return
    except BaobabError as error:
        status = "planned" if _is_passing(error) else "failed"
        values = {"status": status, "message": _explain(error), "updated_at": now}
        await _end_event(job, event, values, is_planned)


def _build_order(row: Row, event: Row) -> dict[str, Any]:
    return {
        "app_id": row.app_id,
        "meetingUrl": event.meeting_url,
        "recording": row.recording or False,
        "transcript": row.transcript,
        "botName": row.bot_name,
        "metadata": {"calendar_id": row.id, "event_id": event.id, "title": event.title},
    }


async def _end_event(job: Job, event: Row, values: dict[str, Any], condition: ColumnElement[bool]) -> None:
    async with job.services.database.writing_unit(lock=event.organisation_id) as unit:
        is_it = (_events.id == event.id, condition)
        await unit.execute(update(meeting_calendar_events).where(*is_it).values(**values))


async def _choose_next(job: Job, row: Row, now: datetime) -> None:
    """Has the calendar read again when the next of its bots is due, or after a while."""
    query = select(func.min(_events.starts_at)).where(_events.calendar_id == row.id, _events.status == "planned")
    async with job.services.database.reading() as connection:
        first_start = (await connection.execute(query)).scalar()
    due_at = now + PAUSE if first_start is None else min(now + PAUSE, first_start - _LEAD)
    await _write(job, row, {"next_at": max(due_at, now + _SOON) if due_at <= now else due_at})


async def _write(job: Job, row: Row, values: dict[str, Any]) -> None:
    """Writes columns of a calendar, unless somebody has set it anew meanwhile."""
    is_same = (_calendars.id == row.id, _calendars.updated_at == row.updated_at)
    async with job.services.database.writing_unit(lock=row.organisation_id) as unit:
        await unit.execute(update(meeting_calendars).where(*is_same).values(**values))


def _is_passing(error: BaobabError) -> bool:
    return error.status == _TOO_MANY_REQUESTS or error.status >= _SERVER_ERROR


def _explain(error: BaobabError) -> str:
    return error.message
