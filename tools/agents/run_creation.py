"""Starting a run: who may, whether it is one that was started already, and its row and first job."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from sqlalchemy import insert, select

from baobab.runtime.agents.job_kinds import ADVANCE
from baobab.runtime.agents.run_rows import build_run_row
from baobab.runtime.agents.tables import runs
from baobab.storage.database import Unit
from baobab.tools.agents.admission import count_run, find_budget_refusal, require_room
from baobab.tools.agents.errors import AgentDisabled, KeyReused, NotYourRun, RunConflict
from baobab.tools.agents.region import writing
from baobab.tools.agents.run_ownership import (
    caller_subject,
    conversation_owner,
    derive_visitor_id,
    is_agent_available,
    visitor_owner,
)
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser
from baobab.tools.core.call import Call

_MOST_NAMESAKES = 100
"""Runs of one address and idempotency key that are looked at."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What somebody wants to have run."""

    input: Mapping[str, Any]
    idempotency_key: str | None = None
    thread_id: str | None = None
    webhook_url: str | None = None
    as_user: str | None = None
    origin: "ForkOrigin | None" = None
    visitor_id: str | None = None

    @property
    def digest(self) -> str:
        meant = [self.input, self.thread_id, self.webhook_url, self.as_user]
        if self.origin is not None:
            meant += [self.origin.run.id, self.origin.point.step, self.origin.state]
        return sha256(json.dumps(meant, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """Where a fork goes on from. state: what was given in place of what the run held."""

    run: Any
    point: Any
    state: Mapping[str, Any] | None


async def start_run(call: Call, agent: Any, request: RunRequest) -> tuple[Any, bool]:
    """The run's row, and whether it is a new one. AgentDisabled, NotYourRun, LimitExceeded, RunConflict, KeyReused."""
    caller = _acting_caller(call, request)
    if not is_agent_available(agent.visibility, call.caller):
        raise NotYourRun
    who = caller_subject(caller, call.context.ip)
    if request.origin is not None and isinstance(caller, Anonymous):
        who = request.origin.run.subject
    if agent.status != "active":
        raise AgentDisabled
    if isinstance(call.caller, (EndUser, Anonymous)):
        # A start that was made before does not count.
        async with call.reading() as execute:
            earlier = await _find_earlier_run(execute, call, agent, who, request)
        if earlier is not None:
            return earlier, False
        await count_run(call, agent, who)
    is_spent = await find_budget_refusal(call, agent)
    async with writing(call) as unit:
        earlier = await _find_earlier_run(unit.execute, call, agent, who, request)
        if earlier is not None:
            return earlier, False
        if is_spent is not None:
            raise is_spent
        await require_room(unit, agent)
        row = await _insert_run(call, unit, agent, request, caller, who)
    return row, True


async def _insert_run(call: Call, unit: Unit, agent: Any, request: RunRequest, caller: Caller, who: str) -> Any:
    run_id, app = call.services.ids.uuid(), call.require_app()
    values = build_run_row(agent, run_id, request.input, call.now) | {
        "caller_kind": proposers.kind_of(caller),
        "caller": proposers.encode_caller(caller, _voucher(call, caller)),
        "subject": who,
        "person": _resolve_person(call, request, caller, run_id),
        "caller_user_id": caller.user_id if isinstance(caller, EndUser) else None,
        "caller_ip": call.context.ip[:60],
        "organisation_id": app.organisation_id,
        "account_id": _account(caller) or agent.created_by or "",
        "idempotency_key": request.idempotency_key,
        "payload_hash": request.digest,
        "thread_id": request.thread_id,
        "webhook_url": request.webhook_url,
    }
    if request.origin is not None:
        run, point = request.origin.run, request.origin.point
        # Its state is of that graph.
        values |= {"graph_spec": run.graph_spec, "model": run.model, "forked_from": run.id, "forked_step": point.step}
        values |= {"tainted": point.is_tainted, "taint_checks": agent.taint_checks or run.taint_checks}
        values |= {"approvers": agent.approvers or run.approvers}
        await point.save_to_run(unit, run_id)
    await unit.execute(insert(runs), values)
    # Of the app's organisation, whoever starts it: many strangers have no more turns than one.
    asked, tenant = {"run_id": run_id}, app.organisation_id
    await call.services.jobs.enqueue(unit, ADVANCE, asked, job_id=f"run:{run_id}", tenant=tenant)
    call.audit.resource_id, call.audit.data["agent"] = run_id, agent.name
    return SimpleNamespace(**values)


async def _find_earlier_run(execute: Any, call: Call, agent: Any, who: str, request: RunRequest) -> Any:
    """The run that this start is a repetition of."""
    stranger = isinstance(call.caller, Anonymous)
    theirs = select(runs).where(runs.c.agent_id == agent.id).order_by(runs.c.created_at.desc())
    if stranger and request.visitor_id is not None:
        theirs = theirs.where(runs.c.person == visitor_owner(request.visitor_id))
    else:
        theirs = theirs.where(runs.c.subject == who)
    if request.idempotency_key is not None:
        query = theirs.where(runs.c.idempotency_key == request.idempotency_key)
    elif agent.dedupe_window and request.origin is None and not stranger:
        # Visitors share addresses: what one of them sends says nothing about another's run.
        since = call.now - timedelta(seconds=agent.dedupe_window)
        # Neither a fork nor a step of another run was started with a body.
        own = (runs.c.forked_from.is_(None), runs.c.parent_run_id.is_(None))
        query = theirs.where(runs.c.idempotency_key.is_(None), runs.c.created_at > since, *own)
    else:
        return None
    found = (await execute(query.limit(_MOST_NAMESAKES if stranger else 1))).all()
    if stranger and request.visitor_id is None:
        # One that came with an id of its own is known by that, and not by an address.
        vault = call.services.vault
        found = [row for row in found if row.person == visitor_owner(derive_visitor_id(vault, row.id))]
    row = found[0] if found else None
    if row is None or row.payload_hash == request.digest:
        return row
    refused = RunConflict if request.idempotency_key is None else KeyReused
    # Whoever shares an address with it must not learn the id of a stranger's run, which is all that guards it.
    raise refused(details={} if isinstance(call.caller, Anonymous) else {"existing_run_id": row.id})


def _acting_caller(call: Call, request: RunRequest) -> Caller:
    """Whom the run acts as: whoever runs the app may have it act as one of the app's users."""
    if request.origin is not None and request.origin.run.caller_kind == "anonymous":
        # What a stranger has said is in it: it must not be heeded with the rights of whoever looks into it.
        return Anonymous(call.require_app().id)
    if request.as_user is None:
        return call.caller
    if isinstance(call.caller, EndUser):
        raise NotYourRun("Only those who run the app start runs for its users.")
    key_id = call.caller.key_id if isinstance(call.caller, (Account, AppKey)) else None
    # A fork of a user's run acts as that user did.
    role = "user" if request.origin is None else request.origin.run.caller.get("role", "user")
    return EndUser(call.require_app().id, request.as_user, role, key_id, call.caller.limits)


def _voucher(call: Call, caller: Caller) -> tuple[str, str] | None:
    """The account that has the run act as one of the app's users, and the organisation in which it may do so."""
    if not isinstance(caller, EndUser) or not isinstance(call.caller, Account):
        return None
    return call.caller.account_id, call.require_app().organisation_id


def _resolve_person(call: Call, request: RunRequest, caller: Caller, run_id: str) -> str:
    if not isinstance(caller, Anonymous):
        return conversation_owner(caller)
    if request.origin is not None:
        kept: str = request.origin.run.person
        return kept
    return visitor_owner(request.visitor_id or derive_visitor_id(call.services.vault, run_id))


def _account(caller: Caller) -> str | None:
    return caller.account_id if isinstance(caller, (Account, AppKey)) else None
