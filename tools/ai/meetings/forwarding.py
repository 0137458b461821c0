"""Webhooks out: what is told about a bot, to the address of its app or organisation, signed, for up to a day."""

import base64
import hmac
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

from pydantic_core import to_json
from sqlalchemy import select

from baobab.runtime.net.webhooks import build_headers
from baobab.storage.clock import Ids
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.ai.meetings.progress import read_changes
from baobab.tools.ai.meetings.schemas import Row
from baobab.tools.ai.meetings.tables import is_of, meeting_deliveries, meeting_settings
from baobab.tools.ai.metered_call import Payer
from baobab.tools.core import Call, Services

DELIVER = "meetings_deliver"
_PREFIX, _STANDARD_PREFIX = "wsec_", "whsec_"
_KEY_BYTES, KEY_ID_LENGTH = 32, 16


def new_secret(ids: Ids) -> str:
    """Returns a new signing secret, `wsec_` and base64url of 32 bytes."""
    # From as many random characters, since the secrets of an installation come from its own source.
    key = sha256(ids.secret(64).encode()).digest()[:_KEY_BYTES]
    return _PREFIX + base64.urlsafe_b64encode(key).decode().rstrip("=")


def to_standard(secret: str) -> str:
    """Returns a secret in the form that libraries of standardwebhooks.com take."""
    key = base64.urlsafe_b64decode(secret.removeprefix(_PREFIX) + "=")
    return _STANDARD_PREFIX + base64.b64encode(key).decode()


def seal_context(row_id: str) -> str:
    """Returns the context that a stored secret is bound to."""
    return f"{meeting_settings.name}.secret:{row_id}"


def open_secret(vault: Vault, settings: Any) -> str:
    """Returns the signing secret of a row of `meeting_settings`."""
    return vault.open(settings.secret, seal_context(settings.id)).decode()


def sign_delivery(delivery: Any, secret: str, now: datetime) -> dict[str, str]:
    """Returns the headers of a delivery: the contract's own, and those of standardwebhooks.com."""
    body = delivery.body.encode()
    signature = base64.b64encode(hmac.digest(secret.encode(), body, sha256)).decode()
    headers = build_headers(f"msg_{delivery.id.replace('-', '')}", now, body, [to_standard(secret)])
    headers |= {"x-bb-event": delivery.event, "x-bb-signature": f"v1,{signature}"}
    if not delivery.app_id:
        headers["x-bb-key-id"] = secret[:KEY_ID_LENGTH]
    return headers


async def find_settings(execute: Execute, organisation_id: str, app_id: str) -> Any:
    """Returns the row of the settings of an app, or of the gateway; None if nothing is set."""
    return (await execute(select(meeting_settings).where(is_of(meeting_settings, organisation_id, app_id)))).first()


async def save_settings(call: Call, payer: Payer, row_id: str, values: dict[str, Any]) -> None:
    """Writes some columns of the settings of an app, or of the gateway. row_id: of the row, or of one that is new."""
    key = {"organisation_id": payer.organisation_id, "id": row_id}
    values = {**values, "updated_at": call.now}
    row = {**key, "app_id": payer.app_id or "", **values}
    insertion = build_upsert(call.unit.database.dialect, meeting_settings).values(row)
    await call.execute(insertion.on_conflict_do_update(index_elements=list(key), set_=values))


async def record_events(unit: Unit, services: Services, row: Row) -> None:
    """Writes down the events of a bot that are new, with the jobs that deliver them, in the transaction of its change.

    A bot tells each event once, under its id and the event's name.
    """
    events = dict(list_events(row))
    if not events:
        return
    settings = await find_settings(unit.execute, row.organisation_id, row.app_id)
    if settings is None or settings.forward_url is None:
        return
    now = services.clock.now()
    for event, data in events.items():
        delivery = {
            "id": services.ids.uuid_at(now),
            "organisation_id": row.organisation_id,
            "app_id": row.app_id,
            "bot_id": row.id,
            "event": event,
            "body": to_json({"event": event, "data": data}).decode(),
            "url": settings.forward_url,
            "status": "pending",
            "attempts": 0,
            "created_at": now,
        }
        insertion = build_upsert(unit.database.dialect, meeting_deliveries).values(delivery).on_conflict_do_nothing()
        if (await unit.execute(insertion)).rowcount:
            await enqueue_delivery(unit, services, delivery["id"], row.organisation_id)


async def enqueue_delivery(unit: Unit, services: Services, delivery_id: str, organisation_id: str) -> None:
    """Enqueues a job that delivers an event, beginning a new day of attempts."""
    job_id = f"{DELIVER}:{delivery_id}:{services.ids.uuid()}"
    await services.jobs.enqueue(unit, DELIVER, {"delivery_id": delivery_id}, job_id=job_id, tenant=organisation_id)


def list_events(row: Row) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the events that a bot has had so far, with their data, in the words of the contract's provider."""
    bot = {"id": row.id, "metadata": row.metadata}
    changes = read_changes(row.changes)
    recording = next((change for change in changes if change.status == "recording"), None)
    if recording is not None:
        yield "bot.in_call_recording", {"data": _describe(recording.code, recording.sub_code, recording.at), "bot": bot}
    if row.status in ("done", "fatal"):
        at = next((change.at for change in reversed(changes) if change.status == row.status), row.updated_at)
        yield f"bot.{row.status}", {"data": _describe(row.status, row.sub_code, at), "bot": bot}
    for kind, state in (("recording", row.recording_state), ("transcript", row.transcript_state)):
        outcome = {"ready": "done", "failed": "failed"}.get(state)
        if outcome is None or (kind == "recording" and outcome == "failed"):
            continue
        artifact = {"id": f"{kind}_{row.id}", "metadata": row.metadata}
        yield f"{kind}.{outcome}", {"data": _describe(outcome, None, row.updated_at), "bot": bot, kind: artifact}


def _describe(code: str, sub_code: str | None, at: datetime) -> dict[str, Any]:
    return {"code": code, "sub_code": sub_code, "updated_at": at.isoformat()}
