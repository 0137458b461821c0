"""/v1/notices/channels: where a person is told of calls that wait."""

import hmac
import json
import secrets
from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field
from sqlalchemy import delete, func, insert, select, update

from baobab.runtime.net.egress import AddressRefused, Egress, UrlRefused
from baobab.runtime.net.webhooks import new_secret
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
    TooManyChannels,
)
from baobab.tools.approvals.notices.messages import Notice
from baobab.tools.approvals.notices.push import PushSender, check_subscription
from baobab.tools.approvals.notices.rows import account_of, describe_channel, save_settings
from baobab.tools.approvals.notices.schemas import ChannelMade, ChannelRemoved, ChannelTried, Kind, OneChannel, PushKey
from baobab.tools.approvals.notices.sending import list_url
from baobab.tools.approvals.notices.tables import notice_channels
from baobab.tools.approvals.notices.toolset import GUARD, PERSON, notices
from baobab.tools.core import Audit, Call, Email, NameText, Rest, Secret, Text, Uuid
from baobab.tools.core.limits.limits import PerOrganisation
from baobab.tools.core.mail import Mail

MOST_CHANNELS = 10
_DIGITS = 6
_CODE_HOURS = 24
ChannelId = Annotated[Uuid, Field(description="The channel, by its `id`.")]
Address = Annotated[str, Secret(2000, pattern=r"^https?://")]
Code = Annotated[str, Secret(20)]


@notices.tool(
    "POST /channels",
    access=PERSON,
    effect="write",
    raises=(TooManyChannels, ChannelUnclear, NoMailServer, AddressRefused, UrlRefused),
    limit=PerOrganisation(60, 3600),
    guard=GUARD,
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
    await save_settings(call, {})
    count_query = (
        select(func.count()).select_from(notice_channels).where(notice_channels.c.account_id == account_of(call))
    )
    if (await call.execute(count_query)).scalar_one() >= MOST_CHANNELS:
        raise TooManyChannels(details={"limit": MOST_CHANNELS})
    channel_id, ids = call.services.ids.uuid(), call.services.ids
    secret = (
        new_secret(ids)
        if kind == WEBHOOK
        else f"{secrets.randbelow(10**_DIGITS):0{_DIGITS}}"
        if kind == EMAIL
        else None
    )
    vault = call.services.vault
    row = {
        "id": channel_id,
        "account_id": account_of(call),
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
    return {"channel": describe_channel(channel), "secret": secret if kind == WEBHOOK else None}


@notices.tool(
    "POST /channels/{channel_id}/confirm",
    access=PERSON,
    effect="write",
    raises=(ChannelNotFound, CodeWrong),
    limit=PerOrganisation(30, 3600),
    guard=GUARD,
    audit=Audit("notices.channel.confirm", category="auth", resource="notice_channel"),
    rest=Rest(examples={"code": "402917"}),
)
async def notices_channel_confirm(call: Call, channel_id: ChannelId, code: Code) -> OneChannel:
    """Confirm a mail address with the code that was mailed to it; notices go there from then on.

    code: the six digits in the mail, within a day.
    """
    row = await _find(call, channel_id)
    call.audit.resource_id = channel_id
    # Six digits are guessed in the end, so they are good for a day only.
    is_late = row.created_at < call.now - timedelta(hours=_CODE_HOURS)
    expected_code = "" if row.confirmed else open_secret(call.services.vault, row)
    typed_code = "".join(code.split())
    if row.confirmed or is_late or not hmac.compare_digest(expected_code.lower().encode(), typed_code.lower().encode()):
        raise CodeWrong
    values: dict[str, Any] = {"confirmed": True, "secret": None}
    await call.execute(update(notice_channels).where(notice_channels.c.id == row.id).values(values))
    return {"channel": describe_channel(await _find(call, channel_id))}


@notices.tool(
    "DELETE /channels/{channel_id}",
    access=PERSON,
    effect="write",
    raises=(ChannelNotFound,),
    guard=GUARD,
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
    access=PERSON,
    effect="external",
    raises=(ChannelNotFound, CodeWrong),
    limit=PerOrganisation(30, 3600),
    guard=GUARD,
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
        values = {"subject": message.subject, "calls": "", "link": message.url}
        await call.services.mailer.send(
            call.unit, Mail(open_target(call.services.vault, row)["email"], "waiting_calls", values)
        )
        return {"delivered": True, "answer": None}
    if not call.is_nested:
        # No transaction stays open while another server works.
        await call.unit.commit()
    outcome = await send_message(call.services, row, message)
    return {"delivered": outcome.fault is None, "answer": outcome.fault}


@notices.tool("GET /push-key", access=PERSON, effect="read", guard=GUARD)
async def notices_push_key(call: Call) -> PushKey:
    """Read the key by which browsers know this installation; they subscribe to web push with it."""
    return {"key": await call.services.of(PushSender).public_key()}


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
    # A literal IP address is checked now, a host name each time it is called.
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
    is_channel = (notice_channels.c.id == channel_id, notice_channels.c.account_id == account_of(call))
    row = (await call.execute(select(notice_channels).where(*is_channel))).first()
    if row is None:
        raise ChannelNotFound
    return row
