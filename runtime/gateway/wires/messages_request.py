"""Translates a request for one of Anthropic's messages into one for a chat completion."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reasoning import attach_reasoning
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires.fields import field_error, get_object, list_objects, require_text
from baobab.runtime.gateway.wires.history import place_results

_PICTURE_TOKENS = 1600
"""Anthropic's count for the largest picture."""
# Fields that have another form in a chat completion, and fields that only Anthropic supports.
_TRANSLATED_FIELDS = frozenset(
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
"""The most thinking tokens for which the effort is low, and medium."""


def build_chat_request(body: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Builds the request for a chat completion. Raises RequestRefused for what that cannot express."""
    messages = [*_build_system(body)]
    for at, message in list_objects(body, "messages"):
        messages += _build_messages(message, at)
    request: dict[str, Any] = {name: value for name, value in body.items() if name not in _TRANSLATED_FIELDS}
    request["messages"] = place_results(messages)
    request["max_completion_tokens" if model.provider == "openai" else "max_tokens"] = body["max_tokens"]
    if body.get("stop_sequences"):
        request["stop"] = body["stop_sequences"]
    if body.get("top_k") is not None and model.provider != "openai":
        request["top_k"] = body["top_k"]
    user = get_object(body, "metadata").get("user_id")
    if isinstance(user, str):
        request["user"] = user
    return {**request, **_build_tools(body), **_build_reasoning(body, model), **_build_format(body)}


def _build_system(body: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    system = body.get("system")
    if isinstance(system, str):
        yield {"role": "system", "content": system}
    elif system:
        parts = [require_text(block, "text", at) for at, block in list_objects(body, "system")]
        yield {"role": "system", "content": "\n\n".join(parts)}


def _build_messages(message: Mapping[str, Any], at: str) -> list[dict[str, Any]]:
    """Builds the chat messages for one message: results of tools become messages of their own."""
    role = message.get("role")
    if role not in ("user", "assistant", "system"):
        raise field_error(f"{at}.role", "must be `user` or `assistant`")
    if isinstance(message.get("content"), str):
        return [{"role": role, "content": message["content"]}]
    blocks = list_objects(message, "content", at)
    if role == "assistant":
        return [_build_assistant_message(blocks)]
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for where, block in blocks:
        if block.get("type") == "tool_result":
            result, other_parts = _build_result(block, where)
            results.append(result)
            parts += other_parts
        else:
            parts.append(_build_part(block, where))
    # Results come first, because they must follow their calls directly.
    return [*results, {"role": role, "content": parts}] if parts else results


def _build_assistant_message(blocks: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    sealed_texts: list[Any] = []
    for at, block in blocks:
        match block.get("type"):
            case "text":
                texts.append(require_text(block, "text", at))
            case "tool_use":
                calls.append(_build_call(block, at))
            case "thinking" | "redacted_thinking":
                # Only what was sealed here can be given back; Anthropic's own is for its models.
                sealed_texts.append(block.get("signature" if block["type"] == "thinking" else "data"))
            case _:
                raise field_error(f"{at}.type", "must be `text`, `tool_use` or `thinking` for this model")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    if calls:
        message["tool_calls"] = calls
    for sealed_text in sealed_texts:
        attach_reasoning(message, sealed_text)
    return message


def _build_call(block: Mapping[str, Any], at: str) -> dict[str, Any]:
    arguments = to_json(get_object(block, "input", at)).decode()
    function = {"name": require_text(block, "name", at), "arguments": arguments}
    return {"id": require_text(block, "id", at), "type": "function", "function": function}


def _build_result(block: Mapping[str, Any], at: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Builds the message of a tool, which has only text, and returns the result's other parts with it."""
    content = block.get("content")
    other_parts: list[dict[str, Any]] = []
    result_text = content if isinstance(content, str) else ""
    if not isinstance(content, str):
        parts = [_build_part(part, where) for where, part in list_objects(block, "content", at)]
        result_text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        other_parts = [part for part in parts if part["type"] != "text"]
    if block.get("is_error") is True:
        result_text = f"Error: {result_text}"
    return {"role": "tool", "tool_call_id": require_text(block, "tool_use_id", at), "content": result_text}, other_parts


def _build_part(block: Mapping[str, Any], at: str) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": require_text(block, "text", at)}
    if kind not in ("image", "document"):
        raise field_error(f"{at}.type", "must be `text`, `image`, `document` or `tool_result` for this model")
    source, where = get_object(block, "source", at), f"{at}.source"
    match source.get("type"):
        case "base64":
            url = f"data:{require_text(source, 'media_type', where)};base64,{require_text(source, 'data', where)}"
        case "url" if kind == "image":
            url = require_text(source, "url", where)
        case "text" if kind == "document":
            return {"type": "text", "text": require_text(source, "data", where)}
        case _:
            raise field_error(f"{where}.type", "is not supported by this model; send it as `base64`")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    title = block.get("title")
    name = title if isinstance(title, str) and title else "document.pdf"
    return {"type": "file", "file": {"filename": name, "file_data": url}}


def _build_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    request: dict[str, Any] = {}
    tools = []
    for at, tool in list_objects(body, "tools"):
        if tool.get("type") not in (None, "custom"):
            raise field_error(f"{at}.type", "must be `custom` for this model")
        function = {"name": require_text(tool, "name", at), "parameters": get_object(tool, "input_schema", at)}
        function |= {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
        tools.append({"type": "function", "function": function})
    if tools:
        request["tools"] = tools
    choice = get_object(body, "tool_choice")
    if choice.get("disable_parallel_tool_use") is True:
        request["parallel_tool_calls"] = False
    match choice.get("type"):
        case "auto" | "none" as mode:
            request["tool_choice"] = mode
        case "any":
            request["tool_choice"] = "required"
        case "tool":
            function = {"name": require_text(choice, "name", "tool_choice")}
            request["tool_choice"] = {"type": "function", "function": function}
        case None:
            pass
        case _:
            raise field_error("tool_choice.type", "must be `auto`, `any`, `tool` or `none`")
    return request


def _build_reasoning(body: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Builds the reasoning effort, for models that reason."""
    if "reasoning" not in model.features:
        return {}
    thinking, effort = get_object(body, "thinking"), get_object(body, "output_config").get("effort")
    if isinstance(effort, str):
        return {"reasoning_effort": _EFFORTS.get(effort, effort)}
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return {}
    return {"reasoning_effort": "low" if budget <= _SOME_THOUGHT else "medium" if budget <= _MUCH_THOUGHT else "high"}


def _build_format(body: Mapping[str, Any]) -> dict[str, Any]:
    form = get_object(get_object(body, "output_config"), "format", "output_config") or get_object(body, "output_format")
    if not form:
        return {}
    if form.get("type") != "json_schema":
        raise field_error("output_config.format.type", "must be `json_schema`")
    schema = {"name": "answer", "schema": get_object(form, "schema", "output_config.format")}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def estimate_tokens(body: Mapping[str, Any], model: Model) -> int:
    """Estimates the tokens of a request if no provider can count them: one for each four bytes. Raises RequestRefused
    for a request that the model could not take.
    """
    request = build_chat_request({**body, "max_tokens": 1}, model)
    parts = [part for message in request["messages"] for part in _content_parts(message)]
    pictures = [part["image_url"] for part in parts if part["type"] == "image_url"]
    characters = len(to_json([request["messages"], request.get("tools", ()), request.get("response_format", ())]))
    meter = UsageMeter()
    meter.estimate_usage(characters - sum(len(picture["url"]) for picture in pictures))
    return meter.prompt + _PICTURE_TOKENS * len(pictures)


def _content_parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []
