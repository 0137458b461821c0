"""The outbox: what is told to the targets that an organisation has registered."""

import hmac
from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Any

from pydantic_core import to_json
from sqlalchemy import insert, select, update

from baobab.runtime.net.egress import AddressRefused, EgressError, UrlRefused
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Unit
from baobab.tools.core import Job, RetryLater, Services
from baobab.tools.substrate import tables
from baobab.tools.substrate.ledger import Ledger
from baobab.tools.substrate.rows import Row

PAUSES = tuple(60.0 * minutes for minutes in (1, 2, 4, 8, 16, 32, 60))
"""Seconds from a try that failed to the next; after the last of them, the delivery is given up. Eight tries have seven
pauses between them: a second 60 minutes, which the proposal of these numbers has, would come before a ninth.
"""
TRIES = len(PAUSES) + 1
JOB = "substrate_deliver"
_SECONDS = 10.0
_MOST_ANSWER = 64 * 1024

_targets, _outbox = tables.outbox_targets, tables.outbox


def seal_context(target_id: str) -> str:
    """Returns the context that the signing secret of a target is bound to."""
    return f"{_targets.name}.signing_secret:{target_id}"


async def deliver_executed(ledger: Ledger, action: Mapping[str, Any]) -> None:
    """Writes down the deliveries of an action that was executed, in the transaction that executes it.

    action: its row in the ledger.
    """
    if not ledger.settings.has_targets:
        return
    of_target = (_targets.c.organisation_id == ledger.organisation_id, _targets.c.capability == action["capability"])
    target: Any = (await ledger.unit.execute(select(_targets).where(*of_target))).first()
    if target is None or target.source_app_id not in (None, action["source_app_id"]):
        return
    at = ledger.stamp()
    row: Row = {"id": ledger.new_id("ob"), "organisation_id": ledger.organisation_id, "action_id": action["id"]}
    row |= {"capability": action["capability"], "target": target.webhook_url, "state": "pending", "attempts": 0}
    row |= {"delivery_id": ledger.services.ids.uuid(), "round": 0, "next_attempt_at": at}
    await ledger.unit.execute(insert(_outbox), {**row, "created_at": at, "updated_at": at})
    await ask_for_delivery(ledger.unit, ledger.services, row)


async def ask_for_delivery(unit: Unit, services: Services, row: Mapping[str, Any]) -> None:
    """Enqueues the job that delivers one outbox row. A retry by hand begins a new round with a job of its own."""
    organisation_id, arguments = row["organisation_id"], {"outbox_id": row["id"], "round_number": row["round"]}
    await services.jobs.enqueue(
        unit,
        JOB,
        {**arguments, "organisation_id": organisation_id},
        job_id=f"{JOB}:{row['id']}:{row['round']}",
        tenant=organisation_id,
    )


def sign(secret: bytes, body: bytes) -> str:
    return "sha256=" + hmac.new(secret, body, sha256).hexdigest()


async def try_delivery(job: Job, organisation_id: str, outbox_id: str, round_number: int) -> None:
    """Tries a delivery once. If the process is killed before it records the answer, the next try has the same delivery
    id.
    """
    services = job.services
    current = (
        _outbox.c.organisation_id == organisation_id,
        _outbox.c.id == outbox_id,
        _outbox.c.state == "pending",
        _outbox.c.round == round_number,
    )
    actions = tables.action_ledger
    async with job.database.reading() as connection:
        row: Any = (await connection.execute(select(_outbox).where(*current))).first()
        if row is None:
            return
        conditions = (_targets.c.organisation_id == organisation_id, _targets.c.capability == row.capability)
        target: Any = (await connection.execute(select(_targets).where(*conditions))).first()
        conditions = (actions.c.organisation_id == organisation_id, actions.c.id == row.action_id)
        action: Any = (await connection.execute(select(actions).where(*conditions))).first()
    now, pause = services.clock.now(), None
    changes: Row = {"updated_at": now, "attempts": row.attempts + 1, "next_attempt_at": None}
    if target is None or action is None:
        changes |= {"state": "cancelled", "attempts": row.attempts, "last_error": "the target or the action is gone"}
    else:
        status, fault, is_final = await _send(services, target, action, row)
        changes |= {"target": target.webhook_url, "last_status": status, "last_error": fault}
        if fault is None:
            changes |= {"state": "delivered", "delivered_at": now}
        elif is_final or row.attempts + 1 >= TRIES:
            changes |= {"state": "failed"}
        else:
            pause = PAUSES[row.attempts]
            changes |= {"next_attempt_at": now + timedelta(seconds=pause)}
    async with job.writing(last=pause is None, lock=None) as unit:
        # Nothing is written where it was cancelled meanwhile.
        await unit.execute(update(_outbox).where(*current).values(changes))
    if pause is not None:
        raise RetryLater(pause, str(changes["last_error"]))


async def _send(services: Services, target: Any, action: Any, row: Any) -> tuple[int | None, str | None, bool]:
    """Returns the status of the answer, the fault or None, and whether the fault is final."""
    body = to_json(
        {
            "action_id": action.id,
            "capability": action.capability,
            "payload": action.payload,
            "executed_at": action.executed_at,
        }
    )
    secret = open_secret(services.vault, target)
    headers = {"content-type": "application/json", "x-platform-signature": sign(secret, body)}
    headers |= {"x-platform-delivery": row.delivery_id}
    try:
        answer = await services.http_client.request(
            "POST", target.webhook_url, headers=headers, body=body, timeout=_SECONDS, max_bytes=_MOST_ANSWER
        )
    except EgressError as error:
        return None, f"{error.code}: {error.message}"[:500], isinstance(error, (AddressRefused, UrlRefused))
    if answer.status < 300:
        return answer.status, None, False
    return answer.status, f"it answered {answer.status}", False


def open_secret(vault: Vault, target: Any) -> bytes:
    return vault.open(target.signing_secret, seal_context(target.id))
