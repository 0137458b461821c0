"""Translates a request for one of OpenAI's responses into one for a chat completion."""

from collections.abc import Iterator, Mapping
from typing import Any

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reasoning import attach_reasoning
from baobab.runtime.gateway.wires.fields import field_error, get_object, list_objects, require_text
from baobab.runtime.gateway.wires.history import place_results
from baobab.runtime.gateway.wires.namespaces import flat_name

# Fields that have another form in a chat completion, and fields that only OpenAI supports.
_TRANSLATED_FIELDS = frozenset(
    (
        "model",
        "input",
        "instructions",
        "max_output_tokens",
        "stream",
        "stream_options",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "store",
        "include",
        "truncation",
        "metadata",
        "client_metadata",
        "max_tool_calls",
        "context_management",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "background",
        "previous_response_id",
        "conversation",
        "prompt",
        "moderation",
    )
)


def build_chat_request(body: Mapping[str, Any], model: Model) -> dict[str, Any]:
    """Builds the request for a chat completion. Raises RequestRefused for what that cannot express."""
    request: dict[str, Any] = {
        name: value
        for name, value in body.items()
        if name not in _TRANSLATED_FIELDS and (name != "top_logprobs" or value)
    }
    request["messages"] = _build_messages(body)
    if body.get("max_output_tokens") is not None:
        newer = "max_completion_tokens" if model.provider == "openai" else "max_tokens"
        request[newer] = body["max_output_tokens"]
    if "top_logprobs" in request:
        request["logprobs"] = True
    effort = get_object(body, "reasoning").get("effort")
    if isinstance(effort, str) and "reasoning" in model.features:
        request["reasoning_effort"] = effort
    form = _build_format(get_object(body, "text"))
    return {**request, **_build_tools(body), **({"response_format": form} if form else {})}


def _build_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": require_text(body, "instructions", "request")})
    input_ = body["input"]
    if isinstance(input_, str):
        return [*messages, {"role": "user", "content": input_}]
    further: dict[int, dict[str, Any]] = {}
    reasoning: list[Any] = []
    attached_reasoning: list[tuple[dict[str, Any], Any]] = []
    for at, item in list_objects(body, "input"):
        match item.get("type", "message"):
            case "message":
                _add_message(messages, _build_message(item, at))
            case "function_call" | "custom_tool_call" as kind:
                _add_call(messages, _build_call(item, kind, at))
                attached_reasoning += ((messages[-1], sealed_text) for sealed_text in reasoning)
                reasoning = []
            case "function_call_output" | "custom_tool_call_output":
                result, other_message = _build_result(item, at)
                if other_message is not None:
                    further[len(messages)] = other_message
                messages.append(result)
            case "reasoning" if messages and messages[-1].get("tool_calls"):
                attached_reasoning.append((messages[-1], item.get("encrypted_content")))
            case "reasoning":
                # Only what was sealed here can be given back; OpenAI's own is for its models.
                reasoning.append(item.get("encrypted_content"))
            case _:
                raise field_error(
                    f"{at}.type", "must be `message`, `function_call` or `function_call_output` for this model"
                )
    for message, sealed_text in attached_reasoning:
        attach_reasoning(message, sealed_text)
    return place_results(messages, further)


def _build_message(item: Mapping[str, Any], at: str) -> dict[str, Any]:
    role = item.get("role")
    if role not in ("user", "assistant", "system", "developer"):
        raise field_error(f"{at}.role", "must be `user`, `assistant`, `system` or `developer`")
    # Not every provider knows `developer`, the newest name of the system role.
    role = "system" if role == "developer" else role
    if isinstance(item.get("content"), str):
        return {"role": role, "content": item["content"]}
    parts = [_build_part(part, where) for where, part in list_objects(item, "content", at)]
    if role == "assistant":
        return {"role": role, "content": "".join(part.get("text", "") for part in parts)}
    return {"role": role, "content": parts}


def _build_part(part: Mapping[str, Any], at: str) -> dict[str, Any]:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": require_text(part, "text", at)}
        case "refusal":
            return {"type": "text", "text": require_text(part, "refusal", at)}
        case "input_image":
            if not isinstance(part.get("image_url"), str):
                raise field_error(f"{at}.image_url", "must be a URL or a data URL: no files are stored here")
            image = {"url": part["image_url"]}
            if isinstance(part.get("detail"), str):
                image["detail"] = part["detail"]
            return {"type": "image_url", "image_url": image}
        case "input_file":
            if not isinstance(part.get("file_data"), str):
                raise field_error(f"{at}.file_data", "must be a data URL: this model takes no other files")
            file = {"filename": part.get("filename") or "document.pdf", "file_data": part["file_data"]}
            return {"type": "file", "file": file}
        case "input_audio":
            return {"type": "input_audio", "input_audio": dict(get_object(part, "input_audio", at))}
        case _:
            raise field_error(
                f"{at}.type", "must be `input_text`, `input_image`, `input_file` or `output_text` for this model"
            )


def _build_call(item: Mapping[str, Any], kind: str, at: str) -> dict[str, Any]:
    call_id = {"id": require_text(item, "call_id", at)}
    if kind == "custom_tool_call":
        custom = {
            "name": flat_name(item.get("namespace"), require_text(item, "name", at)),
            "input": require_text(item, "input", at),
        }
        return {**call_id, "type": "custom", "custom": custom}
    function = {
        "name": flat_name(item.get("namespace"), require_text(item, "name", at)),
        "arguments": require_text(item, "arguments", at),
    }
    return {**call_id, "type": "function", "function": function}


def _add_message(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Adds a message. What the assistant says after it has called a tool, before the result, belongs to the call."""
    last = messages[-1] if messages else {}
    if message["role"] == "assistant" and last.get("tool_calls"):
        last["content"] = (last["content"] or "") + message["content"] or None
    else:
        messages.append(message)


def _add_call(messages: list[dict[str, Any]], call: dict[str, Any]) -> None:
    """Adds a call to the assistant's message that it belongs to."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _build_result(item: Mapping[str, Any], at: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Builds the message of a tool, which has only text, and a user's message with the result's other parts."""
    answers, output = require_text(item, "call_id", at), item.get("output")
    if isinstance(output, str):
        return {"role": "tool", "tool_call_id": answers, "content": output}, None
    parts = [_build_part(part, where) for where, part in list_objects(item, "output", at)]
    result_text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    other_parts = [part for part in parts if part["type"] != "text"]
    result = {"role": "tool", "tool_call_id": answers, "content": result_text}
    return result, {"role": "user", "content": other_parts} if other_parts else None


def _build_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    tools = []
    for at, tool, namespace in _list_tools(body):
        fields = {name: tool[name] for name in ("name", "description", "strict") if tool.get(name) is not None}
        fields |= {"name": flat_name(namespace, require_text(tool, "name", at))} if namespace else {}
        if tool.get("type") == "custom":
            tools.append({"type": "custom", "custom": {**fields, **_build_grammar(tool, at)}})
        elif tool.get("type") != "function":
            raise field_error(f"{at}.type", "must be `function` or `custom` for this model")
        else:
            tools.append({"type": "function", "function": {**fields, "parameters": get_object(tool, "parameters", at)}})
    choice = body.get("tool_choice")
    request = {"tools": tools} if tools else {}
    return request if choice is None else {**request, "tool_choice": _build_choice(choice)}


def _list_tools(body: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yields each tool with its path and the name of its group."""
    for at, tool in list_objects(body, "tools"):
        if tool.get("type") == "namespace":
            group = require_text(tool, "name", at)
            yield from ((where, entry, group) for where, entry in list_objects(tool, "tools", at))
        else:
            yield at, tool, ""


def _build_grammar(tool: Mapping[str, Any], at: str) -> dict[str, Any]:
    form = get_object(tool, "format", at)
    if form.get("type") != "grammar":
        return {"format": form} if form else {}
    return {"format": {"type": "grammar", "grammar": {name: form.get(name) for name in ("syntax", "definition")}}}


def _build_choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    match choice.get("type"):
        case "function" | "custom" as kind:
            name = flat_name(choice.get("namespace"), require_text(choice, "name", "tool_choice"))
            return {"type": kind, kind: {"name": name}}
        case "allowed_tools":
            allowed_tools = [_build_choice(tool) for _, tool in list_objects(choice, "tools", "tool_choice")]
            return {
                "type": "allowed_tools",
                "allowed_tools": {"mode": choice.get("mode", "auto"), "tools": allowed_tools},
            }
        case _:
            raise field_error("tool_choice.type", "must be `function`, `custom` or `allowed_tools` for this model")


def _build_format(text_format: Mapping[str, Any]) -> dict[str, Any] | None:
    form = get_object(text_format, "format", "text")
    match form.get("type", "text"):
        case "text":
            return None
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            schema = {name: value for name, value in form.items() if name != "type" and value is not None}
            return {"type": "json_schema", "json_schema": schema}
        case _:
            raise field_error("text.format.type", "must be `text`, `json_object` or `json_schema`")
