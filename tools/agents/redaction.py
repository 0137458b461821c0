"""Redaction: users and visitors see what they said and were answered, but not the app's costs and data."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.agents.failures import INTERNAL_FIELDS
from baobab.tools.core import Anonymous, Caller, EndUser

_HELD_BY_TYPE = {
    "llm_token_usage": {"model", "cost_usd"},
    "model_retry": {"error"},
    "tools_withheld": {"tools"},
    # The event may belong to a call of a tool server or of a built-in tool.
    "run_resumed": {"args"},
}
_HELD = {"args", "result", "result_characters", "error", "payload"}

_NEUTRAL = {
    "tool_failed": "A tool that the agent uses failed.",
    "model_failed": "The model that the agent uses did not answer.",
}


def is_outsider(caller: Caller) -> bool:
    """Returns whether a caller is a user or a visitor of the app, not one of the people and keys that run it."""
    return isinstance(caller, (EndUser, Anonymous))


def redact_event(caller: Caller, event: dict[str, Any]) -> dict[str, Any]:
    """Returns an event as the caller may see it.

    Tools of the registry act with the caller's own rights, so that their arguments and results are the caller's to see.
    All other calls are made with the app's own credentials or right, and runs below may be the app's internal parts.
    """
    if not is_outsider(caller):
        return event
    payload: Mapping[str, Any] = event["payload"]
    if event["type"] in _HELD_BY_TYPE:
        return event | {"payload": _without(payload, _HELD_BY_TYPE[event["type"]])}
    if event["type"] == "run_failed":
        neutral = {"error": _neutral_message(payload["type"])} if "quotes" in payload else {}
        return event | {"payload": _without(payload, {"quotes", *INTERNAL_FIELDS}) | neutral}
    # Whoever may decide about a call sees its arguments.
    is_own = payload.get("tool_source", "builtin") == "builtin" and "run_as" not in payload
    if is_own or "approval_token" in payload:
        return event
    visible = _without(payload, _HELD)
    if isinstance(error := payload.get("error"), Mapping) and "code" in error:
        visible["error"] = {"code": error["code"]}
    if "payload" in payload:
        visible["payload"] = dict(visible)
    return event | {"payload": visible}


def redact_failure(error: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Returns why a run failed, without texts of tool servers and providers, which may contain the app's data."""
    if error is None:
        return error
    message = _neutral_message(error["type"]) if "quotes" in error else error["message"]
    return {"message": message, "type": error["type"]}


def _neutral_message(type_: str) -> str:
    return _NEUTRAL.get(type_, "A part of the agent failed.")


def _without(payload: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in names}
