"""Calls of tools with a user's account: which account, what is sent, and what became of it.

A call is a row before anything is sent, and its outcome is written when it is known. So a call that is repeated with
its key is made once: the second one finds the row of the first. Where the server ended in between, a tool that the
service itself makes once per key is called again; of any other one nobody can know, and the answer says so.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic_core import from_json, to_json
from sqlalchemy import insert, select, update

from baobab.runtime.integrations.provider import (
    ConnectionLost,
    IntegrationProvider,
    Outcome,
    ProviderBusy,
    Setting,
    ToolFacts,
    ToolFailed,
    ToolUnknown,
)
from baobab.storage.cancellation import run_to_completion
from baobab.tools.core import BaobabError, Call, RateLimited
from baobab.tools.core.limits.rate_limits import resolve_answer
from baobab.tools.integrations.errors import (
    ConnectionExpired,
    ExecutionFailed,
    KeyUsed,
    NotConnected,
    OutcomeUnknown,
    QuotaExceeded,
    ServiceUnreachable,
    StillRunning,
)
from baobab.tools.integrations.grants import build_connection, choose_account, list_connections, seal_grant
from baobab.tools.integrations.links import build_link
from baobab.tools.integrations.refreshing import refresh_grant
from baobab.tools.integrations.schemas import Row
from baobab.tools.integrations.subject import load_subject, require_user_id
from baobab.tools.integrations.tables import FREEZES, calls, connections
from baobab.tools.integrations.toolkits import build_setting, find_provider, find_toolkit_of, translate_busy
from baobab.tools.integrations.toolset import EXPIRED

_PER_USER, _WINDOW = 120, 60
"""How many calls a user may make in so many seconds, and so the app for the user."""
_GIVEN_UP_AFTER = timedelta(minutes=5)
"""After so long without an outcome, the server that made a call is gone."""
_LONGEST_RESULT = 2**20
_MOST_MADE = 200
_LONGEST_MESSAGE = 1000
_columns = calls.c


@dataclass(frozen=True, slots=True)
class CallPlan:
    """A call of a tool that can be made."""

    provider: IntegrationProvider
    setting: Setting
    tool: ToolFacts
    account: Row
    params: Mapping[str, Any]

    @property
    def account_name(self) -> str:
        return str(self.account.account_name or self.account.id)

    @property
    def digest(self) -> str:
        """The same for the same call with the same account, also once that was connected again."""
        account = self.account.account_id or self.account.external_id or self.account.id
        content = [self.tool.name, self.account.app_user_id, account, dict(self.params)]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


async def prepare(
    call: Call, tool_name: str, params: Mapping[str, Any], user_id: str | None, account: str | None
) -> CallPlan:
    """Finds the tool and the account of a call. Raises the errors of EXECUTING but those of the service."""
    found_id = require_user_id(call, user_id)
    row = await find_toolkit_of(call, tool_name)
    provider = find_provider(call.services, row.provider)
    accounts = await list_connections(call, found_id, row.toolkit_slug)
    accounts = [each for each in accounts if each.provider == row.provider]
    chosen_row = choose_account(accounts, account)
    if chosen_row is None or chosen_row.status == "inactive":
        raise await _build_not_connected(call, row, found_id, account, chosen_row)
    if chosen_row.status == "expired":
        raise await _build_expired(call, chosen_row)
    try:
        tool = await provider.find_tool(row.toolkit_slug, tool_name)
    except ToolUnknown as exc:
        raise ExecutionFailed(str(exc), details={"tool": tool_name}) from exc
    except ProviderBusy as busy:
        raise translate_busy(busy) from busy
    return CallPlan(provider, build_setting(call.services.vault, row), tool, chosen_row, params)


async def execute(call: Call, plan: CallPlan, key: str | None) -> tuple[Any, str]:
    """Calls a tool, and returns what the service has answered, and the call's id. Raises the errors of EXECUTING.

    key: the idempotency key of the caller, or of the step or approval that makes the call; None for none.
    """
    user_id = plan.account.app_user_id
    await _spend(call, user_id)
    key_digest = None if key is None else _digest_key(user_id, key)
    row = await _claim(call, plan, key_digest)
    if row.status == "succeeded":
        return _open_result(call, row), row.id
    # To the end even if the client has gone: what the service does must be written down.
    return await run_to_completion(_make(call, plan, row)), row.id


def find_key(call: Call, given: str | None) -> str | None:
    """Returns the idempotency key of a call: the caller's own, else that of its approval or of its run's step."""
    if given is not None:
        return f"given {given}"
    if call.approved_attempt is not None:
        return f"approval {call.approved_attempt.id}"
    step = call.context.step
    return None if step is None else f"step {step.run_id} {step.call_id}"


async def _spend(call: Call, user_id: str) -> None:
    subject = f"{call.require_app().id}:{user_id}"
    try:
        await resolve_answer(call.services.limits.spend("integrations", subject, _PER_USER, _WINDOW))
    except RateLimited as exc:
        message = f"More than {_PER_USER} calls for one user in {_WINDOW} s."
        raise QuotaExceeded(message, details=exc.details, retry_after=exc.retry_after) from exc


async def _claim(call: Call, plan: CallPlan, key_digest: str | None) -> Row:
    """Returns the row of the call: a new one, or one that may be made again, or that of a call that has succeeded.

    Raises KeyUsed, StillRunning, OutcomeUnknown, or the failure of the call that the key has made.
    """
    app_id, now = call.require_app().id, call.now
    values: dict[str, Any] = {
        "app_id": app_id,
        "id": call.services.ids.uuid_at(now),
        "app_user_id": plan.account.app_user_id,
        "connection_id": plan.account.id,
        "toolkit_slug": plan.account.toolkit_slug,
        "tool": plan.tool.name,
        "account_name": plan.account_name,
        "status": "running",
        "key_digest": key_digest,
        "request_digest": plan.digest,
        "simulated": plan.provider.is_simulated,
        "created_at": now,
    }
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        earlier: Any = None
        if key_digest is not None:
            query = select(calls).where(_columns.app_id == app_id, _columns.key_digest == key_digest)
            earlier = (await unit.execute(query)).first()
        if earlier is None:
            await unit.execute(insert(calls), values)
            return (await unit.execute(select(calls).where(_is(app_id, values["id"])))).first()
        if earlier.request_digest != plan.digest:
            raise KeyUsed
        if earlier.status == "succeeded":
            return earlier
        if earlier.status == "running" and now - earlier.created_at < _GIVEN_UP_AFTER:
            raise StillRunning(retry_after=2)
        if earlier.status in ("running", "unknown") and not plan.tool.repeatable:
            await unit.execute(update(calls).where(_is(app_id, earlier.id)).values(status="unknown", ended_at=now))
            # Raised below, or the transaction would be rolled back.
        elif earlier.status == "failed" and earlier.code == "refused":
            pass
        else:
            again = {"status": "running", "created_at": now, "ended_at": None, "code": None, "message": None}
            await unit.execute(update(calls).where(_is(app_id, earlier.id)).values(**again))
            return (await unit.execute(select(calls).where(_is(app_id, earlier.id)))).first()
    if earlier.status == "failed":
        raise ExecutionFailed(earlier.message, details=_describe(plan, earlier.id))
    raise OutcomeUnknown(details={**_describe(plan, earlier.id), "outcome": "unknown"})


async def _make(call: Call, plan: CallPlan, row: Row) -> Any:
    try:
        outcome = await _ask(call, plan, row)
    except ToolFailed as exc:
        message = str(exc)[:_LONGEST_MESSAGE]
        await _end(call, row, status="failed", code="refused", message=message)
        raise ExecutionFailed(message, details=_describe(plan, row.id)) from exc
    except ConnectionLost as exc:
        await _end(call, row, status="failed", code="expired", message=str(exc)[:_LONGEST_MESSAGE])
        await mark_expired(call, plan.account, str(exc))
        raise await _build_expired(call, plan.account) from exc
    except ProviderBusy as busy:
        was_sent = busy.was_sent and not plan.tool.repeatable and plan.tool.effect != "read"
        status = "unknown" if was_sent else "failed"
        await _end(call, row, status=status, code="unreachable", message=str(busy)[:_LONGEST_MESSAGE])
        raise _translate(plan, row, busy, was_sent=was_sent) from busy
    except BaseException:
        await _end(call, row, status="failed", code="error", message="The server failed.")
        raise
    await _end(call, row, status="succeeded", outcome=outcome, connection_id=plan.account.id)
    return outcome.data


async def _ask(call: Call, plan: CallPlan, row: Row) -> Outcome:
    vault = call.services.vault
    account = await refresh_grant(call.services, call.stores.database, plan.provider, plan.setting, plan.account)
    connection = build_connection(vault, account)
    return await plan.provider.execute(plan.setting, connection, plan.tool, plan.params, row.id)


async def _end(
    call: Call,
    row: Row,
    *,
    status: str,
    code: str | None = None,
    message: str | None = None,
    outcome: Outcome | None = None,
    connection_id: str = "",
) -> None:
    """Writes what became of a call, in a transaction of its own: it has happened, whatever becomes of our own call."""
    values: dict[str, Any] = {"status": status, "code": code, "message": message, "ended_at": call.now}
    if outcome is not None and row.key_digest is not None:
        text = to_json({"data": outcome.data})
        if len(text) <= _LONGEST_RESULT:
            values["result"] = call.services.vault.seal(text, _context(row.id))
    async with call.stores.database.writing_unit(lock=row.app_id) as unit:
        await unit.execute(update(calls).where(_is(row.app_id, row.id)).values(**values))
        if outcome is None:
            return
        is_account = (connections.c.app_id == row.app_id, connections.c.id == connection_id)
        changes: dict[str, Any] = {"last_used_at": call.now}
        if outcome.made is not None:
            made_things = (await unit.execute(select(connections.c.made).where(*is_account))).scalar()
            changes["made"] = [*(made_things or []), dict(outcome.made)][-_MOST_MADE:]
        await unit.execute(update(connections).where(*is_account).values(**changes))


async def mark_expired(call: Call, account: Row, reason: str) -> None:
    """Marks an account that its service does not accept any more, and tells it as an event. Once."""
    app = call.require_app()
    is_active = (connections.c.app_id == app.id, connections.c.id == account.id, connections.c.status == "active")
    async with call.stores.database.writing_unit(lock=app.id) as unit:
        change = update(connections).where(*is_active)
        values = {
            "status": "expired",
            "status_reason": reason[:_LONGEST_MESSAGE],
            **seal_grant(call.services.vault, "", None),
        }
        if (await unit.execute(change.values(**values))).rowcount:
            data = {"connection_id": account.id, "user_id": account.app_user_id, "toolkit": account.toolkit_slug}
            data |= {"account_name": account.account_name, "reason": reason[:_LONGEST_MESSAGE]}
            await call.services.jobs.emit(unit, EXPIRED, app_id=app.id, data=data, tenant=app.organisation_id)


async def _build_not_connected(
    call: Call, row: Row, user_id: str, account: str | None, chosen_row: Row | None
) -> BaobabError:
    message = f"The user has no connected account of {row.display_name}."
    if account is not None and chosen_row is None:
        message = f"The user has no account of {row.display_name} that is called so."
    url, _ = build_link(call, await load_subject(call, user_id), row.toolkit_slug)
    return NotConnected(message, details={"toolkit": row.toolkit_slug, "connect_url": url})


async def _build_expired(call: Call, account: Row) -> BaobabError:
    subject = await load_subject(call, account.app_user_id)
    url, _ = build_link(call, subject, account.toolkit_slug, account.alias)
    message = f"The connection with {account.account_name} has expired."
    return ConnectionExpired(message, details={"toolkit": account.toolkit_slug, "connect_url": url})


def _translate(plan: CallPlan, row: Row, busy: ProviderBusy, *, was_sent: bool) -> BaobabError:
    details = _describe(plan, row.id)
    if busy.is_limit:
        return QuotaExceeded(str(busy), details=details, retry_after=busy.seconds)
    if was_sent:
        return OutcomeUnknown(details={**details, "outcome": "unknown"})
    return ServiceUnreachable(str(busy), details=details, retry_after=busy.seconds)


def _describe(plan: CallPlan, call_id: str) -> dict[str, Any]:
    return {"tool": plan.tool.name, "account": plan.account_name, "call_id": call_id}


def _open_result(call: Call, row: Row) -> Any:
    if row.result is None:
        call.warn("The call was made before, and what the service answered then is not kept any more.")
        return None
    return from_json(call.services.vault.open(row.result, _context(row.id)))["data"]


def _digest_key(user_id: str, key: str) -> str:
    return hashlib.sha256(f"{user_id}\0{key}".encode()).hexdigest()


def _is(app_id: str, call_id: str) -> Any:
    return (_columns.app_id == app_id) & (_columns.id == call_id)


def _context(call_id: str) -> str:
    return f"integration_calls.result:{call_id}"
