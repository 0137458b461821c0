"""Calls of a run's tools and runs of other agents, told of before and after."""

import json
import time
from collections.abc import Mapping
from typing import Any

from langgraph.types import interrupt

from baobab.runtime.agents.failures import (
    ApprovalPending,
    CallDenied,
    ChildRunPending,
    RateLimited,
    RunFailed,
    ToolFailed,
)
from baobab.runtime.agents.run_session import CallResult, RunResult, RunSession
from baobab.runtime.agents.spec import AgentNode, NamedApprovers, ToolRef

_MOST_RESULT = 256 * 1024
_GREATEST_KEPT = 64 * 1024
"""Characters of a result that an event tells."""


async def make_call(
    session: RunSession,
    ref: ToolRef,
    arguments: Mapping[str, Any],
    call_id: str,
    tainted: bool,
    approvers: NamedApprovers | None,
) -> CallResult:
    """The result of a call, told of before and after."""
    payload_base: dict[str, Any] = {"tool_source": ref.source, "tool_name": ref.name, "call_id": call_id}
    if (server := session.toolbox.get_server_name(ref, call_id)) is not None:
        payload_base["server"] = server
    redacted = session.toolbox.redact_arguments(ref, arguments)
    session.event_log.emit_event("tool_call_start", {**payload_base, "args": redacted}, f"call {call_id}")
    end_subject, begin = f"called {call_id}", time.monotonic()
    try:
        result = await session.toolbox.call_tool(ref, arguments, call_id, tainted=tainted, approvers=approvers)
    except ApprovalPending as waiting:
        interrupt({"approval_id": waiting.approval_id, **payload_base, **waiting.details})
        raise
    except RateLimited as limited:
        interrupt({"again_in": limited.seconds})
        raise
    except ToolFailed as failed:
        quoting = {"tainted": True} if is_quoting(ref) else {}
        if quoting:
            session.event_log.taint()
        payload_base["duration_ms"] = _milliseconds_since(begin)
        failing = {
            **payload_base,
            "status": "error",
            "error": failed.error,
            **quoting,
            **_edited_arguments(failed.arguments),
        }
        session.event_log.emit_event("tool_call_end", failing, end_subject)
        raise
    except CallDenied as denied:
        payload_base["duration_ms"] = _milliseconds_since(begin)
        session.event_log.emit_event(
            "tool_call_end", {**payload_base, "status": "denied", "error": {"message": denied.reason}}, end_subject
        )
        raise
    payload_base["duration_ms"] = _milliseconds_since(begin)
    edited = _edited_arguments(result.arguments)
    text = as_text(result.value)
    if len(text) > _MOST_RESULT:
        too_large = ToolFailed(
            {"code": "RESULT_TOO_LARGE", "message": f"The result has more than {_MOST_RESULT} characters."},
            result.arguments,
        )
        session.event_log.emit_event(
            "tool_call_end", {**payload_base, "status": "error", "error": too_large.error, **edited}, end_subject
        )
        raise too_large
    payload = {**_result_payload(result.value), **edited}
    if session.toolbox.is_tainting(ref):
        payload["tainted"] = True
        session.event_log.taint()
    session.event_log.emit_event("tool_call_end", {**payload_base, "status": "ok", **payload}, end_subject)
    return result


async def delegate_run(
    session: RunSession, node: AgentNode, given: Mapping[str, Any], call_id: str, *, tainted: bool
) -> RunResult:
    """What a run of another agent returned, told of as a call is."""
    about: dict[str, Any] = {"tool_source": "agent", "tool_name": node.agent, "call_id": call_id}
    about["run_id"] = session.toolbox.get_child_id(call_id)
    session.event_log.emit_event("tool_call_start", {**about, "args": given}, f"call {call_id}")
    end_subject, begin = f"called {call_id}", time.monotonic()
    try:
        result = await session.toolbox.run_agent(node, given, call_id, tainted=tainted)
    except ChildRunPending as delegated:
        interrupt({"run_id": delegated.run_id})
        raise
    except RunFailed as failed:
        error = {"code": failed.type, "message": failed.message}
        about["duration_ms"] = _milliseconds_since(begin)
        session.event_log.emit_event("tool_call_end", {**about, "status": "error", "error": error}, end_subject)
        raise
    about["duration_ms"] = _milliseconds_since(begin)
    payload = _result_payload(result.output)
    if result.tainted:
        payload["tainted"] = True
        session.event_log.taint()
    session.event_log.emit_event("tool_call_end", {**about, "status": "ok", **payload}, end_subject)
    return result


def _milliseconds_since(begin: float) -> int:
    return round((time.monotonic() - begin) * 1000)


def _edited_arguments(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an event says of arguments that a person gave in place of what the run wanted."""
    return {} if arguments is None else {"args": dict(arguments)}


def is_quoting(ref: ToolRef) -> bool:
    """Whether the refusals of a tool may be in the words of strangers: those of our own tools are in ours."""
    return ref.source != "builtin"


def _result_payload(result: Any) -> dict[str, Any]:
    """What an event tells of a result."""
    text = as_text(result)
    return {"result": result} if len(text) <= _GREATEST_KEPT else {"result_characters": len(text)}


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
