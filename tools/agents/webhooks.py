"""Webhooks: telling whoever asked for it that a run has ended, signed as standardwebhooks.com says."""

import base64
import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import to_json
from sqlalchemy import insert, select, update
from typing_extensions import TypedDict

from baobab.runtime.agents.kinds import WEBHOOK
from baobab.runtime.agents.rows import ENDED, runs, webhook_secrets
from baobab.runtime.egress import EgressError
from baobab.storage.database import Unit
from baobab.storage.secrets import Vault
from baobab.tools.agents.errors import NoWebhook, RunNotFound, RunUnderWay
from baobab.tools.agents.fields import RunId
from baobab.tools.agents.owning import run_row
from baobab.tools.agents.records import Name, RunState
from baobab.tools.agents.region import writing
from baobab.tools.agents.showing import show_failure
from baobab.tools.agents.toolset import agents
from baobab.tools.core.auth.access import AppOwner
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.job import Job
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import AppId

_SECONDS = 10.0
_TRIES = 5
_LONGEST_PAUSE_SECONDS = 300
_PREFIX = "whsec_"
_LENGTH = 40
_DAY, _WEEK = 86_400, 604_800
_OUTSIDERS = ("end_user", "anonymous")

Overlap = Annotated[int, Field(ge=0, le=_WEEK)]


class SecretMade(TypedDict):
    secret: Annotated[str, Field(description="Shown this once: keep it where the webhooks are received.")]
    made_at: datetime
    earlier_until: Annotated[
        datetime | None, Field(description="Until when the earlier secret signs, too; null where there is none.")
    ]


class SecretInForce(TypedDict):
    made_at: Annotated[datetime | None, Field(description="Null where there is none: webhooks are then not signed.")]
    earlier_until: datetime | None


@agents.tool(
    "POST /webhook-secret/rotate",
    access=AppOwner("admin"),
    effect="destructive",
    audit=Audit("agent.webhook_secret.rotate", category="agents", resource="app"),
    rest=Rest(status=201),
    mcp=Mcp(
        keywords=(
            "sign webhooks of runs, signing secret, verify callbacks, HMAC signature, roll, replace; "
            "Webhooks signieren, Geheimnis erneuern; "
            "firmar webhooks, rotar secreto"
        )
    ),
    guard=Guard(grants=True),
)
async def agents_webhook_secret_rotate(call: Call, app_id: AppId, overlap_seconds: Overlap = _DAY) -> SecretMade:
    """Make the secret that webhooks of the app's runs are signed with, or a new one in place of it.

    overlap_seconds: for so long the earlier secret signs as well, so that receivers have time to change.
    """
    vault, secret = call.services.vault, _PREFIX + _text(call.services.ids.secret(_LENGTH).encode())
    row: dict[str, Any] = {"secret": vault.seal(secret.encode(), _context("secret", app_id)), "made_at": call.now}
    until: datetime | None = None
    async with writing(call) as unit:
        theirs = webhook_secrets.c.app_id == app_id
        held = (await unit.execute(select(webhook_secrets).where(theirs).with_for_update())).first()
        if held is None:
            await unit.execute(insert(webhook_secrets), {"app_id": app_id, **row})
        else:
            earlier, until = None, None
            if overlap_seconds:
                opened = vault.open(held.secret, _context("secret", app_id))
                earlier = vault.seal(opened, _context("earlier", app_id))
                until = call.now + timedelta(seconds=overlap_seconds)
            row |= {"earlier": earlier, "earlier_until": until}
            await unit.execute(update(webhook_secrets).where(theirs).values(**row))
    call.audit.resource_id = app_id
    return {"secret": secret, "made_at": call.now, "earlier_until": until}


@agents.tool(
    "GET /webhook-secret",
    access=AppOwner(),
    effect="read",
    mcp=Mcp(keywords="are webhooks signed, age of the signing secret; sind Webhooks signiert; webhooks firmados"),
)
async def agents_webhook_secret_get(call: Call, app_id: AppId) -> SecretInForce:
    """Tell whether webhooks of the app's runs are signed, and since when with this secret; never the secret."""
    columns = (webhook_secrets.c.made_at, webhook_secrets.c.earlier_until)
    async with call.reading() as execute:
        row = (await execute(select(*columns).where(webhook_secrets.c.app_id == app_id))).first()
    if row is None:
        return {"made_at": None, "earlier_until": None}
    until = row.earlier_until if row.earlier_until and row.earlier_until > call.now else None
    return {"made_at": row.made_at, "earlier_until": until}


async def _sending_again(call: Call, app_id: AppId, name: Name, id: RunId) -> str:  # noqa: A002
    row = await _told_run(call, app_id, name, id)
    return f"It would send the webhook of the run, which is {row.status}, once more."


@agents.tool(
    "POST /agents/{name}/runs/{id}/webhook",
    access=AppOwner(),
    effect="external",
    raises=(RunNotFound, RunUnderWay, NoWebhook),
    audit=Audit("agent.run.webhook", category="agents", resource="run"),
    rest=Rest(status=202),
    mcp=Mcp(
        keywords=(
            "send a webhook again, replay, redeliver, resend a callback that was missed; "
            "Webhook erneut senden; "
            "reenviar webhook"
        )
    ),
    guard=Guard(preview=_sending_again),
)
async def agents_runs_webhook(call: Call, app_id: AppId, name: Name, id: RunId) -> RunState:  # noqa: A002
    """Send the webhook of a run that has ended once more, with the same event id."""
    row = await _told_run(call, app_id, name, id)
    call.audit.resource_id = id
    async with writing(call) as unit:
        job_id = f"webhook:{id}:{call.services.ids.uuid()}"
        await call.services.jobs.enqueue(unit, WEBHOOK, {"run_id": id}, job_id=job_id)
    return {"run_id": id, "status": row.status}


async def _told_run(call: Call, app_id: str, name: str, run_id: str) -> Any:
    """The row of a run that has ended and has a webhook."""
    row = await run_row(call, app_id, run_id, name)
    if row.webhook_url is None:
        raise NoWebhook
    if row.status not in ENDED:
        raise RunUnderWay(details={"status": row.status})
    return row


@agents.job()
async def agents_webhook(job: Job, run_id: str, tried: int = 0) -> None:
    """Tell whoever asked for it that a run has ended, up to five times with growing pauses."""
    async with job.database.reading() as connection:
        row: Any = (await connection.execute(select(runs).where(runs.c.id == run_id))).first()
        if row is None or row.webhook_url is None:
            return
        theirs = webhook_secrets.c.app_id == row.app_id
        held = (await connection.execute(select(webhook_secrets).where(theirs))).first()
    services = job.services
    event_id, sent_at = f"evt_{row.id.replace('-', '')}", services.clock.now()
    body = to_json(_event(row, event_id))
    headers = {"content-type": "application/json", "idempotency-key": row.id}
    headers |= {"webhook-id": event_id, "webhook-timestamp": str(int(sent_at.timestamp()))}
    if signatures := [sign(secret, headers, body) for secret in _secrets(services.vault, held, sent_at)]:
        headers["webhook-signature"] = " ".join(signatures)
    try:
        answer = await services.outgoing.request("POST", row.webhook_url, headers=headers, body=body, timeout=_SECONDS)
        status, taken = answer.status, answer.status < 300
    except EgressError:
        status, taken = None, False
    tried += 1
    async with job.writing(last=True) as unit:
        await _note(unit, run_id, event_id, tried, status, sent_at if taken else None)
        if not taken and tried < _TRIES:
            # A job of its own: what is put off is not counted.
            again, pause = {"run_id": run_id, "tried": tried}, min(2**tried, _LONGEST_PAUSE_SECONDS)
            await services.jobs.enqueue(unit, WEBHOOK, again, job_id=f"{job.id}:{tried}", delay=pause)


def sign(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    """One signature of a webhook. headers: with its id and timestamp."""
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    key = base64.b64decode(secret.removeprefix(_PREFIX))
    return "v1," + _text(hmac.new(key, signed, sha256).digest())


def _event(run: Any, event_id: str) -> dict[str, Any]:
    """What is told: to users of the app and visitors as they see their runs."""
    told = {"event_id": event_id, "type": f"run.{run.status}", "app_id": run.app_id, "agent": run.agent}
    told |= {"run_id": run.id, "status": run.status, "finished_at": run.finished_at}
    if run.status == "completed":
        return told | {"output": run.output}
    return told | {"error": show_failure(run.error) if run.caller_kind in _OUTSIDERS else run.error}


async def _note(
    unit: Unit, run_id: str, event_id: str, tried: int, status: int | None, delivered_at: datetime | None
) -> None:
    """Write down how far it has come."""
    told = {"event_id": event_id, "attempts": tried, "status": status}
    told["delivered_at"] = None if delivered_at is None else delivered_at.isoformat()
    await unit.execute(update(runs).where(runs.c.id == run_id).values(webhook_delivery=told))


def _secrets(vault: Vault, held: Any, now: datetime) -> list[str]:
    """Those that sign now, the newest first."""
    if held is None:
        return []
    secrets = [vault.open(held.secret, _context("secret", held.app_id)).decode()]
    if held.earlier is not None and held.earlier_until > now:
        secrets.append(vault.open(held.earlier, _context("earlier", held.app_id)).decode())
    return secrets


def _context(column: str, app_id: str) -> str:
    """What a sealed secret is bound to."""
    return f"{webhook_secrets.name}.{column}:{app_id}"


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
