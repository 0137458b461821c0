"""Redaction: users and visitors see what they said and were answered, but not the app's costs and data."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.core.auth.callers import Anonymous, Caller, EndUser

_PRICED = {"model", "cost_usd"}
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
    if event["type"] == "llm_token_usage":
        return event | {"payload": _without(payload, _PRICED)}
    if event["type"] == "run_failed" and "quotes" in payload:
        return event | {"payload": _without(payload, {"quotes"}) | {"error": _neutral_message(payload["type"])}}
    if event["type"] == "run_resumed":
        # The event may belong to a call of a tool server or of a built-in tool.
        return event | {"payload": _without(payload, {"args"})}
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
    if error is None or "quotes" not in error:
        return error
    return {"message": _neutral_message(error["type"]), "type": error["type"]}


def _neutral_message(type_: str) -> str:
    return _NEUTRAL.get(type_, "A part of the agent failed.")


def _without(payload: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in names}
