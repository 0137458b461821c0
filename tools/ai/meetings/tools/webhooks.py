"""The tools of webhooks out: where events about bots are sent, and what became of each."""

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import select, update

from baobab.runtime.net.addresses import EgressError
from baobab.runtime.net.egress import Egress
from baobab.tools.ai.meetings import forwarding
from baobab.tools.ai.meetings.errors import DeliveryNotFound, ForwardUrlRefused, NoForwardUrl
from baobab.tools.ai.meetings.schemas import Deliveries, Delivery, ForwardUrl, Webhook, WebhookSet
from baobab.tools.ai.meetings.tables import is_of, meeting_deliveries
from baobab.tools.ai.meetings.toolset import LISTING, meeting_accounts
from baobab.tools.ai.metered_call import Payer, payer_of
from baobab.tools.core import (
    AnyAccount,
    AppId,
    AppOwner,
    Audit,
    Call,
    Cursor,
    Guard,
    Rest,
    Uuid,
    decode_cursor,
    encode_cursor,
)
from baobab.tools.core.list_totals import count_list

_SET = Audit("ai_meetings.webhook", category="ai", action="update", resource="meeting_webhook")
_RESENT = Audit("ai_meetings.resend", category="ai", action="invoke", resource="meeting_delivery")
_ADMINS = AppOwner("admin")
EXAMPLE = {"forward_url": "https://example.com/hook"}
Rotate = Annotated[bool, Field(description="Whether a new secret replaces the one that signs now.")]
DeliveryLimit = Annotated[int, Field(ge=1, le=100, description="Deliveries in one page.")]
DeliveryId = Annotated[Uuid, Field(description="The delivery's id.")]
_columns = meeting_deliveries.c


@meeting_accounts.tool(
    "PUT /{app_id}/ai/meetings/webhook",
    access=_ADMINS,
    effect="write",
    raises=(ForwardUrlRefused,),
    audit=_SET,
    rest=Rest(examples=EXAMPLE),
    guard=Guard(grants=True),
)
async def meetings_webhook_set(
    call: Call, app_id: AppId, forward_url: ForwardUrl, rotate_secret: Rotate = False
) -> WebhookSet:
    """Set the address to which events about an app's bots are sent, signed with a secret that is shown once."""
    del app_id
    return await _set(call, payer_of(call), forward_url, rotate_secret=rotate_secret)


@meeting_accounts.tool("GET /{app_id}/ai/meetings/webhook", access=AppOwner(), effect="read")
async def meetings_webhook_get(call: Call, app_id: AppId) -> Webhook:
    """Read to which address events about an app's bots are sent; never the secret."""
    del app_id
    return await _get(call, payer_of(call))


@meeting_accounts.tool("GET /{app_id}/ai/meetings/deliveries", access=AppOwner(), effect="read", raises=LISTING)
async def meetings_deliveries(
    call: Call, app_id: AppId, limit: DeliveryLimit = 20, cursor: Cursor | None = None
) -> Deliveries:
    """List the events about an app's bots that were sent, or are to be sent again, newest first; of 30 days."""
    del app_id
    return await _list(call, payer_of(call), limit, cursor)


@meeting_accounts.tool(
    "POST /{app_id}/ai/meetings/deliveries/{delivery_id}/resend",
    access=AppOwner(),
    effect="external",
    raises=(DeliveryNotFound, NoForwardUrl),
    audit=_RESENT,
    rest=Rest(status=202),
)
async def meetings_deliveries_resend(call: Call, app_id: AppId, delivery_id: DeliveryId) -> Delivery:
    """Send an event about an app's bot once more, to the present address, with the same body and id."""
    del app_id
    return await _resend(call, payer_of(call), delivery_id)


@meeting_accounts.tool(
    "PUT /ai/meetings/webhook",
    access=AnyAccount("admin"),
    effect="write",
    raises=(ForwardUrlRefused,),
    audit=_SET,
    rest=Rest(examples=EXAMPLE),
    guard=Guard(grants=True),
)
async def gateway_meetings_webhook_set(
    call: Call, forward_url: ForwardUrl, rotate_secret: Rotate = False
) -> WebhookSet:
    """Set the address to which events about your organisation's bots are sent, signed with a secret shown once."""
    return await _set(call, payer_of(call), forward_url, rotate_secret=rotate_secret)


@meeting_accounts.tool("GET /ai/meetings/webhook", access=AnyAccount(), effect="read")
async def gateway_meetings_webhook_get(call: Call) -> Webhook:
    """Read to which address events about your organisation's bots are sent; never the secret."""
    return await _get(call, payer_of(call))


@meeting_accounts.tool("GET /ai/meetings/deliveries", access=AnyAccount(), effect="read", raises=LISTING)
async def gateway_meetings_deliveries(
    call: Call, limit: DeliveryLimit = 20, cursor: Cursor | None = None
) -> Deliveries:
    """List the events about your organisation's bots that were sent, newest first; of 30 days."""
    return await _list(call, payer_of(call), limit, cursor)


@meeting_accounts.tool(
    "POST /ai/meetings/deliveries/{delivery_id}/resend",
    access=AnyAccount(),
    effect="external",
    raises=(DeliveryNotFound, NoForwardUrl),
    audit=_RESENT,
    rest=Rest(status=202),
)
async def gateway_meetings_deliveries_resend(call: Call, delivery_id: DeliveryId) -> Delivery:
    """Send an event about a bot of your organisation once more, to the present address."""
    return await _resend(call, payer_of(call), delivery_id)


async def _set(call: Call, payer: Payer, forward_url: str, *, rotate_secret: bool) -> WebhookSet:
    _require_address(call, forward_url)
    settings = await forwarding.find_settings(call.execute, payer.organisation_id, payer.app_id or "")
    row_id = settings.id if settings is not None else call.services.ids.uuid()
    values: dict[str, Any] = {"forward_url": forward_url}
    secret = None
    if settings is None or settings.secret is None or rotate_secret:
        secret = forwarding.new_secret(call.services.ids)
        values["secret"] = call.services.vault.seal(secret.encode(), forwarding.seal_context(row_id))
    await forwarding.save_settings(call, payer, row_id, values)
    call.audit.resource_id = payer.app_id or payer.organisation_id
    return {
        "ok": True,
        "app_id": payer.app_id,
        "forward_url": forward_url,
        "secret": secret,
        "webhook_secret": None if secret is None else forwarding.to_standard(secret),
    }


def _require_address(call: Call, url: str) -> None:
    """Raises ForwardUrlRefused for what can never be sent to. The client checks the host again with each delivery."""
    try:
        http_client = call.services.http_client
        assert isinstance(http_client, Egress)
        http_client.check_url(url)
    except EgressError as exc:
        fields = [{"field": "forward_url", "problem": exc.message}]
        raise ForwardUrlRefused(details={"fields": fields}) from exc


async def _get(call: Call, payer: Payer) -> Webhook:
    async with call.services.database.reading() as connection:
        settings = await forwarding.find_settings(connection.execute, payer.organisation_id, payer.app_id or "")
    if settings is None or settings.secret is None:
        return {"app_id": payer.app_id, "forward_url": None, "key_id": None, "updated_at": None}
    secret = forwarding.open_secret(call.services.vault, settings)
    return {
        "app_id": payer.app_id,
        "forward_url": settings.forward_url,
        "key_id": secret[: forwarding.KEY_ID_LENGTH],
        "updated_at": settings.updated_at,
    }


async def _list(call: Call, payer: Payer, limit: int, cursor: str | None) -> Deliveries:
    list_name = f"meeting deliveries:{payer.organisation_id}:{payer.app_id}"
    query = select(meeting_deliveries).where(is_of(meeting_deliveries, payer.organisation_id, payer.app_id or ""))
    whole_query = query
    if cursor is not None:
        (last_id,) = decode_cursor(call.services.vault, list_name, cursor)
        query = query.where(_columns.id < last_id)
    async with call.services.database.reading() as connection:
        rows = (await connection.execute(query.order_by(_columns.id.desc()).limit(limit + 1))).all()
        await count_list(call, connection.execute, whole_query, is_all=cursor is None and len(rows) <= limit)
    following = encode_cursor(call.services.vault, list_name, rows[limit - 1].id) if len(rows) > limit else None
    return {"deliveries": [_describe(row) for row in rows[:limit]], "next_cursor": following}


async def _resend(call: Call, payer: Payer, delivery_id: str) -> Delivery:
    settings = await forwarding.find_settings(call.execute, payer.organisation_id, payer.app_id or "")
    if settings is None or settings.forward_url is None:
        raise NoForwardUrl
    of_owner = is_of(meeting_deliveries, payer.organisation_id, payer.app_id or "")
    values = {"status": "pending", "attempts": 0, "url": settings.forward_url, "next_attempt_at": call.now}
    change = update(meeting_deliveries).where(of_owner, _columns.id == delivery_id).values(**values)
    row = (await call.execute(change.returning(meeting_deliveries))).first()
    if row is None:
        raise DeliveryNotFound
    await forwarding.enqueue_delivery(call.unit, call.services, delivery_id, payer.organisation_id)
    call.audit.resource_id = delivery_id
    return _describe(row)


def _describe(row: Any) -> Delivery:
    return {
        "id": row.id,
        "bot_id": row.bot_id,
        "event": row.event,
        "url": row.url,
        "status": row.status,
        "attempts": row.attempts,
        "answer_status": row.answer_status,
        "error": row.error,
        "created_at": row.created_at,
        "delivered_at": row.delivered_at,
        "next_attempt_at": row.next_attempt_at,
    }
