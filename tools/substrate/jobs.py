"""Jobs of the substrate."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from sqlalchemy import delete, select, tuple_, update

from baobab.storage.sql.database import Database, mark_long
from baobab.tools.core import Job, Services
from baobab.tools.core.job import LEFT_UNDONE
from baobab.tools.core.jobs import Event
from baobab.tools.substrate import tables
from baobab.tools.substrate.attention.firing import fire_rule
from baobab.tools.substrate.meaning.duplicates import propose_consolidations
from baobab.tools.substrate.meaning.filling import fill_all
from baobab.tools.substrate.outbox import try_delivery
from baobab.tools.substrate.propagation import Step, UserChange, mirror_user
from baobab.tools.substrate.quota import count_all
from baobab.tools.substrate.search_index import erase_words
from baobab.tools.substrate.snapshots import take_snapshot
from baobab.tools.substrate.toolset import substrate

_AT_ONCE = 200
_TRIMMED_AT_ONCE = 500
_KEPT = timedelta(days=2)
"""How long the stream may look back."""
_HISTORY_KEPT = timedelta(days=30)
_TICK_SECONDS = 5
_STUCK_SECONDS = 600
_MOST_DUE = 1000


@substrate.job(every=600)
async def substrate_take_snapshots(job: Job) -> None:
    """Take the snapshot of the day of each organisation that has none yet."""
    services = job.services
    now = services.clock.now()
    day, after = now.date(), ""
    settings, snapshots = tables.settings.c, tables.snapshots.c
    done_organisations = select(snapshots.organisation_id).where(snapshots.snapshot_date == day)
    while True:
        query = select(settings.organisation_id).where(
            settings.organisation_id > after, settings.organisation_id.not_in(done_organisations)
        )
        async with services.database.reading() as connection:
            rows = await connection.execute(query.order_by(settings.organisation_id).limit(_AT_ONCE))
            organisations = list(rows.scalars())
        if not organisations:
            return
        for organisation_id in organisations:
            async with job.writing(lock=organisation_id) as unit:
                await take_snapshot(unit.execute, services.database.dialect, organisation_id, day, now)
        after = organisations[-1]


@substrate.job(every=60)
async def substrate_count_bytes(job: Job) -> None:
    """Count the bytes of memories that an earlier version has not counted."""
    await count_all(job)


@substrate.job(every=_TICK_SECONDS)
async def substrate_embed(job: Job) -> None:
    """Give new memories the vectors by which they are found by meaning."""
    await fill_all(job)


@substrate.job()
async def substrate_erase_words(job: Job) -> None:
    """Erase the words of forgotten memories from the full-text index."""
    await erase_words(job)


@substrate.job(every=3600)
async def substrate_propose_consolidations(job: Job) -> None:
    """Propose once a day to consolidate memories that say the same, where an organisation has written new ones."""
    await propose_consolidations(job)


@substrate.job(on="user.authenticated")
async def substrate_mirror_user(job: Job, event: Event) -> None:
    """Mirror a user who has signed up to an app as an entity of the substrate that the app is linked to."""
    if event.data.get("isNewUser"):
        await _mirror(job, event, "signed_up")


@substrate.job(on="user.email_verified")
async def substrate_mirror_address(job: Job, event: Event) -> None:
    """Note the address of a mirrored user once it is verified."""
    await _mirror(job, event, "verified")


@substrate.job(on="user.deleted")
async def substrate_mirror_deletion(job: Job, event: Event) -> None:
    """Mark the entity of a mirrored user who was deleted."""
    await _mirror(job, event, "deleted")


async def _mirror(job: Job, event: Event, step: Step) -> None:
    if event.app_id is not None:
        await mirror_user(job, UserChange(event.app_id, event.data["user"], event.id, event.at, step))


@substrate.job()
async def substrate_mirror_later(
    job: Job, app_id: str, user: dict[str, Any], event_id: str, at: str, step: Step
) -> None:
    """Mirror a user for whom the memory had no room, as soon as it has."""
    await mirror_user(job, UserChange(app_id, user, event_id, datetime.fromisoformat(at), step), has_waited=True)


@substrate.job(every=3600)
async def substrate_trim_changes(job: Job) -> None:
    """Forget changes that only the stream needed: nothing can be undone with them."""
    changes, database = tables.changes.c, job.services.database
    place = tuple_(changes.organisation_id, changes.seq)
    query = select(changes.organisation_id, changes.seq).where(
        changes.action_id.is_(None), changes.created_at < job.services.clock.now() - _KEPT
    )
    query = mark_long(query.order_by(changes.organisation_id, changes.seq).limit(_TRIMMED_AT_ONCE))
    after: tuple[str, int] = ("", 0)
    while True:
        # Looked for without the write lock: it goes through all changes, of which most stay.
        async with database.reading() as connection:
            change_rows = (await connection.execute(query.where(place > after))).all()
        for organisation_id, rows in groupby(change_rows, key=lambda row: row.organisation_id):
            conditions = (changes.organisation_id == organisation_id, changes.seq.in_([row.seq for row in rows]))
            async with job.writing(bulk=True) as unit:
                await unit.execute(delete(tables.changes).where(*conditions))
        if len(change_rows) < _TRIMMED_AT_ONCE:
            return
        after = (change_rows[-1].organisation_id, change_rows[-1].seq)


@substrate.job(every=_TICK_SECONDS)
async def substrate_tick(job: Job) -> None:
    """Ask for the firing of each rule that is due."""
    services, rules = job.services, tables.attention_rules.c
    now = services.clock.now()
    query = select(rules.organisation_id, rules.id, rules.next_fire_at).where(rules.next_fire_at <= now)
    async with job.database.reading() as connection:
        due = (await connection.execute(query.order_by(rules.next_fire_at).limit(_MOST_DUE))).all()
    if not due:
        return
    # One job for each tick. Where it has failed for good, there is another after a while.
    turn = int(services.clock.time() // _STUCK_SECONDS)
    async with job.writing() as unit:
        for organisation_id, rule_id, tick in due:
            arguments = {"organisation_id": organisation_id, "rule_id": rule_id, "due": tick.isoformat()}
            job_id = f"fire:{rule_id}:{tick.timestamp():.0f}:{turn}"
            await services.jobs.enqueue(unit, substrate_fire.__name__, arguments, job_id=job_id, tenant=organisation_id)


@substrate.job()
async def substrate_fire(job: Job, organisation_id: str, rule_id: str, due: str) -> None:
    """Make one tick of a rule."""
    await fire_rule(job, organisation_id, rule_id, datetime.fromisoformat(due))


async def _drop_deliveries(services: Services, database: Database, jobs: Sequence[Mapping[str, Any]]) -> None:
    outbox = tables.outbox
    values = {"state": "cancelled", "last_error": LEFT_UNDONE, "next_attempt_at": None}
    async with database.writing(lock=None) as connection:
        for each in jobs:
            key = (outbox.c.organisation_id == each["organisation_id"], outbox.c.id == each["outbox_id"])
            is_pending = (outbox.c.state == "pending", outbox.c.round == each["round_number"])
            changes = values | {"updated_at": services.clock.now()}
            await connection.execute(update(outbox).where(*key, *is_pending).values(**changes))


@substrate.job(attempts=1000, cancel="substrate_outbox_cancel", drop=_drop_deliveries)
async def substrate_deliver(job: Job, organisation_id: str, outbox_id: str, round_number: int) -> None:
    """Tell a target of an executed action."""
    await try_delivery(job, organisation_id, outbox_id, round_number)


@substrate.job(every=3600)
async def substrate_trim_history(job: Job) -> None:
    """Forget ticks and deliveries of more than 30 days ago, and tickets that nobody used."""
    firings, outbox, tickets = tables.attention_rule_firings, tables.outbox, tables.stream_tickets
    now = job.services.clock.now()
    old = now - _HISTORY_KEPT
    async with job.writing(bulk=True) as unit:
        await unit.execute(delete(firings).where(firings.c.created_at < old))
        await unit.execute(delete(outbox).where(outbox.c.updated_at < old, outbox.c.state != "pending"))
        await unit.execute(delete(tickets).where(tickets.c.expires_at < now))
