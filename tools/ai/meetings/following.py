"""Follows a bot: sends it, asks the provider about it, writes down what became of it, and charges for it.

Each step can be taken again, by several processes at once: what is heard only adds up, and what is charged is charged
once. So it does not matter how often, in which order or whether at all a provider's webhooks arrive.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from baobab.runtime.meetings.opening import Meetings
from baobab.runtime.meetings.provider import (
    ONE_BOT,
    TERMINAL,
    BotGone,
    BotReport,
    MeetingProvider,
    ProviderBusy,
    ProviderRefused,
    StatusChange,
)
from baobab.storage.sql.database import Unit
from baobab.tools.ai.meetings import charges
from baobab.tools.ai.meetings.charges import Dimension
from baobab.tools.ai.meetings.forwarding import record_events
from baobab.tools.ai.meetings.progress import (
    MOST_CHANGES,
    build_order,
    compute_values,
    derive,
    may_try_again,
    read_changes,
)
from baobab.tools.ai.meetings.schemas import Row
from baobab.tools.ai.meetings.tables import meeting_bots, meeting_usage
from baobab.tools.ai.meetings.toolset import STATUS_CHANGED, TRANSCRIPT_READY
from baobab.tools.ai.metered_call import Payer
from baobab.tools.core import RetryLater, Services
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted

FOLLOW = "meetings_follow"
_BUSY_FOR = timedelta(hours=1)
"""How long a bot stays `joining` while its provider has no free one."""
_TRANSCRIPT_FOR = timedelta(hours=24)
"""How long it is waited for a transcript after the call. One that is not there by then is not charged."""
_PARTICIPANTS_FOR = timedelta(minutes=10)
_LIVE_SECONDS, _LATE_SECONDS, _LONGEST_BUSY_SECONDS = 20.0, 120.0, 120.0
_SOONEST_SECONDS = 0.1
_PHASES = {"in_call": "joined", "recording": "joined", "done": "done", "fatal": "fatal"}
"""What triggers are told of, by a bot's state: it may be heard of a later one first."""
_columns = meeting_bots.c


async def load_bot(services: Services, bot_id: str) -> Row | None:
    query = select(meeting_bots).where(_columns.id == bot_id)
    async with services.database.reading() as connection:
        return (await connection.execute(query)).first()


def find_provider(services: Services, row: Row) -> MeetingProvider | None:
    """Returns the provider of a bot; None if this server has it no more."""
    return services.part(Meetings).all.get(row.provider)


async def follow_bot(services: Services, bot_id: str) -> None:
    """Takes the next step with a bot. Raises RetryLater unless that was the last one."""
    row = await load_bot(services, bot_id)
    if row is None or row.settled_at is not None:
        return
    provider = find_provider(services, row)
    if provider is None:
        raise RetryLater(300, f"the provider {row.provider} is not configured")
    if row.provider_id is None and row.status not in TERMINAL:
        row = await _send(services, provider, row)
    row = await refresh_bot(services, row.id)
    if row is None or row.settled_at is not None:
        return
    if row.status not in TERMINAL and row.provider_id is not None:
        await _keep_paying(services, row)
    raise RetryLater(_pause(services, provider, row), f"the bot is {row.status}")


async def follow_anew(services: Services, row: Row) -> None:
    """Has a bot looked at now, instead of when that was due; by a new job, if the one that followed it is gone."""
    worker = f"{FOLLOW}:{services.ids.uuid()}"
    claim = update(meeting_bots).where(_columns.id == row.id, _columns.worker == row.worker).values(worker=worker)
    async with services.database.writing_unit(lock=row.organisation_id) as unit:
        if (await unit.execute(claim)).rowcount:
            if row.worker:
                await services.jobs.end_all(unit.execute, FOLLOW, row.worker)
            await services.jobs.enqueue(unit, FOLLOW, {"bot_id": row.id}, job_id=worker, tenant=row.organisation_id)


async def refresh_bot(services: Services, bot_id: str) -> Row | None:
    """Asks the provider about a bot, writes down what is new, and charges what is due. Returns its row.

    Raises RetryLater while the provider does not answer.
    """
    row = await load_bot(services, bot_id)
    if row is None or row.settled_at is not None:
        return row
    provider = find_provider(services, row)
    if provider is not None and row.provider_id is not None:
        report = await _read(services, provider, row)
        row = await write_heard(services, row, report.changes, report)
        row = await _note_participants(services, provider, row)
    return await _settle(services, row)


async def _note_participants(services: Services, provider: MeetingProvider, row: Row) -> Row:
    """Writes down who was in a call that is over. A provider that does not say it in ten minutes holds up nothing."""
    if row.status not in TERMINAL or not row.seconds or row.participants:
        return row
    try:
        names = await provider.list_participants(build_order(row), row.provider_id)
    except ProviderBusy as busy:
        if services.clock.now() - (row.completed_at or row.updated_at) < _PARTICIPANTS_FOR:
            raise RetryLater(min(max(busy.seconds, 1.0), _LONGEST_BUSY_SECONDS), str(busy)) from busy
        return row
    except (BotGone, ProviderRefused):
        return row
    participants = list(dict.fromkeys(names))[:MOST_CHANGES]
    return await _note(services, row, participants=participants) if participants else row


async def write_heard(
    services: Services, row: Row, heard: Sequence[StatusChange], report: BotReport | None = None
) -> Row:
    """Writes down what was heard about a bot, with the events that follow from it. Returns its row."""
    async with services.database.writing_unit(lock=row.organisation_id) as unit:
        present = (await unit.execute(select(meeting_bots).where(_columns.id == row.id))).first()
        if present is None or present.provider_id != row.provider_id:
            # Another bot was sent instead, which this says nothing about.
            return present or row
        values = compute_values(present, heard, report)
        if present.status not in TERMINAL:
            progress = derive(read_changes(values["changes"]))
            if may_try_again(present, progress):
                values = {"attempt": present.attempt + 1, "provider_id": None, "is_asked": False, "changes": []}
                values |= {"status": "joining", "sub_code": None, "started_at": None, "completed_at": None}
        return await _write(unit, services, present, values)


async def fail_bot(services: Services, row: Row, code: str, words: str | None = None) -> Row:
    """Ends a bot that the provider does not have."""
    now = services.clock.now()
    async with services.database.writing_unit(lock=row.organisation_id) as unit:
        present = (await unit.execute(select(meeting_bots).where(_columns.id == row.id))).first()
        if present is None or present.status in TERMINAL:
            return present or row
        changes = [*read_changes(present.changes), StatusChange("fatal", now, "fatal", code)]
        values = compute_values(present, changes) | {"refusal": words}
        return await _write(unit, services, present, values)


async def _write(unit: Unit, services: Services, row: Row, values: dict[str, Any]) -> Row:
    values = {name: value for name, value in values.items() if getattr(row, name) != value}
    if not values:
        return row
    change = update(meeting_bots).where(_columns.id == row.id).values(**values, updated_at=services.clock.now())
    written_row = (await unit.execute(change.returning(meeting_bots))).one()
    await record_events(unit, services, written_row)
    data, app_id, tenant = {"bot_id": row.id}, row.app_id or None, row.organisation_id
    if _PHASES.get(written_row.status) not in (None, _PHASES.get(row.status)):
        data_of_status = {**data, "status": written_row.status, "sub_code": written_row.sub_code}
        await services.jobs.emit(
            unit, STATUS_CHANGED, app_id=app_id, data=data_of_status, tenant=tenant, only_awaited=True
        )
    if written_row.transcript_state == "ready" and row.transcript_state != "ready":
        await services.jobs.emit(unit, TRANSCRIPT_READY, app_id=app_id, data=data, tenant=tenant)
    return written_row


async def _send(services: Services, provider: MeetingProvider, row: Row) -> Row:
    """Sends a bot into its call. Raises RetryLater while the provider has none."""
    if row.left_at is not None:
        return await _end_unsent(services, row)
    order = build_order(row)
    try:
        # The answer of an earlier attempt may have been lost: two bots in one call would be paid twice.
        provider_id = await provider.find(order) if row.is_asked else None
        if provider_id is None or await _is_of_another(services, row, provider_id):
            await _note(services, row, is_asked=True)
            provider_id = await provider.create(order)
            if await _is_of_another(services, row, provider_id):
                raise ProviderBusy(ONE_BOT)
    except ProviderBusy as busy:
        if services.clock.now() - row.created_at > _BUSY_FOR:
            return await fail_bot(services, row, "provider_busy", str(busy))
        raise RetryLater(min(max(busy.seconds, 1.0), _LONGEST_BUSY_SECONDS), str(busy)) from busy
    except ProviderRefused as refusal:
        return await fail_bot(services, row, refusal.code, str(refusal))
    await charges.keep(services, row.organisation_id, row.leases)
    try:
        return await _note(services, row, provider_id=provider_id)
    except IntegrityError as exc:
        raise RetryLater(_LONGEST_BUSY_SECONDS, ONE_BOT) from exc


async def _is_of_another(services: Services, row: Row, provider_id: str) -> bool:
    """Returns whether a provider's bot is that of another row: some providers know a bot by its meeting alone."""
    is_same_bot = (_columns.provider == row.provider, _columns.provider_id == provider_id, _columns.id != row.id)
    async with services.database.reading() as connection:
        return (await connection.execute(select(_columns.id).where(*is_same_bot))).first() is not None


async def _end_unsent(services: Services, row: Row) -> Row:
    now = services.clock.now()
    changes = [StatusChange("done", now, "done", row.left_because)]
    async with services.database.writing_unit(lock=row.organisation_id) as unit:
        return await _write(unit, services, row, compute_values(row, changes))


async def _note(services: Services, row: Row, **values: Any) -> Row:
    change = update(meeting_bots).where(_columns.id == row.id, _columns.attempt == row.attempt).values(**values)
    async with services.database.writing(lock=row.organisation_id) as connection:
        written_row = (await connection.execute(change.returning(meeting_bots))).first()
    if written_row is None:
        raise RetryLater(0, "another bot was sent meanwhile")
    return written_row


async def _read(services: Services, provider: MeetingProvider, row: Row) -> BotReport:
    try:
        return await provider.read(build_order(row), row.provider_id)
    except ProviderBusy as busy:
        raise RetryLater(min(max(busy.seconds, 1.0), _LONGEST_BUSY_SECONDS), str(busy)) from busy
    except (BotGone, ProviderRefused) as exc:
        if row.status not in TERMINAL:
            await fail_bot(services, row, "provider_lost", str(exc) or None)
        return BotReport()


async def _keep_paying(services: Services, row: Row) -> None:
    """Reserves more for a call that goes on. Without credits, the bot leaves."""
    if row.started_at is None or not row.leases or row.left_at is not None:
        return
    seconds = int((services.clock.now() - row.started_at).total_seconds())
    payer = Payer(row.organisation_id, row.app_id or None, row.key_id)
    try:
        leases = await charges.grow(services, payer, row.leases, seconds, charges.read_spender(row.spender))
    except (CreditsExhausted, BudgetExhausted):
        await ask_to_leave(services, row, "credits_exhausted")
        return
    if leases is not None:
        await _note(services, row, leases=leases)


async def ask_to_leave(services: Services, row: Row, because: str) -> None:
    """Makes a bot leave its call. Does nothing for one that is over."""
    if row.status in TERMINAL:
        return
    if row.left_at is None:
        row = await _note(services, row, left_at=services.clock.now(), left_because=because)
    provider = find_provider(services, row)
    if provider is None or row.provider_id is None:
        return
    try:
        await provider.leave(build_order(row), row.provider_id)
    except ProviderBusy as busy:
        raise RetryLater(min(max(busy.seconds, 1.0), _LONGEST_BUSY_SECONDS), str(busy)) from busy
    except (BotGone, ProviderRefused):
        # It has left already, which the next look at it shows.
        return


async def _settle(services: Services, row: Row) -> Row:
    """Charges what is due of a bot that is over, and ends it once nothing more can become due."""
    if row.status not in TERMINAL:
        return row
    dimensions = charges.list_dimensions(recording=row.recording, transcript=row.transcript)
    now = services.clock.now()
    is_pending = False
    for dimension in dimensions:
        if not row.seconds:
            continue
        if dimension == "recording" or row.transcript_state == "ready":
            await _charge(services, row, dimension, now)
        elif row.transcript_state != "failed" and now - (row.completed_at or row.updated_at) < _TRANSCRIPT_FOR:
            is_pending = True
    if is_pending:
        return row
    await charges.release(services, row.organisation_id, row.leases)
    return await _note(services, row, settled_at=now)


async def _charge(services: Services, row: Row, dimension: Dimension, now: datetime) -> None:
    is_row = (meeting_usage.c.bot_id == row.id, meeting_usage.c.dimension == dimension)
    async with services.database.reading() as connection:
        if (await connection.execute(select(meeting_usage.c.id).where(*is_row))).first() is not None:
            return
    price = charges.compute_price(dimension, row.seconds, services.options.ai_markup)
    is_charged = bool(row.leases)
    if is_charged:
        await charges.settle(services, row.organisation_id, dimension, row.leases, price)
    usage = {
        "id": services.ids.uuid_at(now),
        "organisation_id": row.organisation_id,
        "app_id": row.app_id,
        "bot_id": row.id,
        "dimension": dimension,
        "seconds": row.seconds,
        "price": price,
        "charged": price if is_charged else 0,
        "created_at": now,
    }
    async with services.database.writing(lock=row.organisation_id) as connection:
        if (await connection.execute(select(meeting_usage.c.id).where(*is_row))).first() is None:
            await connection.execute(insert(meeting_usage), usage)


def _pause(services: Services, provider: MeetingProvider, row: Row) -> float:
    """Returns the seconds until the next look at a bot. Webhooks make a live provider's bots known at once."""
    now = services.clock.now()
    next_at = provider.find_next(build_order(row))
    if next_at is not None:
        return max(_SOONEST_SECONDS, (next_at - now).total_seconds())
    is_late = row.completed_at is not None and now - row.completed_at > timedelta(minutes=10)
    return _LATE_SECONDS if is_late else _LIVE_SECONDS
