"""Webhooks of functions: each is stored before its function runs, and a delivery that completed is not run again.

A delivery is `running` until all that its function gave to `waitUntil` is done, too: if the server is killed before
that, it runs again, though its sender has its answer.
"""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update

from baobab.runtime.functions.program import FunctionRequest
from baobab.storage.sql.database import Unit
from baobab.tools.core import BaobabError, Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.call import ToolRunner
from baobab.tools.functions.errors import DeliveryRunning, RuntimeAway
from baobab.tools.functions.headers import choose_answer_headers
from baobab.tools.functions.identity import identify_platform
from baobab.tools.functions.invocations import InvocationLog
from baobab.tools.functions.invoking import Answer, Invocation, invoke, iterate_bytes
from baobab.tools.functions.tables import FREEZES, webhook_deliveries

REDELIVER = "functions_redeliver"
MOST_ATTEMPTS = 5
"""How often the server itself runs a delivery whose worker was lost."""
_SAME_FOR = timedelta(hours=24)
_SPARE_SECONDS = 15.0
"""How much longer than its function may take until a worker is given up."""
_AFTERWARDS = timedelta(seconds=45)
"""How much longer a worker may take for what goes on after the answer: `waitUntil` has 30 seconds."""
_POLL_SECONDS, _END_SECONDS = 0.2, 0.2
_MOST_ANSWER, _MOST_KEPT = 8 * 2**20, 64 * 1024
_LONGEST_ERROR = 500
_columns = webhook_deliveries.c


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a webhook is answered. is_duplicate: whether another delivery has run the function."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    is_duplicate: bool = False

    def build_answer(self) -> Answer:
        """Returns it as an answer of a function."""
        return Answer(self.status, self.headers, iterate_bytes(self.body))


@dataclass(frozen=True, slots=True)
class SignedWebhook:
    """A webhook whose signature was good."""

    registry: ToolRunner
    services: Services
    app: App
    row: Any
    provider: str
    digest: str
    request: Mapping[str, Any]
    ip: str


def pack_request(url: str, headers: list[tuple[str, str]], body: bytes) -> dict[str, Any]:
    """Returns a request as it is stored."""
    return {"url": url, "headers": [list(pair) for pair in headers], "body": base64.b64encode(body).decode()}


async def deliver(delivery: SignedWebhook) -> Outcome:
    """Runs the function of a webhook unless that has been done; waits while another delivery of it is run.

    Raises DeliveryRunning if that takes too long, AppMigrating, and what `invoke` raises.
    """
    clock = delivery.services.clock.monotonic
    deadline = clock() + delivery.row.timeout_ms / 1000 + _SPARE_SECONDS
    while True:
        is_mine, row = await _claim(delivery)
        if is_mine:
            return await run(delivery.registry, delivery.services, delivery.app, delivery.row, row)
        if row.status == "completed" or row.answer is not None:
            return _read_outcome(row)
        if clock() >= deadline:
            raise DeliveryRunning(retry_after=_SPARE_SECONDS)
        await asyncio.sleep(_POLL_SECONDS)


async def _claim(delivery: SignedWebhook) -> tuple[bool, Any]:
    """Returns whether this delivery is to be run by the caller, and its row."""
    services, app, function = delivery.services, delivery.app, delivery.row
    now = services.clock.now()
    is_same = (_columns.app_id == app.id, _columns.function_id == function.id, _columns.digest == delivery.digest)
    async with services.stores_of(app.region).database.writing_unit(lock=app.id) as unit:
        await FREEZES.require_thawed(unit.execute, app.id)
        row: Any = (await unit.execute(select(webhook_deliveries).where(*is_same))).first()
        is_running = row is not None and row.status == "running" and row.runs_until > now
        if row is not None and (row.status == "completed" or (is_running and row.answer is not None)):
            if is_running or now - row.created_at < _SAME_FOR:
                counting = update(webhook_deliveries).where(*is_same)
                await unit.execute(counting.values(duplicates=_columns.duplicates + 1))
                return False, row
            await unit.execute(delete(webhook_deliveries).where(*is_same))
            row = None
        if is_running:
            return False, row
        until = now + timedelta(milliseconds=function.timeout_ms, seconds=_SPARE_SECONDS)
        delivery_id = services.ids.uuid_at(now) if row is None else row.id
        if row is None:
            new_row = {
                "app_id": app.id,
                "id": delivery_id,
                "function_id": function.id,
                "digest": delivery.digest,
                "provider": delivery.provider,
                "request": {**delivery.request, "ip": delivery.ip},
                "status": "running",
                "attempts": 1,
                "runs_until": until,
                "duplicates": 0,
                "created_at": now,
            }
            await unit.execute(insert(webhook_deliveries), new_row)
        else:
            values = {"status": "running", "attempts": row.attempts + 1, "runs_until": until}
            values |= {"error": None, "answer": None, "ended_at": None}
            await unit.execute(update(webhook_deliveries).where(*is_same).values(**values))
        await enqueue_again(unit, services, app, function, delivery_id)
        return True, (await unit.execute(select(webhook_deliveries).where(*is_same))).first()


async def enqueue_again(unit: Unit, services: Services, app: App, function: Any, delivery_id: str) -> None:
    """Enqueues the job that runs a delivery again if whoever runs it now is lost."""
    delay = function.timeout_ms / 1000 + _SPARE_SECONDS
    arguments = {"app_id": app.id, "delivery_id": delivery_id}
    await services.jobs.enqueue(unit, REDELIVER, arguments, delay=delay, tenant=app.organisation_id)


async def claim_lost(services: Services, app: App, function: Any, row: Any) -> Any:
    """Returns the row of a delivery whose worker is lost, claimed for the caller; None if there is nothing to do."""
    now = services.clock.now()
    is_it = (_columns.app_id == app.id, _columns.id == row.id, _columns.status == "running")
    async with services.stores_of(app.region).database.writing_unit(lock=app.id) as unit:
        await FREEZES.require_thawed(unit.execute, app.id)
        until = now + timedelta(milliseconds=function.timeout_ms, seconds=_SPARE_SECONDS)
        values: dict[str, Any] = {"attempts": _columns.attempts + 1, "runs_until": until, "answer": None}
        if row.attempts >= MOST_ATTEMPTS:
            values = {"status": "failed", "ended_at": now, "error": "Its workers were lost each time it ran."}
        claiming = update(webhook_deliveries).where(*is_it, _columns.runs_until == row.runs_until).values(**values)
        if not (await unit.execute(claiming)).rowcount or row.attempts >= MOST_ATTEMPTS:
            return None
        await enqueue_again(unit, services, app, function, row.id)
        return (await unit.execute(select(webhook_deliveries).where(*is_it))).first()


async def run(registry: ToolRunner, services: Services, app: App, function: Any, row: Any) -> Outcome:
    """Runs the function for a stored delivery, and writes down what became of it. Raises what `invoke` raises."""
    request = row.request
    path = f"/v1/{app.id}/webhook/{function.name}"
    body = base64.b64decode(request["body"])
    try:
        answer = await invoke(
            Invocation(
                registry=registry,
                services=services,
                app=app,
                name=function.name,
                request=FunctionRequest(
                    "POST",
                    request["url"],
                    tuple((name, value) for name, value in request["headers"]),
                    iterate_bytes(body) if body else None,
                ),
                identity=identify_platform(app, function.id),
                trigger="webhook",
                id=row.id,
                request_id=row.id,
                path=path,
                ip=request["ip"],
            )
        )
        content = await answer.read(_MOST_ANSWER)
    except BaobabError as error:
        await _end(services, app, row, "failed", error.message, None)
        raise
    status, headers = answer.status, answer.headers
    is_done = 200 <= status < 300 and not answer.is_failure
    error_text = None if is_done else f"The function answered {status}."
    outcome = Outcome(status, headers, content or b"")
    if is_done and answer.end is not None:
        # Most give nothing to `waitUntil`, and end with their answer.
        await asyncio.wait({answer.end}, timeout=_END_SECONDS)
    if not is_done or answer.end is None or (answer.end.done() and answer.end.result()):
        await _end(services, app, row, "completed" if is_done else "failed", error_text, outcome)
        return outcome
    await _write(services, app, row, {"answer": _pack(outcome), "runs_until": services.clock.now() + _AFTERWARDS})
    services.of(InvocationLog).follow(_end_later(services, app, row, answer, outcome))
    return outcome


async def _end_later(services: Services, app: App, row: Any, answer: Answer, outcome: Outcome) -> None:
    """Completes a delivery when all is done. If the server stops before that, the job runs it again."""
    try:
        await answer.wait_for_end()
    except RuntimeAway:
        return
    await _end(services, app, row, "completed", None, outcome)


async def _end(services: Services, app: App, row: Any, status: str, error: str | None, outcome: Outcome | None) -> None:
    values = {
        "status": status,
        "error": None if error is None else error[:_LONGEST_ERROR],
        "answer": None if outcome is None else _pack(outcome),
        "ended_at": services.clock.now(),
        "runs_until": None,
    }
    await _write(services, app, row, values)


def _pack(outcome: Outcome) -> dict[str, Any]:
    """Returns an answer as it is stored, without its body where that is too long to be kept."""
    content_type, _ = choose_answer_headers(outcome.headers)
    body = base64.b64encode(outcome.body).decode() if len(outcome.body) <= _MOST_KEPT else None
    return {"status": outcome.status, "headers": [["content-type", content_type]], "body": body}


async def _write(services: Services, app: App, row: Any, values: Mapping[str, Any]) -> None:
    # Whoever was given up must not write over what happened since.
    is_mine = (_columns.app_id == app.id, _columns.id == row.id, _columns.attempts == row.attempts)
    async with services.stores_of(app.region).database.writing_unit(lock=app.id) as unit:
        await unit.execute(update(webhook_deliveries).where(*is_mine).values(**values))


def _read_outcome(row: Any) -> Outcome:
    """Returns what a repeated delivery is answered: that it is one."""
    del row
    headers = [("content-type", "application/json"), ("x-platform-duplicate", "true")]
    return Outcome(200, headers, b'{"ok":true,"duplicate":true}', is_duplicate=True)
