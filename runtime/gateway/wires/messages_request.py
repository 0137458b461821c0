"""A request for a message, as one for a chat completion."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.wires.fields import object_in, objects_in, refused, text

# What is said otherwise there, and what only the vendor of this wire can do.
_TOLD = frozenset(
    (
        "model",
        "messages",
        "system",
        "max_tokens",
        "stream",
        "stop_sequences",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "output_format",
        "metadata",
        "cache_control",
        "context_management",
        "diagnostics",
        "service_tier",
        "inference_geo",
        "speed",
        "top_k",
    )
)
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_SOME_THOUGHT, _MUCH_THOUGHT = 4096, 16_384
"""Tokens for thinking up to which effort is low, and medium."""


def asked(body: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """RequestRefused for what a chat completion has no words for."""
    messages = [*_system(body)]
    for at, message in objects_in(body, "messages"):
        messages += _messages(message, at)
    request: dict[str, Any] = {name: value for name, value in body.items() if name not in _TOLD}
    request["messages"] = messages
    request["max_completion_tokens" if model.provider == "openai" else "max_tokens"] = body["max_tokens"]
    if body.get("stop_sequences"):
        request["stop"] = body["stop_sequences"]
    if body.get("top_k") is not None and model.provider != "openai":
        request["top_k"] = body["top_k"]
    user = object_in(body, "metadata").get("user_id")
    if isinstance(user, str):
        request["user"] = user
    return {**request, **_tools(body), **_thought(body, model), **_format(body)}


def _system(body: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    given = body.get("system")
    if isinstance(given, str):
        yield {"role": "system", "content": given}
    elif given:
        parts = [text(block, "text", at) for at, block in objects_in(body, "system")]
        yield {"role": "system", "content": "\n\n".join(parts)}


def _messages(message: Mapping[str, Any], at: str) -> list[dict[str, Any]]:
    """What one message is there: results of tools are messages of their own."""
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        raise refused(f"{at}.role", "is `user` or `assistant`")
    if isinstance(message.get("content"), str):
        return [{"role": role, "content": message["content"]}]
    blocks = objects_in(message, "content", at)
    if role == "assistant":
        return [_spoken(blocks)]
    told: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for where, block in blocks:
        if block.get("type") == "tool_result":
            result, seen = _result(block, where)
            told.append(result)
            parts += seen
        else:
            parts.append(_part(block, where))
    # Results come first: a call must be followed by them.
    return [*told, {"role": role, "content": parts}] if parts else told


def _spoken(blocks: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for at, block in blocks:
        match block.get("type"):
            case "text":
                texts.append(text(block, "text", at))
            case "tool_use":
                calls.append(_call(block, at))
            case "thinking" | "redacted_thinking":
                # Signed by the model that thought so; another one can do nothing with it.
                continue
            case _:
                raise refused(f"{at}.type", "is `text`, `tool_use` or `thinking` for this model")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    return {**message, "tool_calls": calls} if calls else message


def _call(block: Mapping[str, Any], at: str) -> dict[str, Any]:
    arguments = to_json(object_in(block, "input", at)).decode()
    function = {"name": text(block, "name", at), "arguments": arguments}
    return {"id": text(block, "id", at), "type": "function", "function": function}


def _result(block: Mapping[str, Any], at: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The message of a tool, which holds text only; and what else the result shows."""
    content = block.get("content")
    seen: list[dict[str, Any]] = []
    said = content if isinstance(content, str) else ""
    if not isinstance(content, str):
        parts = [_part(part, where) for where, part in objects_in(block, "content", at)]
        said = "\n".join(part["text"] for part in parts if part["type"] == "text")
        seen = [part for part in parts if part["type"] != "text"]
    if block.get("is_error") is True:
        said = f"Error: {said}"
    return {"role": "tool", "tool_call_id": text(block, "tool_use_id", at), "content": said}, seen


def _part(block: Mapping[str, Any], at: str) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": text(block, "text", at)}
    if kind not in ("image", "document"):
        raise refused(f"{at}.type", "is `text`, `image`, `document` or `tool_result` for this model")
    source, where = object_in(block, "source", at), f"{at}.source"
    match source.get("type"):
        case "base64":
            url = f"data:{text(source, 'media_type', where)};base64,{text(source, 'data', where)}"
        case "url" if kind == "image":
            url = text(source, "url", where)
        case "text" if kind == "document":
            return {"type": "text", "text": text(source, "data", where)}
        case _:
            raise refused(f"{where}.type", "is one that this model cannot be shown; send it as `base64`")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    title = block.get("title")
    name = title if isinstance(title, str) and title else "document.pdf"
    return {"type": "file", "file": {"filename": name, "file_data": url}}


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    request: dict[str, Any] = {}
    tools = []
    for at, tool in objects_in(body, "tools"):
        if tool.get("type") not in (None, "custom"):
            raise refused(f"{at}.type", "is `custom` for this model")
        function = {"name": text(tool, "name", at), "parameters": object_in(tool, "input_schema", at)}
        function |= {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
        tools.append({"type": "function", "function": function})
    if tools:
        request["tools"] = tools
    choice = object_in(body, "tool_choice")
    if choice.get("disable_parallel_tool_use") is True:
        request["parallel_tool_calls"] = False
    match choice.get("type"):
        case "auto" | "none" as mode:
            request["tool_choice"] = mode
        case "any":
            request["tool_choice"] = "required"
        case "tool":
            function = {"name": text(choice, "name", "tool_choice")}
            request["tool_choice"] = {"type": "function", "function": function}
        case None:
            pass
        case _:
            raise refused("tool_choice.type", "is `auto`, `any`, `tool` or `none`")
    return request


def _thought(body: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """How hard to think, for models that do."""
    if "reasoning" not in model.features:
        return {}
    thinking, effort = object_in(body, "thinking"), object_in(body, "output_config").get("effort")
    if isinstance(effort, str):
        return {"reasoning_effort": _EFFORTS.get(effort, effort)}
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return {}
    return {"reasoning_effort": "low" if budget <= _SOME_THOUGHT else "medium" if budget <= _MUCH_THOUGHT else "high"}


def _format(body: Mapping[str, Any]) -> dict[str, Any]:
    form = object_in(object_in(body, "output_config"), "format", "output_config") or object_in(body, "output_format")
    if not form:
        return {}
    if form.get("type") != "json_schema":
        raise refused("output_config.format.type", "is `json_schema`")
    schema = {"name": "answer", "schema": object_in(form, "schema", "output_config.format")}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}
