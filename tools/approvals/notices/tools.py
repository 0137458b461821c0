"""/v1/notices: what a person is told of calls that wait, when, and where."""

import hmac
import json
from typing import Annotated, Any, cast
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field
from sqlalchemy import delete, func, insert, select, update

from baobab.runtime.egress import AddressRefused, Egress, UrlRefused
from baobab.runtime.webhooks import new_secret
from baobab.storage.tables import build_upsert
from baobab.tools.approvals.notices.channels import (
    EMAIL,
    PUSH,
    WEBHOOK,
    open_secret,
    open_target,
    seal_context,
    send_message,
)
from baobab.tools.approvals.notices.errors import (
    ChannelNotFound,
    ChannelUnclear,
    CodeWrong,
    NoMailServer,
    ScheduleUnclear,
    TooManyChannels,
)
from baobab.tools.approvals.notices.messages import Notice
from baobab.tools.approvals.notices.push import PushSender, check_subscription
from baobab.tools.approvals.notices.schemas import (
    Channel,
    ChannelMade,
    ChannelRemoved,
    ChannelTried,
    Escalation,
    Kind,
    NoticeMessage,
    NoticeMessages,
    Notices,
    OneChannel,
    PushKey,
    Quiet,
    Which,
)
from baobab.tools.approvals.notices.sending import list_url
from baobab.tools.approvals.notices.tables import notice_channels, notice_messages, notice_settings
from baobab.tools.approvals.notices.toolset import notices
from baobab.tools.core.auth.access import AnyAccount
from baobab.tools.core.auth.tables import members
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.limits import PerOrganisation
from baobab.tools.core.mail import Mail
from baobab.tools.core.pagination import PageSize
from baobab.tools.core.secret import Secret
from baobab.tools.core.toolset import Guard, Rest
from baobab.tools.core.types import OMITTED, Email, NameText, Text, Uuid

MOST_CHANNELS = 10
_CODE_LENGTH = 8
# A caller who gets a person's notices learns what waits, and the person does not.
_GUARD = Guard(grants=True)
_PERSON = AnyAccount()
_DEFAULTS: dict[str, Any] = {"which": "mine", "digest_minutes": 0}

ChannelId = Annotated[Uuid, Field(description="The channel, by its `id`.")]
Digest = Annotated[int, Field(ge=0, le=1440)]
Address = Annotated[str, Secret(2000, pattern=r"^https?://")]
Code = Annotated[str, Secret(20)]


@notices.tool("GET /", access=_PERSON, effect="read", guard=_GUARD)
async def notices_get(call: Call) -> Notices:
    """Read how this account is notified of calls that wait: of which, when and where."""
    return await _read(call)


@notices.tool(
    "PATCH /",
    access=_PERSON,
    effect="write",
    raises=(ScheduleUnclear,),
    guard=_GUARD,
    audit=Audit("notices.update", category="auth", resource="account"),
    rest=Rest(examples={"digest_minutes": 30}),
)
async def notices_update(
    call: Call,
    which: Which | None = OMITTED,
    digest_minutes: Digest = OMITTED,
    quiet: Quiet | None = OMITTED,
    escalation: Escalation | None = OMITTED,
) -> Notices:
    """Change how this account is notified of calls that wait; what is left out stays.

    which: `mine` for calls of the account's own keys and runs, and those that name it or admins as approvers; `all` for
      all that it may decide about. Null for `mine`.
    digest_minutes: what comes in so many minutes is told together; 0 for at once, and at most one message in a minute.
    quiet: the hours in which nothing is sent; null for none.
    escalation: who is told of what nobody has decided in time; null for nobody. They get it where they set up notices.
    """
    changes: dict[str, Any] = {}
    if which is not OMITTED:
        changes["which"] = which or "mine"
    if digest_minutes is not OMITTED:
        changes["digest_minutes"] = digest_minutes
    if quiet is not OMITTED:
        changes |= _read_quiet(quiet)
    if escalation is not OMITTED:
        changes |= await _read_escalation(call, escalation)
    await _save(call, changes)
    return await _read(call)


@notices.tool(
    "POST /channels",
    access=_PERSON,
    effect="write",
    raises=(TooManyChannels, ChannelUnclear, NoMailServer, AddressRefused, UrlRefused),
    limit=PerOrganisation(60, 3600),
    guard=_GUARD,
    audit=Audit("notices.channel.add", category="auth", resource="notice_channel"),
    rest=Rest(status=201, examples={"kind": "slack", "url": "https://hooks.slack.com/services/T0/B0/abc"}),
)
async def notices_channel_add(
    call: Call,
    kind: Kind,
    name: Annotated[str, NameText(100)] = "",
    email: Email | None = None,
    url: Address | None = None,
    p256dh: Annotated[str, Text(100)] | None = None,
    auth: Annotated[str, Secret(50)] | None = None,
) -> ChannelMade:
    """Add a channel on which this account is notified of calls that wait.

    kind: `email`, `webhook` (signed), `slack` or `discord` (their incoming webhooks), or `push` (a browser).
    name: what the person calls it.
    email: the address of `email`; a code is mailed to it, which op:notices_channel_confirm takes.
    url: of a webhook, or the endpoint of a browser's subscription. Private addresses are refused.
    p256dh: the browser's public key, in base64url, as its subscription has it.
    auth: the browser's secret, in base64url, as its subscription has it.
    """
    target = _read_target(call, kind, email, url, p256dh, auth)
    await _save(call, {})
    count_query = (
        select(func.count()).select_from(notice_channels).where(notice_channels.c.account_id == _account(call))
    )
    if (await call.execute(count_query)).scalar_one() >= MOST_CHANNELS:
        raise TooManyChannels(details={"limit": MOST_CHANNELS})
    channel_id, ids = call.services.ids.uuid(), call.services.ids
    secret = new_secret(ids) if kind == WEBHOOK else ids.secret(_CODE_LENGTH) if kind == EMAIL else None
    vault = call.services.vault
    row = {
        "id": channel_id,
        "account_id": _account(call),
        "kind": kind,
        "name": name,
        "address": _show_address(target),
        "target": vault.seal(json.dumps(target).encode(), seal_context("target", channel_id)),
        "secret": None if secret is None else vault.seal(secret.encode(), seal_context("secret", channel_id)),
        "confirmed": kind != EMAIL,
        "created_at": call.now,
    }
    await call.execute(insert(notice_channels), row)
    call.audit.resource_id = channel_id
    if kind == EMAIL:
        link = f"{list_url(call.services)}/notices?channel={channel_id}"
        await call.services.mailer.send(
            call.unit, Mail(target["email"], "notice_address", {"code": str(secret), "link": link})
        )
    channel = await _find(call, channel_id)
    return {"channel": _describe(channel), "secret": secret if kind == WEBHOOK else None}


@notices.tool(
    "POST /channels/{channel_id}/confirm",
    access=_PERSON,
    effect="write",
    raises=(ChannelNotFound, CodeWrong),
    limit=PerOrganisation(30, 3600),
    guard=_GUARD,
    audit=Audit("notices.channel.confirm", category="auth", resource="notice_channel"),
    rest=Rest(examples={"code": "b7Kq2ZxW"}),
)
async def notices_channel_confirm(call: Call, channel_id: ChannelId, code: Code) -> OneChannel:
    """Confirm a mail address with the code that was mailed to it; notices go there from then on.

    code: the code in the mail.
    """
    row = await _find(call, channel_id)
    call.audit.resource_id = channel_id
    expected_code = "" if row.confirmed else open_secret(call.services.vault, row)
    if row.confirmed or not hmac.compare_digest(expected_code.encode(), code.strip().encode()):
        raise CodeWrong
    values: dict[str, Any] = {"confirmed": True, "secret": None}
    await call.execute(update(notice_channels).where(notice_channels.c.id == row.id).values(values))
    return {"channel": _describe(await _find(call, channel_id))}


@notices.tool(
    "DELETE /channels/{channel_id}",
    access=_PERSON,
    effect="write",
    raises=(ChannelNotFound,),
    guard=_GUARD,
    audit=Audit("notices.channel.remove", category="auth", resource="notice_channel"),
)
async def notices_channel_remove(call: Call, channel_id: ChannelId) -> ChannelRemoved:
    """Remove a channel; nothing is sent there any more."""
    row = await _find(call, channel_id)
    call.audit.resource_id = channel_id
    await call.execute(delete(notice_channels).where(notice_channels.c.id == row.id))
    return {"removed": row.id}


@notices.tool(
    "POST /channels/{channel_id}/test",
    access=_PERSON,
    effect="external",
    raises=(ChannelNotFound, CodeWrong),
    limit=PerOrganisation(30, 3600),
    guard=_GUARD,
    audit=Audit("notices.channel.test", category="auth", resource="notice_channel"),
)
async def notices_channel_test(call: Call, channel_id: ChannelId) -> ChannelTried:
    """Send a test message to a channel now, and report the result. It is tried once."""
    row = await _find(call, channel_id)
    call.audit.resource_id = channel_id
    if not row.confirmed:
        raise CodeWrong("This address is not confirmed yet.")
    message = Notice(call.services.ids.uuid(), (), list_url(call.services), call.now, is_test=True)
    if row.kind == EMAIL:
        values = {"subject": message.subject, "lines": "", "link": message.url}
        await call.services.mailer.send(
            call.unit, Mail(open_target(call.services.vault, row)["email"], "waiting_calls", values)
        )
        return {"delivered": True, "answer": None}
    if not call.is_nested:
        # No transaction stays open while another server works.
        await call.unit.commit()
    outcome = await send_message(call.services, row, message)
    return {"delivered": outcome.fault is None, "answer": outcome.fault}


@notices.tool("GET /push-key", access=_PERSON, effect="read", guard=_GUARD)
async def notices_push_key(call: Call) -> PushKey:
    """Read the key by which browsers know this installation; they subscribe to web push with it."""
    return {"key": await call.services.of(PushSender).public_key()}


@notices.tool("GET /messages", access=_PERSON, effect="read", guard=_GUARD)
async def notices_messages_list(call: Call, limit: PageSize = 50) -> NoticeMessages:
    """List the last messages to the channels of this account with their results, newest first."""
    own_query = select(notice_messages).where(notice_messages.c.account_id == _account(call))
    order = (notice_messages.c.created_at.desc(), notice_messages.c.id.desc())
    rows = await call.execute(own_query.order_by(*order).limit(limit))
    messages = [
        cast(NoticeMessage, {name: getattr(row, name) for name in NoticeMessage.__annotations__}) for row in rows
    ]
    return {"messages": messages}


def _account(call: Call) -> str:
    return call.account.account_id


async def _save(call: Call, changes: dict[str, Any]) -> None:
    """Changes the settings of the account; makes them where there are none."""
    row = {"account_id": _account(call), **_DEFAULTS, **changes, "updated_at": call.now}
    saving = build_upsert(call.unit.database.dialect, notice_settings).values(row)
    values = {**changes, "updated_at": call.now}
    await call.execute(saving.on_conflict_do_update(index_elements=["account_id"], set_=values))


async def _read(call: Call) -> Notices:
    of_account = notice_settings.c.account_id == _account(call)
    row: Any = (await call.execute(select(notice_settings).where(of_account))).first()
    channels_query = select(notice_channels).where(notice_channels.c.account_id == _account(call))
    channels = (await call.execute(channels_query.order_by(notice_channels.c.created_at, notice_channels.c.id))).all()
    quiet: Quiet | None = None
    escalation: Escalation | None = None
    if row is not None and row.quiet_from is not None:
        quiet = {"begin": row.quiet_from, "end": row.quiet_until, "time_zone": row.time_zone}
    if row is not None and row.escalate_to is not None:
        escalation = {"after_minutes": row.escalate_minutes, "account_id": row.escalate_to}
    return {
        "which": _DEFAULTS["which"] if row is None else row.which,
        "digest_minutes": 0 if row is None else row.digest_minutes,
        "quiet": quiet,
        "escalation": escalation,
        "channels": [_describe(each) for each in channels],
    }


def _read_quiet(quiet: Quiet | None) -> dict[str, Any]:
    if quiet is None:
        return dict.fromkeys(("quiet_from", "quiet_until", "time_zone"))
    try:
        ZoneInfo(quiet["time_zone"])
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise ScheduleUnclear(f"There is no time zone {quiet['time_zone']}.") from exc
    if quiet["begin"] == quiet["end"]:
        raise ScheduleUnclear("The quiet hours begin and end at the same time.")
    return {"quiet_from": quiet["begin"], "quiet_until": quiet["end"], "time_zone": quiet["time_zone"]}


async def _read_escalation(call: Call, escalation: Escalation | None) -> dict[str, Any]:
    if escalation is None:
        return {"escalate_minutes": None, "escalate_to": None}
    other_id = escalation["account_id"]
    own_organisations = select(members.c.organisation_id).where(members.c.account_id == _account(call))
    colleague_query = select(members.c.account_id).where(
        members.c.account_id == other_id, members.c.organisation_id.in_(own_organisations)
    )
    if other_id == _account(call) or (await call.execute(colleague_query)).first() is None:
        raise ScheduleUnclear("Nobody else in your organisations has this account_id.")
    return {"escalate_minutes": escalation["after_minutes"], "escalate_to": other_id}


def _read_target(
    call: Call, kind: Kind, email: str | None, url: str | None, p256dh: str | None, auth: str | None
) -> dict[str, str]:
    """Returns the address of a channel of a kind. Raises ChannelUnclear, NoMailServer, AddressRefused, UrlRefused."""
    fields = {"email": email, "url": url, "p256dh": p256dh, "auth": auth}
    target = {name: str(value) for name, value in fields.items() if value is not None}
    required_names = {EMAIL: {"email"}, PUSH: {"url", "p256dh", "auth"}}.get(kind, {"url"})
    if target.keys() != required_names:
        raise ChannelUnclear
    if kind == EMAIL:
        if not call.services.mailer.delivers:
            raise NoMailServer
        return target
    http_client = call.services.http_client
    assert isinstance(http_client, Egress)
    # An address among hosts is looked at now, a name whenever it is called.
    http_client.check_url(target["url"])
    if kind == PUSH:
        try:
            check_subscription(target["p256dh"], target["auth"])
        except ValueError as exc:
            raise ChannelUnclear("`p256dh` or `auth` is not of a browser's subscription.") from exc
    return target


def _show_address(target: dict[str, str]) -> str:
    """Returns an address as people may see it. Of a URL, only the host, because anybody who knows its path can post to
    the chat.
    """
    return target["email"] if "email" in target else str(urlsplit(target["url"]).hostname)[:300]


async def _find(call: Call, channel_id: str) -> Any:
    is_channel = (notice_channels.c.id == channel_id, notice_channels.c.account_id == _account(call))
    row = (await call.execute(select(notice_channels).where(*is_channel))).first()
    if row is None:
        raise ChannelNotFound
    return row


def _describe(row: Any) -> Channel:
    return cast(Channel, {name: getattr(row, name) for name in Channel.__annotations__})
