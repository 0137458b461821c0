"""Creates runs: checks who may start one, finds repeated starts, inserts the row and the first job."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Executable, bindparam, insert, select

from baobab.runtime.agents.job_kinds import ADVANCE, RUN_STARTED
from baobab.runtime.agents.run_rows import build_run_row
from baobab.runtime.agents.tables import runs
from baobab.storage.sql.database import Unit
from baobab.tools.agents.admission import count_run, count_under_way, find_budget_refusal, require_room
from baobab.tools.agents.agent_rows import dedupe_seconds
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.errors import AgentDisabled, KeyReused, NotYourRun, RunConflict
from baobab.tools.agents.run_ownership import (
    caller_subject,
    conversation_owner,
    derive_visitor_id,
    is_agent_available,
    visitor_owner,
)
from baobab.tools.core import Account, Anonymous, AppKey, Call, Caller, EndUser
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.deciders import name_starter

_MOST_NAMESAKES = 100
"""How many earlier runs of one address and idempotency key are compared."""


# Built once: every start asks one of them.
_INSERT_RUN = insert(runs)
_OF_AGENT = select(runs).where(runs.c.agent_id == bindparam("agent"))
_LATEST_OF_AGENT = _OF_AGENT.order_by(runs.c.created_at.desc()).limit(bindparam("most"))
_HAS_KEY = runs.c.idempotency_key == bindparam("key")
_FIND_BY_VISITOR_AND_KEY = _LATEST_OF_AGENT.where(runs.c.person == bindparam("starter"), _HAS_KEY)
_FIND_BY_KEY = _LATEST_OF_AGENT.where(runs.c.subject == bindparam("starter"), _HAS_KEY)
_FIND_LATEST = _LATEST_OF_AGENT.where(
    runs.c.subject == bindparam("starter"),
    runs.c.idempotency_key.is_(None),
    runs.c.created_at > bindparam("since"),
    # Forks and child runs were not started with a body.
    runs.c.forked_from.is_(None),
    runs.c.parent_run_id.is_(None),
)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A request to start a run."""

    input: Mapping[str, Any]
    idempotency_key: str | None = None
    thread_id: str | None = None
    webhook_url: str | None = None
    as_user: str | None = None
    origin: "ForkOrigin | None" = None
    visitor_id: str | None = None

    @property
    def digest(self) -> str:
        parts = [self.input, self.thread_id, self.webhook_url, self.as_user]
        if self.origin is not None:
            parts += [self.origin.run.id, self.origin.point.step, self.origin.state]
        return sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """The step from which a fork goes on. state: replaces values of the run's state."""

    run: Any
    point: Any
    state: Mapping[str, Any] | None


async def start_run(call: Call, agent: Any, request: RunRequest) -> tuple[Any, bool]:
    """Returns the run's row and whether it is new.

    Raises AgentDisabled, NotYourRun, LimitExceeded, RunConflict or KeyReused.
    """
    caller = await _find_acting_caller(call, request)
    if not is_agent_available(agent.visibility, call.caller):
        raise NotYourRun
    subject = caller_subject(caller, call.context.ip)
    if request.origin is not None and isinstance(caller, Anonymous):
        subject = request.origin.run.subject
    if agent.status != "active":
        raise AgentDisabled
    repeated_query = _build_query_of_repeated(call, agent, subject, request)
    if isinstance(call.caller, (EndUser, Anonymous)):
        # A repeated start does not count against the limits.
        earlier = None if repeated_query is None else _select_repeated(call, request, await call.read(*repeated_query))
        if earlier is not None:
            return earlier, False
        await count_run(call, agent, subject)
    budget_refusal = await find_budget_refusal(call, agent)
    queries = [count_under_way(agent)] if repeated_query is None else [count_under_way(agent), repeated_query]
    async with FREEZES.writing_after(call, *queries) as (unit, (counts, *earlier_rows)):
        earlier = _select_repeated(call, request, earlier_rows[0]) if earlier_rows else None
        if earlier is not None:
            return earlier, False
        if budget_refusal is not None:
            raise budget_refusal
        require_room(agent, counts)
        row = await _insert_run(call, unit, agent, request, caller, subject)
    return row, True


async def _insert_run(call: Call, unit: Unit, agent: Any, request: RunRequest, caller: Caller, subject: str) -> Any:
    run_id, app = call.services.ids.uuid(), call.require_app()
    values = build_run_row(agent, run_id, request.input, call.now) | {
        "caller_kind": proposers.kind_of(caller),
        "caller": {
            **proposers.encode_caller(caller, _voucher(call, caller)),
            # Whoever has a run started does not approve what it asks with the app's right.
            "started_by": name_starter(call.caller),
            "brings_outside_text": call.context.brings_outside_text,
            **({} if call.context.trigger is None else {"trigger": dict(call.context.trigger)}),
        },
        "subject": subject,
        "person": _resolve_person(call, request, caller, run_id),
        "caller_user_id": caller.user_id if isinstance(caller, EndUser) else None,
        "caller_ip": call.context.ip[:60],
        "organisation_id": app.organisation_id,
        "account_id": _account(caller) or agent.created_by or "",
        "idempotency_key": request.idempotency_key,
        "payload_hash": request.digest,
        "thread_id": request.thread_id,
        "webhook_url": request.webhook_url,
        "tainted": call.context.brings_outside_text,
    }
    if request.origin is not None:
        run, point = request.origin.run, request.origin.point
        # A fork keeps the graph to which its state belongs.
        values |= {"graph_spec": run.graph_spec, "model": run.model, "forked_from": run.id, "forked_step": point.step}
        values |= {"tainted": point.is_tainted, "taint_checks": agent.taint_checks or run.taint_checks}
        values |= {"approvers": agent.approvers or run.approvers}
        await point.save_to_run(unit, app.id, run_id)
    await unit.write(_INSERT_RUN, values)
    is_outside = call.context.brings_outside_text or isinstance(caller, (EndUser, Anonymous))
    await call.services.jobs.emit(
        unit,
        RUN_STARTED,
        app_id=app.id,
        data={"run_id": run_id, "agent": agent.name},
        tenant=app.organisation_id,
        origin={"run_id": run_id, "outside": is_outside},
        only_awaited=True,
    )
    # The tenant is the app's organisation, so that many visitors get no more of the workers than one.
    arguments, tenant = {"run_id": run_id}, app.organisation_id
    await call.services.jobs.enqueue(unit, ADVANCE, arguments, job_id=f"run:{run_id}", tenant=tenant)
    call.audit.resource_id, call.audit.data["agent"] = run_id, agent.name
    return SimpleNamespace(**values)


def _build_query_of_repeated(
    call: Call, agent: Any, subject: str, request: RunRequest
) -> tuple[Executable, dict[str, Any]] | None:
    """Builds the query for runs that this start may repeat. None if it can repeat none."""
    is_stranger = isinstance(call.caller, Anonymous)
    values: dict[str, Any] = {"agent": agent.id, "most": _MOST_NAMESAKES if is_stranger else 1}
    visitor_id = request.visitor_id if is_stranger else None
    values["starter"] = subject if visitor_id is None else visitor_owner(visitor_id)
    if request.idempotency_key is not None:
        values["key"] = request.idempotency_key
        return _FIND_BY_KEY if visitor_id is None else _FIND_BY_VISITOR_AND_KEY, values
    if (window_seconds := dedupe_seconds(agent)) and request.origin is None and not is_stranger:
        # Visitors share addresses: one visitor's body must not match another's run.
        values["since"] = call.now - timedelta(seconds=window_seconds)
        return _FIND_LATEST, values
    return None


def _select_repeated(call: Call, request: RunRequest, rows: Iterable[Any]) -> Any:
    """Returns the run that this start repeats. Raises RunConflict or KeyReused if that had another body."""
    is_stranger = isinstance(call.caller, Anonymous)
    if is_stranger and request.visitor_id is None:
        # A visitor with an id of its own is known by that id and not by its address.
        vault = call.services.vault
        rows = [row for row in rows if row.person == visitor_owner(derive_visitor_id(vault, row.id))]
    row = next(iter(rows), None)
    if row is None or row.payload_hash == request.digest:
        return row
    error_kind = RunConflict if request.idempotency_key is None else KeyReused
    # The id is all that guards a visitor's run: others at the same address must not learn it.
    raise error_kind(details={} if isinstance(call.caller, Anonymous) else {"existing_run_id": row.id})


async def _find_acting_caller(call: Call, request: RunRequest) -> Caller:
    """Returns the user as whom the run acts: those who run the app may name one of its users."""
    if request.origin is not None and request.origin.run.caller_kind == "anonymous":
        # The state contains text of a stranger, which must not act with the rights of whoever forks the run.
        return Anonymous(call.require_app().id)
    if request.as_user is None:
        return call.caller
    if isinstance(call.caller, EndUser):
        raise NotYourRun("Only those who run the app can start runs for its users.")
    key_id = call.caller.key_id if isinstance(call.caller, (Account, AppKey)) else None
    app_id = call.require_app().id
    # As the user would act now, who may be one of another system's.
    users = await call.services.credentials.find_addresses(app_id, [request.as_user])
    role = users[request.as_user].role if request.as_user in users else "user"
    return EndUser(app_id, request.as_user, role, key_id, call.caller.limits)


def _voucher(call: Call, caller: Caller) -> tuple[str, str] | None:
    """Returns the account that lets the run act as one of the app's users, and the account's organisation."""
    if not isinstance(caller, EndUser) or not isinstance(call.caller, Account):
        return None
    return call.caller.account_id, call.require_app().organisation_id


def _resolve_person(call: Call, request: RunRequest, caller: Caller, run_id: str) -> str:
    if not isinstance(caller, Anonymous):
        return conversation_owner(caller)
    if request.origin is not None:
        person: str = request.origin.run.person
        return person
    return visitor_owner(request.visitor_id or derive_visitor_id(call.services.vault, run_id))


def _account(caller: Caller) -> str | None:
    return caller.account_id if isinstance(caller, (Account, AppKey)) else None
