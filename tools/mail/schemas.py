"""The arguments and results of the tools of mail."""

from datetime import datetime
from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from baobab.tools.core import Secret, Text

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


class SentHead(TypedDict):
    id: str
    to: str
    subject: str
    status: Annotated[Status, Field(description="`queued` until the mail server has taken it.")]


class SentMail(TypedDict):
    mail: SentHead


class WholeMail(OutboxMail):
    html: str | None


class OneMail(TypedDict):
    mail: WholeMail


ADDRESS = r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,185}$"
"""An address that can stand in a header as it is."""
_HOST = r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$"
Tls = Annotated[
    Literal["starttls", "tls"],
    Field(description="`starttls` begins in clear and must upgrade before anything is sent; `tls` from the start."),
]


@with_config(ConfigDict(extra="forbid", strict=True))
class MailServer(TypedDict):
    """A mail server of an app's own."""

    host: Annotated[str, Text(253, min_length=1, pattern=_HOST), Field(examples=["smtp.example.com"])]
    from_address: Annotated[str, Text(250, pattern=ADDRESS), Field(examples=["hello@example.com"])]
    port: NotRequired[Annotated[int, Field(ge=1, le=65535, description="587, or 465 for `tls`, if left out.")]]
    tls: NotRequired[Tls]
    username: NotRequired[Annotated[str, Text(250, min_length=1, pattern="^[ -~]+$")]]
    password: NotRequired[Annotated[str, Secret(500, min_length=1, pattern="^[ -~]+$")]]


class KnownMailServer(TypedDict):
    """A mail server of an app's own, without its password."""

    host: str
    port: int
    tls: Tls
    from_address: str
    username: str | None
    password_set: bool


class MailSettings(TypedDict):
    """How an app's mail looks, and which server takes it."""

    from_name: Annotated[str | None, Field(description="Null: the app's name.")]
    reply_to: str | None
    colour: str | None
    recipients: Annotated[list[str], Field(description="Whom op:mail_send may mail beside users and members.")]
    smtp: Annotated[KnownMailServer | None, Field(description="Null: the installation's server, if it has one.")]


class OneMailSettings(TypedDict):
    mail: MailSettings


class MailTried(TypedDict):
    """The result of a test mail."""

    delivered: bool
    server: str | None
    answer: Annotated[str, Field(description="What the server said, or why it could not be asked.")]
