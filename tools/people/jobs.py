"""The jobs of people: the sweep, and the callbacks of the simulator."""

from contextlib import suppress
from datetime import timedelta

from sqlalchemy import delete, select, update

from baobab.storage.sql.database import Database
from baobab.tools.core import AppNotFound, BaobabError, Job, RetryLater, Services
from baobab.tools.people.errors import LookupNotFound
from baobab.tools.people.lookups import settle_lookup, take_result
from baobab.tools.people.paid_calls import charge_row
from baobab.tools.people.providers.simulator import find_email
from baobab.tools.people.tables import FREEZES, PENDING, UNCHARGED, UNSETTLED, lookups, profiles, usage
from baobab.tools.people.toolset import people

EXPIRED_AFTER = timedelta(hours=24)
CHARGED_AFTER = timedelta(minutes=1)
LOOKUPS_KEPT = timedelta(days=30)
"""How long a lookup with its address is kept after its end, as long as a profile."""
_ROUND = 500
_RETRY_SECONDS = 30.0


@people.job(every=300)
async def people_sweep(job: Job) -> None:
    """Expire e-mail lookups without a result, charge results that are not charged yet, and delete old rows."""
    services = job.services
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        await _sweep(services, database)


@people.job(drop=True)
async def people_simulated_callback(job: Job, app_id: str, lookup_id: str, token: str, url: str) -> None:
    """Send the result of a simulated lookup, as a provider would."""
    try:
        app = await job.services.directory.app(app_id)
        database = job.services.stores_of(app.region).database
        await take_result(job.services, database, app_id, lookup_id, token, find_email(url))
    except (AppNotFound, LookupNotFound):
        return
    except BaobabError as exc:
        raise RetryLater(_RETRY_SECONDS, exc.message) from exc


async def _sweep(services: Services, database: Database) -> None:
    now = services.clock.now()
    is_late = (PENDING, lookups.c.created_at <= now - EXPIRED_AFTER, FREEZES.is_thawed(lookups.c.app_id))
    # A call that has just been made charges its row itself.
    is_left = (UNCHARGED, usage.c.created_at <= now - CHARGED_AFTER, FREEZES.is_thawed(usage.c.app_id))
    async with database.reading() as connection:
        late_rows = (
            await connection.execute(select(lookups.c.app_id, lookups.c.id).where(*is_late).limit(_ROUND))
        ).all()
        uncharged_rows = (
            await connection.execute(select(usage.c.app_id, usage.c.id).where(*is_left).limit(_ROUND))
        ).all()
        unsettled_rows = (
            await connection.execute(select(lookups.c.app_id, lookups.c.id).where(UNSETTLED).limit(_ROUND))
        ).all()
    for row in late_rows:
        # Under the lock of the app: a result may come at this moment.
        async with database.writing_unit(lock=row.app_id) as unit:
            expiry = update(lookups).where(lookups.c.app_id == row.app_id, lookups.c.id == row.id, *is_late)
            await unit.execute(expiry.values(status="expired", ended_at=now, settled_at=now))
    for row in uncharged_rows:
        with suppress(AppNotFound):
            await charge_row(services, database, row.app_id, row.id)
    for row in unsettled_rows:
        await settle_lookup(services, database, row.app_id, row.id)
    async with database.writing(lock=None) as connection:
        await connection.execute(
            delete(profiles).where(profiles.c.expires_at <= now, FREEZES.is_thawed(profiles.c.app_id))
        )
        is_old = (lookups.c.ended_at < now - LOOKUPS_KEPT, FREEZES.is_thawed(lookups.c.app_id))
        await connection.execute(delete(lookups).where(*is_old, lookups.c.settled_at.is_not(None)))
