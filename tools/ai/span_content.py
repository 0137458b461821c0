"""Renders prompts and answers by OpenTelemetry's conventions, cut to a size that is fit for a trace.

Of pictures, sounds and files only the kind is recorded.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

LARGEST = 64 * 2**10
"""The most characters of a prompt, and of an answer, in one span; of a longer prompt the latest messages are kept."""
_LONGEST_TEXT = 8 * 2**10

Message = dict[str, Any]


def request_messages(body: Mapping[str, Any]) -> str | None:
    """Renders the messages of a request as JSON text; None if it has none."""
    items = body.get("messages", body.get("input"))
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return None
    instructions = body.get("system") or body.get("instructions")
    system_messages = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    return _encode_messages([_message(item) for item in (*system_messages, *items)])


def response_messages(answer: Mapping[str, Any]) -> str | None:
    """Renders a whole answer as JSON text; None if it has no messages, such as embeddings."""
    if isinstance(answer.get("choices"), list):
        messages = [
            {**_message(choice.get("message") or {}, "assistant"), "finish_reason": str(choice.get("finish_reason"))}
            for choice in answer["choices"]
        ]
    elif isinstance(answer.get("content"), list):
        messages = [{**_message(answer, "assistant"), "finish_reason": str(answer.get("stop_reason"))}]
    elif isinstance(answer.get("output"), list):
        parts = [part for item in answer["output"] for part in _message(item, "assistant")["parts"]]
        messages = [{"role": "assistant", "parts": parts, "finish_reason": str(answer.get("status"))}]
    else:
        return None
    return _encode_messages(messages)


def _encode_messages(messages: list[Message]) -> str:
    texts: list[bytes] = []
    size = 0
    for message in reversed(messages):
        text = to_json(message)
        size += len(text)
        if size > LARGEST:
            break
        texts.append(text)
    return "[" + b",".join(reversed(texts)).decode() + "]"


def _message(raw_message: Mapping[str, Any], default_role: str = "user") -> Message:
    role = raw_message.get("role")
    parts: list[Any] = []
    if raw_message.get("role") == "tool" or raw_message.get("type") in ("tool_result", "function_call_output"):
        result = (
            raw_message.get("content")
            if raw_message.get("role") == "tool"
            else raw_message.get("output", raw_message.get("content"))
        )
        call_id = raw_message.get("tool_call_id") or raw_message.get("call_id") or raw_message.get("tool_use_id")
        parts.append({"type": "tool_call_response", "id": _short(call_id), "response": _short(result)})
    elif raw_message.get("type") in ("function_call", "tool_use"):
        parts.append(_tool_call_part(raw_message, raw_message))
    else:
        content = raw_message.get("content")
        parts += _parts(content if isinstance(content, list) else [content])
    tool_calls = raw_message.get("tool_calls")
    for call in tool_calls if isinstance(tool_calls, list) else ():
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            parts.append(_tool_call_part(call, call["function"]))
    return {"role": role if isinstance(role, str) else default_role, "parts": parts}


def _parts(content: list[Any]) -> list[Any]:
    parts: list[Any] = []
    for part in content:
        if isinstance(part, str):
            parts.append({"type": "text", "content": _short(part)})
        elif isinstance(part, dict) and part.get("type") in ("tool_use", "tool_result"):
            parts += _message(part)["parts"]
        elif isinstance(part, dict):
            text = part.get("text")
            kind = "text" if isinstance(text, str) else str(part.get("type"))[:100]
            parts.append({"type": kind, "content": _short(text)} if isinstance(text, str) else {"type": kind})
    return parts


def _tool_call_part(call: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function.get("arguments", function.get("input"))
    return {
        "type": "tool_call",
        "id": _short(call.get("call_id") or call.get("id")),
        "name": _short(function.get("name")),
        "arguments": _short(arguments),
    }


def _short(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else to_json(value).decode()
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."
