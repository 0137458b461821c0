"""Mail as domains see it: written in the transaction of what asks for it, delivered afterwards."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from baobab.storage.sql.database import Execute, Unit


@dataclass(frozen=True, slots=True)
class Mail:
    """A mail that is to be sent.

    template: the name of a template, such as `verify_email`; values: what it shows, such as a code.
    app_id: the app whose user gets it; None for the installation's own mail.
    expires_at: when delivering it becomes pointless, because the code in it has expired.
    mail_id: its id, if it must be known before; new for each mail.
    """

    to: str
    template: str
    values: Mapping[str, str]
    app_id: str | None = None
    expires_at: datetime | None = None
    mail_id: str | None = None


class Mailer(Protocol):
    """The port through which mail is sent."""

    @property
    def delivers(self) -> bool:
        """Whether the installation's own mails reach people; without a mail server they stay in the outbox."""
        ...

    async def send(self, unit: Unit, mail: Mail) -> str:
        """Writes a mail in the unit and asks for its delivery when the unit commits; returns the mail's id.

        unit: a transaction in the database of the app's region, or in the home database for the installation's mail.
        """
        ...

    async def erase(self, execute: Execute, app_id: str, address: str) -> None:
        """Deletes an app's mails to an address; those that have not been sent yet are never sent.

        execute: a statement in the database of the app's region.
        """
        ...
