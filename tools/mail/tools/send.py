"""/v1/{app_id}/auth/mail/send: a mail to somebody whom an app knows."""

import re
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID, uuid5

from pydantic import Field
from sqlalchemy import func, select

from baobab.tools.core import (
    AppId,
    AppOwner,
    Audit,
    Call,
    Email,
    Guard,
    NameText,
    NotFound,
    NotSecret,
    RateLimited,
    Rest,
    Text,
    Uuid,
)
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.core.guard.wording import quote_text
from baobab.tools.core.mail import Mail
from baobab.tools.mail.errors import MailKeyReused, MailNotSetUp, RecipientRefused
from baobab.tools.mail.mailer import find_settings
from baobab.tools.mail.recipients import Recipient, find_recipient
from baobab.tools.mail.routes import find_route
from baobab.tools.mail.schemas import SentMail
from baobab.tools.mail.tables import FREEZES, mails
from baobab.tools.mail.toolset import mail

TEMPLATE = "message"
MOST_OF_APP, APP_WINDOW = 200, timedelta(hours=1)
MOST_TO_ONE, ONE_WINDOW = 20, timedelta(days=1)
"""The most mails that an app sends in an hour, and to one recipient in a day."""
_KEYS = UUID("6f1c2c53-3d8c-4d0a-9e0b-5a2f7b9b1f64")

To = Annotated[
    Uuid | Email,
    Field(
        description="Who gets the mail: the id of a user of the app, or an address: of a user or a member of the "
        "organisation who has confirmed it, or one of `recipients` in op:mail_settings_get.",
        examples=["ada@example.com"],
    ),
]
Subject = Annotated[str, NameText(200, min_length=1), Field(examples=["Your order"])]
Body = Annotated[str, Text(20_000, min_length=1), Field(description="Plain text.", examples=["It is on its way."])]
Key = Annotated[
    str,
    Text(128, min_length=1),
    NotSecret("a name of the caller's own"),
    Field(
        description="A name of your own for this mail: with the same one it is sent once, for the 30 days it is kept."
    ),
]


def _say_outcome(arguments: Mapping[str, Any]) -> str:
    return f"Mail {quote_text(arguments['to'])}: {quote_text(arguments['subject'])}"


async def _prepare(call: Call, to: str) -> Recipient:
    """Returns who gets the mail. Raises RecipientRefused and MailNotSetUp."""
    async with call.reading() as execute:
        settings = await find_settings(execute, call.require_app().id)
    recipient = await find_recipient(call, to, settings)
    if find_route(call.services, settings) is None:
        raise MailNotSetUp
    return recipient


async def _preview(call: Call, to: str, subject: str, text: str, **_arguments: Any) -> Preview:
    recipient = await _prepare(call, to)
    return Preview(
        f"It would mail {recipient.text} with the subject {quote_text(subject)}. The text:\n\n{text}",
        label=recipient.name,
    )


async def _digest_recipient(call: Call, to: str, **_arguments: Any) -> str:
    """An approved mail is not sent where the user's address has changed since."""
    return sha256((await _prepare(call, to)).address.encode()).hexdigest()


@mail.tool(
    "POST /mail/send",
    access=AppOwner(),
    effect="external",
    raises=(RecipientRefused, MailNotSetUp, MailKeyReused, NotFound),
    audit=Audit("auth.mail.send", category="auth", resource="mail"),
    rest=Rest(status=201, examples={"to": "ada@example.com", "subject": "Your order", "text": "It is on its way."}),
    guard=Guard(
        preview=_preview,
        meaning=_digest_recipient,
        outcome=_say_outcome,
        as_app=AsApp(literal=("to",), fills=("subject", "text")),
        consequence="A mail cannot be taken back.",
    ),
)
async def mail_send(
    call: Call, app_id: AppId, to: To, subject: Subject, text: Body, idempotency_key: Key | None = None
) -> SentMail:
    """Send a mail to a user of the app, to a member of its organisation, or to an address that the app has listed.

    An app sends at most 200 mails an hour, and 20 a day to one recipient. op:mail_outbox_get tells what became of one.

    subject: one line.
    text: plain text; it is also sent as HTML, in which nothing of it becomes markup.
    """
    recipient = await _prepare(call, to)
    values = {"subject": subject, "body": text}
    async with FREEZES.writing(call) as unit:
        mail_id = None
        if idempotency_key is not None:
            mail_id = str(uuid5(_KEYS, f"{app_id}:{idempotency_key}"))
            is_same = (mails.c.app_id == app_id, mails.c.id == mail_id)
            row = (await unit.execute(select(mails).where(*is_same))).first()
            if row is not None:
                if (row.to_address, row.subject) != (recipient.address, _flatten(subject)):
                    raise MailKeyReused
                return _describe(row.id, row.to_address, row.subject, row.status)
        await _require_room(call, unit.execute, recipient.address)
        message = Mail(recipient.address, TEMPLATE, values, app_id=app_id, mail_id=mail_id)
        mail_id = await call.services.mailer.send(unit, message)
    call.audit.resource_id = mail_id
    call.audit.data |= {"to": recipient.address, "subject": subject}
    return _describe(mail_id, recipient.address, _flatten(subject), "queued")


def _describe(mail_id: str, to: str, subject: str, status: Any) -> SentMail:
    return {"mail": {"id": mail_id, "to": to, "subject": subject, "status": status}}


def _flatten(subject: str) -> str:
    return re.sub(r"\s+", " ", subject).strip()


async def _require_room(call: Call, execute: Any, address: str) -> None:
    """Raises RateLimited. It counts rows, under the lock of the app, so that the limits are exact."""
    of_app = (mails.c.app_id == call.require_app().id, mails.c.template == TEMPLATE)
    for most, window, conditions in (
        (MOST_OF_APP, APP_WINDOW, of_app),
        (MOST_TO_ONE, ONE_WINDOW, (*of_app, mails.c.to_address == address)),
    ):
        query = select(func.count(), func.min(mails.c.created_at)).where(
            *conditions, mails.c.created_at > call.now - window
        )
        count, oldest = (await execute(query)).one()
        if count >= most:
            wait = max(int((oldest + window - call.now).total_seconds()) + 1, 1)
            raise RateLimited(wait, most, int(window.total_seconds()))
