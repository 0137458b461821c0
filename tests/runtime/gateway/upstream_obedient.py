"""A model that does what the last words of the user say, as a client's test asks it to.

/say TEXT            answer with the text
/call TOOL {...}     call the tool, and answer with what it returned
/refuse FIELD        refuse the request for a field of it
... {...}            answer with the JSON, or call with it the one tool that the request demands
"""

import re
from typing import Any

from tests.runtime.gateway.upstream_wires import MESSAGES, Script, Wire

_SAY = re.compile(r"^/say (.*)", re.MULTILINE)
_CALL = re.compile(r"^/call (\S+) (\{.*\})", re.MULTILINE)
_REFUSE = re.compile(r"^/refuse (\S+)", re.MULTILINE)
_JSON = re.compile(r"\{.*\}", re.DOTALL)


def build_script(fields: Any) -> Script:
    """The answer to a request on any of the wires."""
    last = _messages(fields)[-1]
    result = _result(last)
    if result is not None:
        return Script(tuple(re.findall(r"\S+\s*", result)))
    text = _text(last)
    if call_match := _CALL.search(text):
        return Script((), ((call_match[1], call_match[2]),))
    if say_match := _SAY.search(text):
        return Script(tuple(re.findall(r"\S+\s*", say_match[1])))
    results = _JSON.search(text)
    assert results, f"no command is in {text!r}"
    if tool_name := _demanded_tool(fields):
        return Script((), ((tool_name, results[0]),))
    return Script(tuple(re.findall(r"\S+\s*", results[0])))


def find_refusal(wire: Wire, fields: Any) -> dict[str, Any] | None:
    """The error for a request that asks to be refused, as the wire's vendor words it."""
    results = _REFUSE.search(_text(_messages(fields)[-1]))
    if results is None:
        return None
    message = (
        f"{results[1]}: only the default is taken"
        if wire is MESSAGES
        else f"Invalid '{results[1]}': only the default is taken."
    )
    error = wire.error(400, "invalid_value", message)
    if wire is not MESSAGES:
        error["error"]["param"] = results[1]
    return error


def _messages(fields: Any) -> list[Any]:
    messages = fields.get("messages") or fields["input"]
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


def _text(message: Any) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text") or "" for part in content)


def _result(message: Any) -> str | None:
    """Returns a tool's result, if the message has one."""
    if message.get("role") == "tool":
        return _text(message)
    if message.get("type") == "function_call_output":
        return _text({"content": message["output"]})
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    results = [_text(part) for part in parts if part.get("type") == "tool_result"]
    return "\n".join(results) if results else None


def _demanded_tool(fields: Any) -> str:
    """The tool that the answer must call; translators ask for JSON so."""
    choice = fields.get("tool_choice")
    return str(choice.get("name") or choice.get("function", {}).get("name") or "") if isinstance(choice, dict) else ""
