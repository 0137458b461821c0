"""Jobs of mail: deliver one, and delete old ones."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update

from baobab.runtime.net.smtp import MailDelayed, MailRefused, send_message
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Database
from baobab.tools.core import AppNotFound, Job, RetryLater, Services
from baobab.tools.core.app_data import MOVE_ENDED
from baobab.tools.core.job import LEFT_UNDONE
from baobab.tools.core.jobs import Event
from baobab.tools.mail.mailer import find_settings, seal_context
from baobab.tools.mail.message import compose_message
from baobab.tools.mail.rendering import RenderedMail
from baobab.tools.mail.routes import find_route
from baobab.tools.mail.tables import FREEZES, INSTALLATION, mails
from baobab.tools.mail.toolset import FAILED, mail

_MOST_ATTEMPTS = 10
_LONGEST_PAUSE_SECONDS = 1800
_MOVING_SECONDS = 5.0
_KEPT = timedelta(days=30)


async def _drop_mails(services: Services, database: Database, jobs: Sequence[Mapping[str, Any]]) -> None:
    del services
    values = {"status": "failed", "error": LEFT_UNDONE}
    async with database.writing(lock=None) as connection:
        for each in jobs:
            key = (mails.c.app_id == each["app_id"], mails.c.id == each["mail_id"], mails.c.status == "queued")
            await connection.execute(update(mails).where(*key).values(**values))


@mail.job(attempts=1000, drop=_drop_mails)
async def mail_deliver(job: Job, app_id: str, mail_id: str) -> None:
    """Hands a mail over to the SMTP server. A worker that is killed right after that sends it once more, with the same
    Message-ID, by which mail servers drop the second.
    """
    key = (mails.c.app_id == app_id, mails.c.id == mail_id)
    async with job.database.reading() as connection:
        row: Any = (await connection.execute(select(mails).where(*key))).first()
        route = find_route(job.services, await find_settings(connection.execute, app_id))
        if await FREEZES.is_frozen(connection.execute, app_id):
            raise RetryLater(_MOVING_SECONDS, "the app is being moved")
    if row is None or row.status != "queued":
        return
    now, changes, pause = job.services.clock.now(), {"attempts": row.attempts + 1, "error": None}, None
    if row.expires_at is not None and row.expires_at <= now:
        changes |= {"status": "expired"}
    elif route is None:
        # The mail server was removed after the mail was written.
        changes = {"status": "outbox"}
    else:
        texts = [open_text(job.services.vault, row, column) for column in ("text", "html")]
        try:
            rendered_mail = RenderedMail(row.subject, *texts)
            message = compose_message(route, row.sender_name, row.to_address, rendered_mail, row.id, row.created_at)
            await send_message(route.server, message, route.dial)
            changes |= {"status": "sent", "sent_at": job.services.clock.now()}
        except MailRefused as exc:
            changes |= {"status": "failed", "error": str(exc)}
        except MailDelayed as exc:
            changes |= {"error": str(exc)}
            if row.attempts + 1 >= _MOST_ATTEMPTS:
                changes |= {"status": "failed"}
            else:
                pause = min(5 * 2**row.attempts, _LONGEST_PAUSE_SECONDS)
    async with job.writing(last=pause is None, lock=None) as unit:
        await unit.execute(update(mails).where(*key).values(**changes))
        if changes.get("status") == "failed" and app_id != INSTALLATION:
            # Without the subject, which may hold a code.
            data = {"mail_id": mail_id, "to": row.to_address, "template": row.template, "reason": changes["error"]}
            await job.services.jobs.emit(unit, FAILED, app_id=app_id, data=data, only_awaited=True)
    if pause is not None:
        raise RetryLater(pause, str(changes["error"]))


def open_text(vault: Vault, row: Any, column: str) -> str:
    return vault.open(getattr(row, column), seal_context(column, row.id)).decode()


@mail.job(on=MOVE_ENDED)
async def mail_resume(job: Job, event: Event) -> None:
    """Asks for the delivery of what waited while an app was moved, where the app is now."""
    services = job.services
    if event.app_id is None:
        return
    try:
        app = await services.directory.app(event.app_id)
    except AppNotFound:
        return
    database = services.stores_of(app.region).database
    queued_ids = select(mails.c.id).where(mails.c.app_id == app.id, mails.c.status == "queued")
    async with database.reading() as connection:
        mail_ids = (await connection.execute(queued_ids)).scalars().all()
    async with database.writing_unit(lock=None) as unit:
        for mail_id in mail_ids:
            arguments = {"app_id": app.id, "mail_id": mail_id}
            # An id of its own: the job of the region that the app comes from may have ended without sending it.
            job_id = f"mail:{mail_id}:{event.id}"
            await services.jobs.enqueue(
                unit, mail_deliver.__name__, arguments, job_id=job_id, tenant=app.organisation_id
            )


@mail.job(every=3600.0)
async def mail_prune(job: Job) -> None:
    """Deletes mails of more than 30 days ago."""
    before = job.services.clock.now() - _KEPT
    databases: dict[int, Database] = {id(each.database): each.database for each in job.services.regions.values()}
    for database in databases.values():
        async with database.writing(lock=None, bulk=True) as connection:
            await connection.execute(delete(mails).where(mails.c.created_at < before))
