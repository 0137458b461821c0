"""Ownership of runs: one user never sees the runs of another."""

import hmac
from hashlib import sha256
from typing import Any

from sqlalchemy import bindparam, select

from baobab.runtime.agents.tables import AGENT_OF_RUN, agents, runs
from baobab.storage.secrets import Vault, digest_token
from baobab.tools.agents.errors import NotYourRun, RunNotFound
from baobab.tools.core import Account, Anonymous, AppKey, Call, Caller, EndUser
from baobab.tools.core.auth import proposers
from baobab.tools.core.limits.rate_limits import network

_ID_LENGTH = 40
# Built once: every look at a run asks this.
_FIND_RUN = (
    select(runs, agents.c.visibility)
    .outerjoin(agents, AGENT_OF_RUN)
    .where(runs.c.id == bindparam("run"), runs.c.app_id == bindparam("app"))
)


def caller_subject(caller: Caller, ip: str) -> str:
    """Returns the caller's subject: a text that differs for any two callers who must not share runs."""
    if isinstance(caller, EndUser):
        return f"user:{caller.user_id}"[:80]
    return f"ip:{network(ip)}"[:80] if isinstance(caller, Anonymous) else proposers.proposer_name(caller)[:80]


def conversation_owner(caller: Caller) -> str:
    """Returns the owner of the caller's conversations, whatever credential is used. A visitor is known by its id."""
    match caller:
        case EndUser():
            return f"user:{caller.user_id}"[:80]
        case Account() | AppKey(account_id=str()):
            return f"account:{caller.account_id}"
        case AppKey():
            return f"app:{caller.app_id}"
    raise TypeError("visitors are known by their id")


def visitor_owner(visitor_id: str) -> str:
    """Returns the owner for a visitor's id. The id is a credential, so only a digest of it is stored."""
    return f"visitor:{digest_token(visitor_id)}"[:80]


def resolve_person(user_id: str) -> str:
    """Returns the owner of the conversations of a user, or of a visitor by the visitor's id."""
    return visitor_owner(user_id) if user_id.startswith("vis_") else f"user:{user_id}"[:80]


def derive_visitor_id(vault: Vault, run_id: str) -> str:
    """Derives the id of a visitor who came without one from the first run."""
    mac = hmac.new(vault.derive("visitor"), run_id.encode(), sha256)
    return "vis_" + mac.hexdigest()[:_ID_LENGTH]


async def get_run_row(call: Call, app_id: str, run_id: str, agent: str | None = None, *, is_asked: bool = False) -> Any:
    """Returns a run that the caller may see.

    RunNotFound for a stranger's as for none, NotYourRun where the agent is no longer for such callers.
    is_asked: whether the caller is asked to decide about it.
    """
    rows = (await call.read(_FIND_RUN, {"run": run_id, "app": app_id})).all()
    row: Any = rows[0] if rows else None
    if row is None or (agent is not None and row.agent != agent):
        raise RunNotFound
    if not (is_asked or is_run_visible(call.caller, row)):
        raise RunNotFound
    if not is_agent_available(row.visibility, call.caller):
        raise NotYourRun
    return row


def is_agent_available(visibility: str, caller: Caller) -> bool:
    """Returns whether the caller may see an agent."""
    match caller:
        case EndUser():
            return visibility in ("authenticated", "public")
        case Anonymous():
            return visibility == "public"
    return isinstance(caller, (Account, AppKey))


def is_run_visible(caller: Caller, row: Any) -> bool:
    match caller:
        case Account() | AppKey():
            return True
        case EndUser():
            return bool(row.subject == caller_subject(caller, ""))
    # A run that was started without a credential is read with its id alone.
    return bool(row.caller_kind == "anonymous")
