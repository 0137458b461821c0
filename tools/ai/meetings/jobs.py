"""The jobs of meeting bots: follow one, deliver an event about one, and clean up."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, exists, select, update

from baobab.runtime.jobs.job_tables import jobs
from baobab.runtime.net.deliveries import send
from baobab.storage.sql.database import Database
from baobab.tools.ai.meetings.calendars import PAUSE, follow
from baobab.tools.ai.meetings.following import ask_to_leave, follow_anew, follow_bot, load_bot, refresh_bot
from baobab.tools.ai.meetings.forwarding import find_settings, open_secret, sign_delivery
from baobab.tools.ai.meetings.outcomes import pass_on
from baobab.tools.ai.meetings.tables import (
    CALENDAR_ON,
    UNSETTLED,
    meeting_bots,
    meeting_calendar_events,
    meeting_calendars,
    meeting_deliveries,
    meeting_settings,
    meeting_usage,
)
from baobab.tools.ai.meetings.toolset import TRANSCRIPT_READY, meetings
from baobab.tools.core import Job, RetryLater, Services
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.job import LEFT_UNDONE
from baobab.tools.core.jobs import Event

_BOTS_KEPT, _DELIVERIES_KEPT = timedelta(days=90), timedelta(days=30)
_ROUND = 500
_EVENTS_KEPT = timedelta(days=30)
_bots, _deliveries = meeting_bots.c, meeting_deliveries.c
_calendars, _events = meeting_calendars.c, meeting_calendar_events.c
_FOLLOWED = exists().where(jobs.c.id == _bots.worker, jobs.c.finished_at.is_(None))


@meetings.job(attempts=1000)
async def meetings_follow(job: Job, bot_id: str) -> None:
    """Follow a bot from its start until everything is charged."""
    row = await load_bot(job.services, bot_id)
    if row is not None and row.worker == job.id:
        await follow_bot(job.services, bot_id)


@meetings.job(attempts=1000)
async def meetings_refresh(job: Job, bot_id: str) -> None:
    """Ask the provider about a bot of which a webhook says that something is new."""
    await refresh_bot(job.services, bot_id)


@meetings.job(attempts=1000)
async def meetings_leave(job: Job, bot_id: str, because: str) -> None:
    """Make a bot leave its call."""
    row = await load_bot(job.services, bot_id)
    if row is not None:
        await ask_to_leave(job.services, row, because)
        row = await load_bot(job.services, bot_id)
    if row is not None and row.settled_at is None:
        await follow_anew(job.services, row)


async def _drop_deliveries(services: Services, database: Database, jobs: Sequence[Mapping[str, Any]]) -> None:
    del services
    values = {"status": "failed", "error": LEFT_UNDONE, "next_attempt_at": None}
    is_one = (_deliveries.id.in_([each["delivery_id"] for each in jobs]), _deliveries.status == "pending")
    async with database.writing(lock=None) as connection:
        await connection.execute(update(meeting_deliveries).where(*is_one).values(**values))


@meetings.job(attempts=1000, drop=_drop_deliveries)
async def meetings_deliver(job: Job, delivery_id: str) -> None:
    """Send an event about a bot, again and again for up to a day."""
    services = job.services
    query = select(meeting_deliveries).where(_deliveries.id == delivery_id)
    async with services.database.reading() as connection:
        row: Any = (await connection.execute(query)).first()
        if row is None or row.status != "pending":
            return
        settings = await find_settings(connection.execute, row.organisation_id, row.app_id)
    now = services.clock.now()
    if settings is None or settings.secret is None:
        return
    headers = sign_delivery(row, open_secret(services.vault, settings), now)
    attempt = await send(services.http_client, row.url, headers, row.body.encode(), row.attempts, now)
    async with job.writing(last=attempt.pause is None, lock=row.organisation_id) as unit:
        await unit.execute(update(meeting_deliveries).where(_deliveries.id == delivery_id).values(**attempt.values))
    if attempt.pause is not None:
        raise RetryLater(attempt.pause, str(attempt.values["error"]))


@meetings.job(on=TRANSCRIPT_READY, attempts=20, drop=True)
async def meetings_pass_on(job: Job, event: Event) -> None:
    """Make a document of a finished transcript, and start an agent with it, as the app has set it."""
    row = await load_bot(job.services, event.data["bot_id"])
    if row is None or row.passed_on_at is not None or not row.app_id:
        return
    async with job.services.database.reading() as connection:
        settings = await find_settings(connection.execute, row.organisation_id, row.app_id)
    if settings is not None and settings.transcripts:
        await pass_on(job, row, settings, event.at)


@meetings.job(every=15)
async def meetings_calendars_tick(job: Job) -> None:
    """Have the calendars read whose time has come."""
    services, now = job.services, job.services.clock.now()
    query = select(meeting_calendars).where(CALENDAR_ON, _calendars.next_at <= now).order_by(_calendars.next_at)
    async with services.database.reading() as connection:
        rows = (await connection.execute(query.limit(_ROUND))).all()
    for row in rows:
        async with services.database.writing_unit(lock=row.organisation_id) as unit:
            is_same = (_calendars.id == row.id, _calendars.next_at == row.next_at)
            moved_on = update(meeting_calendars).where(*is_same).values(next_at=now + PAUSE)
            if (await unit.execute(moved_on)).rowcount:
                arguments = {"calendar_id": row.id}
                name = meetings_calendars_follow.__name__
                await services.jobs.enqueue(unit, name, arguments, tenant=row.organisation_id)


@meetings.job(drop=True)
async def meetings_calendars_follow(job: Job, calendar_id: str) -> None:
    """Read a calendar, and send the bots that are due. If it fails, the calendar's next turn makes up for it."""
    await follow(job, calendar_id)


@meetings.job(on="user.deleted", attempts=20)
async def meetings_calendars_forget_user(job: Job, event: Event) -> None:
    """Forget the calendars of a user who was deleted, and what was in them."""
    is_theirs = (_calendars.app_id == event.app_id, _calendars.app_user_id == event.data["user"]["id"])
    of_them = _events.calendar_id.in_(select(_calendars.id).where(*is_theirs))
    async with job.services.database.writing(lock=None) as connection:
        # That a bot was sent is remembered, so that the calendar of somebody else does not send it again.
        blanks = {"title": "", "meeting_url": ""}
        await connection.execute(delete(meeting_calendar_events).where(of_them, _events.status != "sent"))
        await connection.execute(update(meeting_calendar_events).where(of_them).values(**blanks))
        await connection.execute(delete(meeting_calendars).where(*is_theirs))


@meetings.job(every=60)
async def meetings_sweep(job: Job) -> None:
    """Follow bots that nobody follows, end those of deleted apps, and delete old rows."""
    services, now = job.services, job.services.clock.now()
    is_orphan = (_bots.app_id != "", ~exists().where(apps.c.id == _bots.app_id))
    async with services.database.reading() as connection:
        lost_rows = (await connection.execute(select(meeting_bots).where(UNSETTLED, ~_FOLLOWED).limit(_ROUND))).all()
        orphans = (
            await connection.execute(select(meeting_bots).where(UNSETTLED, _bots.left_at.is_(None), *is_orphan))
        ).all()
    for row in lost_rows:
        await follow_anew(services, row)
    for row in orphans:
        async with services.database.writing_unit(lock=row.organisation_id) as unit:
            arguments = {"bot_id": row.id, "because": "app_deleted"}
            job_id = f"{meetings_leave.__name__}:{row.id}:app_deleted"
            await services.jobs.enqueue(
                unit, meetings_leave.__name__, arguments, job_id=job_id, tenant=row.organisation_id
            )
    async with services.database.writing(lock=None, bulk=True) as connection:
        is_settled = _bots.settled_at.is_not(None)
        await connection.execute(delete(meeting_bots).where(is_settled, *is_orphan))
        await connection.execute(delete(meeting_bots).where(is_settled, _bots.created_at < now - _BOTS_KEPT))
        await connection.execute(delete(meeting_deliveries).where(_deliveries.created_at < now - _DELIVERIES_KEPT))
        await connection.execute(delete(meeting_calendar_events).where(_events.ends_at < now - _EVENTS_KEPT))
        for table in (meeting_calendars, meeting_calendar_events, meeting_settings, meeting_deliveries, meeting_usage):
            of_no_app = (table.c.app_id != "", ~exists().where(apps.c.id == table.c.app_id))
            of_bots = table in (meeting_deliveries, meeting_usage)
            conditions = (~exists().where(_bots.id == table.c.bot_id),) if of_bots else ()
            await connection.execute(delete(table).where(*of_no_app, *conditions))
