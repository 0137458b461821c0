"""What providers of integrations send: webhooks about connected accounts."""

from typing import Annotated

from sqlalchemy import select, update

from baobab.runtime.integrations.composio import NAME, Composio, HookEvent, HookRefused
from baobab.runtime.integrations.opening import Integrations
from baobab.storage.sql.database import Database
from baobab.tools.core import EVERYBODY, AppMigrating, AppNotFound, Audit, Call, Mcp, NotFound, PerAddress, Rest, Text
from baobab.tools.core.errors import BodyTooLarge
from baobab.tools.core.stream import Body
from baobab.tools.integrations.errors import HookUnsigned
from baobab.tools.integrations.schemas import Row, Taken
from baobab.tools.integrations.tables import FREEZES, connections
from baobab.tools.integrations.toolset import DISCONNECTED, EXPIRED, integration_hooks

_MOST_BYTES = 2**16
_STATUSES = {"EXPIRED": "expired", "FAILED": "expired", "REVOKED": "inactive", "INACTIVE": "inactive"}
"""Our states by Composio's. What it says of an account that is good again is asked of it at the next call."""
_EVENTS = {"expired": EXPIRED, "inactive": DISCONNECTED}
_columns = connections.c
Header = Annotated[str, Text(500)]


@integration_hooks.tool(
    "POST /composio",
    access=EVERYBODY,
    effect="write",
    raises=(HookUnsigned, NotFound, BodyTooLarge, AppMigrating),
    limit=PerAddress(1200, 60),
    audit=Audit("integration.hook", resource="integration_connection", tallied=True),
    rest=Rest(
        raw_body="content",
        query=("webhook_id", "webhook_timestamp", "webhook_signature"),
        from_headers={
            "webhook_id": "webhook-id",
            "webhook_timestamp": "webhook-timestamp",
            "webhook_signature": "webhook-signature",
        },
        max_body=_MOST_BYTES,
    ),
    mcp=Mcp(offered=False),
)
async def integration_hooks_composio(
    call: Call, content: Body, webhook_id: Header = "", webhook_timestamp: Header = "", webhook_signature: Header = ""
) -> Taken:
    """Take a webhook of Composio about a connected account, which it must have signed.

    content: the webhook, as it was signed.
    """
    provider = call.services.part(Integrations).all.get(NAME)
    if not isinstance(provider, Composio):
        raise NotFound("This server does not use Composio.")
    headers = {
        "webhook-id": webhook_id,
        "webhook-timestamp": webhook_timestamp,
        "webhook-signature": webhook_signature,
    }
    try:
        event = provider.verify(headers, await _read(content), call.now)
    except HookRefused as exc:
        raise HookUnsigned from exc
    if event is not None and event.status in _STATUSES:
        for database in dict.fromkeys(stores.database for stores in call.services.regions.values()):
            await _apply(call, database, event)
    return {"ok": True}


async def _apply(call: Call, database: Database, event: HookEvent) -> None:
    is_account = (_columns.external_id == event.external_id, _columns.provider == NAME, _columns.status == "active")
    async with database.reading() as connection:
        rows = (await connection.execute(select(connections).where(*is_account))).all()
    for row in rows:
        await _mark(call, database, row, event)


async def _mark(call: Call, database: Database, row: Row, event: HookEvent) -> None:
    try:
        app = await call.services.directory.app(row.app_id)
    except AppNotFound:
        return
    status = _STATUSES[event.status]
    is_row = (_columns.app_id == row.app_id, _columns.id == row.id, _columns.status == "active")
    async with database.writing_unit(lock=row.app_id) as unit:
        # Refused while the app is being moved: the provider sends it again.
        await FREEZES.require_thawed(unit.execute, row.app_id)
        values = {"status": status, "status_reason": event.reason or None}
        if not (await unit.execute(update(connections).where(*is_row).values(**values))).rowcount:
            return
        data = {"connection_id": row.id, "user_id": row.app_user_id, "toolkit": row.toolkit_slug}
        data |= {"account_name": row.account_name, "reason": event.reason}
        jobs = call.services.jobs
        await jobs.emit(unit, _EVENTS[status], app_id=app.id, data=data, tenant=app.organisation_id)


async def _read(content: Body) -> bytes:
    text = bytearray()
    async for chunk in content.chunks:
        text += chunk
        if len(text) > _MOST_BYTES:
            raise BodyTooLarge(details={"max_bytes": _MOST_BYTES})
    return bytes(text)
