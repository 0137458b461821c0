"""Calls of a run's tools and runs of other agents, told of before and after."""

import json
import time
from collections.abc import Mapping
from typing import Any

from langgraph.types import interrupt

from baobab.runtime.agents.failures import Delegated, Denied, Limited, RunFailed, ToolFailed, Waiting
from baobab.runtime.agents.session import CallResult, Outcome, Session
from baobab.runtime.agents.spec import AgentNode, NamedApprovers, ToolRef

_MOST_RESULT = 256 * 1024
_GREATEST_KEPT = 64 * 1024
"""Characters of a result that an event tells."""


async def make_call(
    session: Session,
    ref: ToolRef,
    arguments: Mapping[str, Any],
    call_id: str,
    tainted: bool,
    approvers: NamedApprovers | None,
) -> CallResult:
    """The result of a call, told of before and after."""
    about: dict[str, Any] = {"tool_source": ref.source, "tool_name": ref.name, "call_id": call_id}
    if (server := session.toolbox.server(ref, call_id)) is not None:
        about["server"] = server
    shown = session.toolbox.shown(ref, arguments)
    session.journal.tell("tool_call_start", {**about, "args": shown}, f"call {call_id}")
    ended, begin = f"called {call_id}", time.monotonic()
    try:
        result = await session.toolbox.call(ref, arguments, call_id, tainted=tainted, approvers=approvers)
    except Waiting as waiting:
        interrupt({"approval_id": waiting.approval_id, **about, **waiting.shown})
        raise
    except Limited as limited:
        interrupt({"again_in": limited.seconds})
        raise
    except ToolFailed as failed:
        quoting = {"tainted": True} if is_quoting(ref) else {}
        if quoting:
            session.journal.taint()
        about["duration_ms"] = _milliseconds_since(begin)
        failing = {**about, "status": "error", "error": failed.told, **quoting, **_used(failed.arguments)}
        session.journal.tell("tool_call_end", failing, ended)
        raise
    except Denied as denied:
        about["duration_ms"] = _milliseconds_since(begin)
        session.journal.tell("tool_call_end", {**about, "status": "denied", "error": {"message": denied.reason}}, ended)
        raise
    about["duration_ms"] = _milliseconds_since(begin)
    used = _used(result.arguments)
    text = text_of(result.value)
    if len(text) > _MOST_RESULT:
        too_large = ToolFailed(
            {"code": "RESULT_TOO_LARGE", "message": f"The result has more than {_MOST_RESULT} characters."},
            result.arguments,
        )
        session.journal.tell("tool_call_end", {**about, "status": "error", "error": too_large.told, **used}, ended)
        raise too_large
    told = {**_kept(result.value), **used}
    if session.toolbox.taints(ref):
        told["tainted"] = True
        session.journal.taint()
    session.journal.tell("tool_call_end", {**about, "status": "ok", **told}, ended)
    return result


async def delegate_run(
    session: Session, node: AgentNode, given: Mapping[str, Any], call_id: str, *, tainted: bool
) -> Outcome:
    """What a run of another agent returned, told of as a call is."""
    about: dict[str, Any] = {"tool_source": "agent", "tool_name": node.agent, "call_id": call_id}
    about["run_id"] = session.toolbox.child_id(call_id)
    session.journal.tell("tool_call_start", {**about, "args": given}, f"call {call_id}")
    ended, begin = f"called {call_id}", time.monotonic()
    try:
        outcome = await session.toolbox.delegate(node, given, call_id, tainted=tainted)
    except Delegated as delegated:
        interrupt({"run_id": delegated.run_id})
        raise
    except RunFailed as failed:
        error = {"code": failed.type, "message": failed.message}
        about["duration_ms"] = _milliseconds_since(begin)
        session.journal.tell("tool_call_end", {**about, "status": "error", "error": error}, ended)
        raise
    about["duration_ms"] = _milliseconds_since(begin)
    told = _kept(outcome.output)
    if outcome.tainted:
        told["tainted"] = True
        session.journal.taint()
    session.journal.tell("tool_call_end", {**about, "status": "ok", **told}, ended)
    return outcome


def _milliseconds_since(begin: float) -> int:
    return round((time.monotonic() - begin) * 1000)


def _used(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an event says of arguments that a person gave in place of what the run wanted."""
    return {} if arguments is None else {"args": dict(arguments)}


def is_quoting(ref: ToolRef) -> bool:
    """Whether the refusals of a tool may be in the words of strangers: those of our own tools are in ours."""
    return ref.source != "builtin"


def _kept(result: Any) -> dict[str, Any]:
    """What an event tells of a result."""
    text = text_of(result)
    return {"result": result} if len(text) <= _GREATEST_KEPT else {"result_characters": len(text)}


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
