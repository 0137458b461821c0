"""/v1/{app_id}/webhook/{name}: what other services tell functions, signed; and what became of it."""

from typing import Any

from sqlalchemy import select

from baobab.storage.cancellation import run_to_completion
from baobab.tools.core import EVERYBODY, AppId, AppMigrating, AppOwner, Call, PageSize, Rest
from baobab.tools.core.errors import AppPaused, BodyTooLarge
from baobab.tools.core.stream import Body
from baobab.tools.functions.answering import build_stream
from baobab.tools.functions.deliveries import SignedWebhook, deliver, pack_request
from baobab.tools.functions.env import open_webhook_secret
from baobab.tools.functions.errors import DeliveryRunning, FunctionNotFound, PublicNotFound, SignatureRefused
from baobab.tools.functions.headers import pass_on
from baobab.tools.functions.invoking import find_function
from baobab.tools.functions.rows import get_row
from baobab.tools.functions.schemas import DeliveryStatus, Name, WebhookDeliveries, WebhookDelivery
from baobab.tools.functions.signatures import find_delivery_digest, verify
from baobab.tools.functions.tables import webhook_deliveries
from baobab.tools.functions.tools.calls import AUDIT, CALLING, PASSED_ON, RawAnswer
from baobab.tools.functions.toolset import function_calls, functions
from baobab.tools.functions.trigger_configs import find_trigger

MOST_BODY = 2 * 2**20
_PLATFORM_KEY = "bearer bb_"
_columns = webhook_deliveries.c


@function_calls.tool(
    "POST /webhook/{name}",
    access=EVERYBODY,
    effect="external",
    raises=(SignatureRefused, DeliveryRunning, AppMigrating, BodyTooLarge, *CALLING),
    audit=AUDIT,
    rest=Rest(**PASSED_ON),
)
async def fn_webhook(call: Call, app_id: AppId, name: Name, content: Body) -> RawAnswer:
    """Deliver a webhook to a function. Its signature is verified first; the answer is the function's own.

    It is stored before the function runs. Where that has completed, the same webhook is a duplicate for 24 hours; where
    it failed, it runs again.

    content: the body, at most 2 MiB.
    """
    services, app, http = call.services, call.require_app(), call.context.http
    assert http is not None
    _, row = await find_function(services, app.id, name)
    config = find_trigger(row.triggers, "webhook")
    if config is None:
        raise PublicNotFound(f"The function {name} has no webhook trigger.")
    body = await _read(content)
    headers = {header.lower(): value for header, value in http.headers}
    secret = None
    if row.webhook_secret is not None:
        secret = open_webhook_secret(services.vault, row.id, row.webhook_secret)
    if not verify(config, secret, headers, body, call.now):
        raise SignatureRefused
    if app.is_paused:
        raise AppPaused(app.paused_reason)
    provider = config["provider"] or "generic"
    is_of_platform = headers.get("authorization", "").lower().startswith(_PLATFORM_KEY)
    passed_headers = pass_on(http.headers, with_credential=not is_of_platform)
    passed_headers += [("x-trigger-type", "webhook"), ("x-webhook-provider", provider)]
    url = f"{call.context.base_url}{call.context.path}" + (f"?{http.query}" if http.query else "")
    call.audit.resource_id = row.id
    delivery = SignedWebhook(
        registry=call.registry,
        services=services,
        app=app,
        row=row,
        provider=provider,
        digest=find_delivery_digest(config, headers, body),
        request=pack_request(url, passed_headers, body),
        ip=call.context.ip,
    )
    # To the end even if the sender has gone: what the function did must be written down.
    outcome = await run_to_completion(deliver(delivery))
    return build_stream(call, outcome.build_answer())


async def _read(content: Body) -> bytes:
    """Returns the whole body. Raises BodyTooLarge."""
    pieces, size = [], 0
    async for piece in content.chunks:
        size += len(piece)
        if size > MOST_BODY:
            details = {"max_bytes": MOST_BODY}
            raise BodyTooLarge(f"The body is larger than {MOST_BODY} bytes.", details=details)
        pieces.append(piece)
    return b"".join(pieces)


@functions.tool(
    "GET /functions/{name}/webhooks", access=AppOwner(), effect="read", raises=(FunctionNotFound,), taints=True
)
async def functions_webhooks(
    call: Call, app_id: AppId, name: Name, status: DeliveryStatus | None = None, limit: PageSize = 50
) -> WebhookDeliveries:
    """List the webhooks that a function got in the last 7 days, newest first, and what became of each.

    status: only those with this status.
    """
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
        query = select(webhook_deliveries).where(_columns.app_id == app_id, _columns.function_id == row.id)
        if status is not None:
            query = query.where(_columns.status == status)
        rows: Any = (await execute(query.order_by(_columns.id.desc()).limit(limit))).all()
    return {"deliveries": [_describe(each) for each in rows]}


def _describe(row: Any) -> WebhookDelivery:
    return {
        "id": row.id,
        "provider": row.provider,
        "status": row.status,
        "attempts": row.attempts,
        "duplicates": row.duplicates,
        "answer_status": None if row.answer is None else row.answer["status"],
        "error": row.error,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }
