"""Makes the tool calls and child runs of a run, with events before and after each."""

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
from baobab.runtime.agents.spec.announcements import CallingNode
from baobab.runtime.agents.spec.spec import AgentNode, NamedApprovers, ToolRef

_MOST_REFUSED, _LONGEST_NAME = 2000, 200
"""The most characters of the arguments and of the name of a call that cannot be made."""
_MOST_RESULT = 256 * 1024
_GREATEST_KEPT = 64 * 1024
"""The most characters of a result that an event contains."""


async def make_call(
    session: RunSession,
    ref: ToolRef,
    arguments: Mapping[str, Any],
    call_id: str,
    tainted: bool,
    approvers: NamedApprovers | None,
    calling: CallingNode | None = None,
) -> CallResult:
    """Makes a call and emits its events. Returns its result. calling: the node, if it is a `tool` or `map`."""
    payload_base: dict[str, Any] = {"tool_source": ref.source, "tool_name": ref.name, "call_id": call_id}
    if calling is not None and calling.lends_right:
        payload_base["run_as"] = calling.node.run_as
    if (server := session.toolbox.get_server_name(ref, call_id)) is not None:
        payload_base["server"] = server
    redacted_arguments = session.toolbox.redact_arguments(ref, arguments)
    session.event_log.emit_event("tool_call_start", {**payload_base, "args": redacted_arguments}, f"call {call_id}")
    end_subject, started_at = f"called {call_id}", time.monotonic()
    try:
        result = await session.toolbox.call_tool(
            ref, arguments, call_id, tainted=tainted, approvers=approvers, calling=calling
        )
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
        payload_base["duration_ms"] = _milliseconds_since(started_at)
        payload_failed = {
            **payload_base,
            "status": "error",
            "error": failed.error,
            **quoting,
            **_edited_arguments(failed.arguments),
        }
        session.event_log.emit_event("tool_call_end", payload_failed, end_subject)
        raise
    except CallDenied as denied:
        payload_base["duration_ms"] = _milliseconds_since(started_at)
        session.event_log.emit_event(
            "tool_call_end", {**payload_base, "status": "denied", "error": {"message": denied.reason}}, end_subject
        )
        raise
    payload_base["duration_ms"] = _milliseconds_since(started_at)
    edited_arguments = _edited_arguments(result.arguments)
    text = as_text(result.value)
    if len(text) > _MOST_RESULT:
        too_large = ToolFailed(
            {"code": "RESULT_TOO_LARGE", "message": f"The result has more than {_MOST_RESULT} characters."},
            result.arguments,
        )
        session.event_log.emit_event(
            "tool_call_end",
            {**payload_base, "status": "error", "error": too_large.error, **edited_arguments},
            end_subject,
        )
        raise too_large
    payload = {**_result_payload(result.value), **edited_arguments}
    if result.warnings:
        payload["warnings"] = list(result.warnings)
    if result.texts:
        payload["read"] = list(result.texts)
    if result.tainted:
        payload["tainted"] = True
        session.event_log.taint()
    session.event_log.emit_event("tool_call_end", {**payload_base, "status": "ok", **payload}, end_subject)
    return result


def refuse_call(
    session: RunSession, tool_call: Mapping[str, Any], call_id: str, code: str, message: str, source: str = "unknown"
) -> dict[str, Any]:
    """Emits the events of a model's call that cannot be made, with the name and the text that the model gave.

    Returns the error for the model. source: of the tool; `unknown` where there is none of this name.
    """
    function = tool_call.get("function") or {}
    name, text = (_clean_text(str(function.get(part) or "")) for part in ("name", "arguments"))
    arguments: dict[str, Any] = {"args": text[:_MOST_REFUSED]}
    if len(text) > _MOST_REFUSED:
        arguments["args_characters"] = len(text)
    payload_base: dict[str, Any] = {"tool_source": source, "tool_name": name[:_LONGEST_NAME], "call_id": call_id}
    error = {"code": code, "message": message}
    session.event_log.emit_event("tool_call_start", {**payload_base, **arguments}, f"call {call_id}")
    payload = {**payload_base, "duration_ms": 0, "status": "error", "error": error}
    session.event_log.emit_event("tool_call_end", payload, f"called {call_id}")
    return error


def _clean_text(text: str) -> str:
    """Returns a model's text without what databases cannot store."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


async def delegate_run(
    session: RunSession, node: AgentNode, input_values: Mapping[str, Any], call_id: str, *, tainted: bool
) -> RunResult:
    """Runs another agent and emits the events of a call. Returns the result of the child run."""
    payload_base: dict[str, Any] = {"tool_source": "agent", "tool_name": node.agent, "call_id": call_id}
    payload_base["run_id"] = session.toolbox.get_child_id(call_id)
    session.event_log.emit_event("tool_call_start", {**payload_base, "args": input_values}, f"call {call_id}")
    end_subject, started_at = f"called {call_id}", time.monotonic()
    try:
        result = await session.toolbox.run_agent(node, input_values, call_id, tainted=tainted)
    except ChildRunPending as delegated:
        interrupt({"run_id": delegated.run_id})
        raise
    except RunFailed as failed:
        error = {"code": failed.type, "message": failed.message}
        payload_base["duration_ms"] = (
            _milliseconds_since(started_at) if failed.milliseconds is None else failed.milliseconds
        )
        session.event_log.emit_event("tool_call_end", {**payload_base, "status": "error", "error": error}, end_subject)
        raise
    payload_base["duration_ms"] = (
        _milliseconds_since(started_at) if result.milliseconds is None else result.milliseconds
    )
    payload = _result_payload(result.output)
    if result.incomplete is not None:
        payload["incomplete"] = result.incomplete
    if result.tainted:
        payload["tainted"] = True
        session.event_log.taint()
    session.event_log.emit_event("tool_call_end", {**payload_base, "status": "ok", **payload}, end_subject)
    return result


def _milliseconds_since(begin: float) -> int:
    return round((time.monotonic() - begin) * 1000)


def _edited_arguments(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the fields of an event for arguments that a person gave in place of the run's."""
    return {} if arguments is None else {"args": dict(arguments)}


def is_quoting(ref: ToolRef) -> bool:
    """Returns whether a tool's errors may quote strangers. Those of built-in tools do not."""
    return ref.source != "builtin"


def _result_payload(result: Any) -> dict[str, Any]:
    """Returns the fields of an event for a result: the result itself, or its size if it is large."""
    text = as_text(result)
    return {"result": result} if len(text) <= _GREATEST_KEPT else {"result_characters": len(text)}


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
