"""The schemas of the notices' arguments and answers."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import NotSecret, Text, Uuid

Kind = Literal["email", "webhook", "slack", "discord", "push"]
Which = Literal["mine", "all"]
TimeOfDay = Annotated[str, Text(5, pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$"), Field(examples=["22:00"])]
TimeZone = Annotated[str, Text(60, min_length=1, pattern="^[A-Za-z0-9_+/-]+$"), Field(examples=["Europe/Prague"])]


class Quiet(TypedDict):
    """Nothing is sent from one time of day until another; what waits then is told at their end."""

    begin: TimeOfDay
    end: TimeOfDay
    time_zone: TimeZone


class Escalation(TypedDict):
    """Another member is told of what nobody has decided after some minutes, if they may decide it."""

    after_minutes: Annotated[int, Field(ge=1, le=1440)]
    account_id: Uuid


class Channel(TypedDict):
    id: str
    kind: Kind
    name: str
    address: Annotated[str, Field(description="The mail address, or the host; the rest of a URL is a credential.")]
    confirmed: Annotated[bool, Field(description="A mail address is used once the code mailed to it was given.")]
    created_at: datetime


class Notices(TypedDict):
    """How a person is notified: about which calls, when and where."""

    which: Which
    digest_minutes: int
    quiet: Quiet | None
    escalation: Escalation | None
    channels: list[Channel]


class ChannelMade(TypedDict):
    channel: Channel
    secret: Annotated[
        str | None,
        Field(description="Signs a webhook (standardwebhooks.com). Shown this once: keep it at the receiver."),
    ]


class OneChannel(TypedDict):
    channel: Channel


class ChannelRemoved(TypedDict):
    removed: str


class ChannelTried(TypedDict):
    delivered: Annotated[bool, Field(description="Of a mail: whether it is on its way.")]
    answer: Annotated[str | None, Field(description="What was wrong.")]


class NoticeMessage(TypedDict):
    """One message to a channel."""

    id: str
    channel_id: str
    kind: Kind
    approval_ids: list[str]
    status: Annotated[
        Literal["queued", "sent", "mailed", "failed", "unknown", "dropped"],
        Field(
            description="`mailed`: handed to the mailer; `unknown`: a server ended in the middle, and it is not sent "
            "again; `dropped`: somebody had decided before it was sent."
        ),
    ]
    attempts: int
    error: str | None
    created_at: datetime
    finished_at: datetime | None


class NoticeMessages(TypedDict):
    """Newest first."""

    messages: list[NoticeMessage]


class PushKey(TypedDict):
    key: Annotated[
        str,
        NotSecret("the public key of the installation"),
        Field(description="What a browser subscribes with, as `applicationServerKey`."),
    ]


class NoticesOfMember(TypedDict):
    """A member of an organisation as somebody who decides."""

    account_id: str
    notified: Annotated[bool, Field(description="Whether they have a confirmed channel, so that they hear of calls.")]
    decided: Annotated[int, Field(description="Calls that they approved or rejected in the last 90 days.")]


class NoticesOfMembers(TypedDict):
    """All members, the earliest first."""

    members: list[NoticesOfMember]
