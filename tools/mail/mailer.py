"""The mailer: writes a mail in the transaction of what asks for it, and asks for its delivery."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select

from baobab.runtime.net.smtp import SmtpServer
from baobab.storage.clock import Clock, Ids
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core.auth.directory import Directory
from baobab.tools.core.jobs import Jobs
from baobab.tools.core.liveness import Liveness
from baobab.tools.core.mail import Mail
from baobab.tools.mail.rendering import render_mail
from baobab.tools.mail.tables import INSTALLATION, mail_settings, mails

DELIVER = "mail_deliver"
"""The kind of job that delivers a mail (tools/mail/jobs.py)."""
NAME = "Baobab"


@dataclass(frozen=True, slots=True)
class Postbox:
    """Where mails go. server: None keeps them in the outbox. sender: the address that they come from."""

    server: SmtpServer | None
    sender: str


class OutboxMailer:
    """Writes mails to the table `mails`, where those who run an app read them while no SMTP server is set."""

    def __init__(
        self,
        postbox: Postbox,
        directory: Directory,
        vault: Vault,
        jobs: Jobs,
        clock: Clock,
        ids: Ids,
        liveness: Liveness,
    ) -> None:
        self.postbox = postbox
        self._directory = directory
        self._vault = vault
        self._jobs = jobs
        self._clock = clock
        self._ids = ids
        self._liveness = liveness

    @property
    def delivers(self) -> bool:
        return self.postbox.server is not None

    async def send(self, unit: Unit, mail: Mail) -> str:
        """Writes a mail in the unit and asks for its delivery when the unit commits; returns the mail's id."""
        app = None if mail.app_id is None else await self._directory.app(mail.app_id)
        name = NAME if app is None else app.title
        settings = None if app is None else await find_settings(unit.execute, app.id)
        if settings is not None and settings.from_name is not None:
            name = settings.from_name
        has_server = self.postbox.server is not None or (settings is not None and settings.smtp_host is not None)
        if has_server:
            # Nothing is promised that a copy of an installation does not send.
            self._liveness.require_live()
        colour = None if settings is None else settings.colour
        rendered_mail = render_mail(mail.template, name, mail.values, colour)
        mail_id = mail.mail_id or self._ids.uuid()
        row = {"app_id": mail.app_id or INSTALLATION, "id": mail_id, "to_address": mail.to, "template": mail.template}
        row |= {"subject": rendered_mail.subject[:300], "sender_name": name}
        row |= {name: self._vault.seal(text.encode(), seal_context(name, mail_id)) for name, text in (
            ("text", rendered_mail.text), ("html", rendered_mail.html)
        )}  # fmt: skip
        status = "queued" if has_server else "outbox"
        times = {"created_at": self._clock.now(), "expires_at": mail.expires_at}
        await unit.execute(insert(mails), {**row, **times, "status": status})
        if status == "queued":
            arguments = {"app_id": row["app_id"], "mail_id": mail_id}
            tenant = None if app is None else app.organisation_id
            await self._jobs.enqueue(unit, DELIVER, arguments, job_id=f"mail:{mail_id}", tenant=tenant)
        return mail_id

    async def erase(self, execute: Execute, app_id: str, address: str) -> None:
        """Deletes an app's mails to an address; those that have not been sent are not sent any more."""
        await execute(delete(mails).where(mails.c.app_id == app_id, mails.c.to_address == address))


async def find_settings(execute: Execute, app_id: str) -> Any:
    """Returns the row of an app's mail settings, or None."""
    return (await execute(select(mail_settings).where(mail_settings.c.app_id == app_id))).first()


def seal_context(column: str, mail_id: str) -> str:
    """Returns the context that a mail's sealed text is bound to, as the rotation of secrets expects it."""
    return f"{mails.name}.{column}:{mail_id}"
