"""The results of the tools of mail."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

Status = Literal["outbox", "queued", "sent", "failed", "expired"]


class OutboxMail(TypedDict):
    """A mail to a user of the app."""

    id: str
    to: str
    subject: str
    template: str
    status: Annotated[Status, Field(description="`outbox`: no SMTP server is set, so it is to be read here.")]
    error: Annotated[str | None, Field(description="Why it was not delivered yet, or at all.")]
    text: Annotated[str | None, Field(description="Null once the mail was sent: only its reader needs the code in it.")]
    created_at: datetime
    sent_at: datetime | None
    expires_at: datetime | None


class Outbox(TypedDict):
    """The newest first."""

    mails: list[OutboxMail]
    next_cursor: str | None


class WholeMail(OutboxMail):
    html: str | None


class OneMail(TypedDict):
    mail: WholeMail
