"""Tools for webhooks, which report that a run has ended, signed as standardwebhooks.com specifies."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import insert, select, update

from baobab.runtime.agents.job_kinds import WEBHOOK
from baobab.runtime.agents.tables import ENDED, webhook_secrets
from baobab.runtime.net.webhooks import new_secret
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.errors import NoWebhook, RunNotFound, RunUnderWay
from baobab.tools.agents.fields import RunId
from baobab.tools.agents.jobs import _context
from baobab.tools.agents.run_ownership import get_run_row
from baobab.tools.agents.schemas.agents import Name, RunState, SecretInForce, SecretMade
from baobab.tools.agents.toolset import agents
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest

_DAY, _WEEK = 86_400, 604_800

Overlap = Annotated[int, Field(ge=0, le=_WEEK)]


@agents.tool(
    "POST /webhook-secret/rotate",
    access=AppOwner("admin"),
    effect="destructive",
    audit=Audit("agent.webhook_secret.rotate", category="agents", resource="app"),
    rest=Rest(status=201),
    guard=Guard(grants=True),
)
async def agents_webhook_secret_rotate(call: Call, app_id: AppId, overlap_seconds: Overlap = _DAY) -> SecretMade:
    """Create or replace the secret that signs webhooks of the app's runs.

    overlap_seconds: how long the earlier secret signs too, so that receivers have time to change.
    """
    vault, secret = call.services.vault, new_secret(call.services.ids)
    row: dict[str, Any] = {"secret": vault.seal(secret.encode(), _context("secret", app_id)), "made_at": call.now}
    until: datetime | None = None
    async with FREEZES.writing(call) as unit:
        of_app = webhook_secrets.c.app_id == app_id
        secret_row = (await unit.execute(select(webhook_secrets).where(of_app).with_for_update())).first()
        if secret_row is None:
            await unit.execute(insert(webhook_secrets), {"app_id": app_id, **row})
        else:
            earlier_secret, until = None, None
            if overlap_seconds:
                opened_secret = vault.open(secret_row.secret, _context("secret", app_id))
                earlier_secret = vault.seal(opened_secret, _context("earlier", app_id))
                until = call.now + timedelta(seconds=overlap_seconds)
            row |= {"earlier": earlier_secret, "earlier_until": until}
            await unit.execute(update(webhook_secrets).where(of_app).values(**row))
    call.audit.resource_id = app_id
    return {"secret": secret, "made_at": call.now, "earlier_until": until}


@agents.tool(
    "GET /webhook-secret",
    access=AppOwner(),
    effect="read",
)
async def agents_webhook_secret_get(call: Call, app_id: AppId) -> SecretInForce:
    """Read whether webhooks of the app's runs are signed, and since when; never the secret."""
    columns = (webhook_secrets.c.made_at, webhook_secrets.c.earlier_until)
    async with call.reading() as execute:
        row = (await execute(select(*columns).where(webhook_secrets.c.app_id == app_id))).first()
    if row is None:
        return {"made_at": None, "earlier_until": None}
    until = row.earlier_until if row.earlier_until and row.earlier_until > call.now else None
    return {"made_at": row.made_at, "earlier_until": until}


async def _preview_resend(call: Call, app_id: AppId, name: Name, id: RunId) -> str:
    row = await _get_webhook_run(call, app_id, name, id)
    return f"It would send the webhook of the run, which is {row.status}, once more."


@agents.tool(
    "POST /agents/{name}/runs/{id}/webhook",
    access=AppOwner(),
    effect="external",
    raises=(RunNotFound, RunUnderWay, NoWebhook),
    audit=Audit("agent.run.webhook", category="agents", resource="run"),
    rest=Rest(status=202),
    guard=Guard(preview=_preview_resend),
)
async def agents_runs_webhook(call: Call, app_id: AppId, name: Name, id: RunId) -> RunState:
    """Send the webhook of a run that has ended once more, with the same event id."""
    row = await _get_webhook_run(call, app_id, name, id)
    call.audit.resource_id = id
    async with FREEZES.writing(call) as unit:
        job_id = f"webhook:{id}:{call.services.ids.uuid()}"
        await call.services.jobs.enqueue(unit, WEBHOOK, {"run_id": id}, job_id=job_id)
    return {"run_id": id, "status": row.status}


async def _get_webhook_run(call: Call, app_id: str, name: str, run_id: str) -> Any:
    """Returns the row of a run that has ended and has a webhook."""
    row = await get_run_row(call, app_id, run_id, name)
    if row.webhook_url is None:
        raise NoWebhook
    if row.status not in ENDED:
        raise RunUnderWay(details={"status": row.status})
    return row
