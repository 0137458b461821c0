"""Parses an OpenAI chat request for the built-in model, which ignores other fields (temperature, seed, ...).

It is as strict as OpenAI about mistakes that would otherwise show only with a real model: names of tools, and that
every call is followed by its result.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from baobab.runtime.gateway.builtin import json_text
from baobab.runtime.work_budget import Budget

CONTEXT_WINDOW = 131_072
MAX_OUTPUT = 16_384
MOST_CHOICES = 16

Role = Literal["system", "user", "assistant", "tool"]

_ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "function": "tool",
    "system": "system",
    "tool": "tool",
    "user": "user",
}
_ATTACHMENTS = {"image_url": "image", "video_url": "video", "input_audio": "sound", "file": "file"}
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_DEPTH = 100


class BadParameter(ValueError):
    """The request is invalid.

    param: the path of the fault, such as `messages[1].content`. code: OpenAI's code of the fault.
    """

    def __init__(self, param: str, problem: str, code: str = "invalid_value") -> None:
        super().__init__(f"{param}: {problem}.")
        self.param = param
        self.code = code


class ContextTooLong(BadParameter):
    """The messages and tools have more tokens than the model takes."""

    def __init__(self, tokens: int) -> None:
        problem = f"the maximum context length is {CONTEXT_WINDOW} tokens, and this request has {tokens}"
        super().__init__("messages", problem, "context_length_exceeded")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model requested; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    text: str
    attachments: tuple[str, ...] = ()  # image, video, sound or file
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None  # the id of the call whose result this is


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    tools_text: str
    must_call: bool
    parallel: bool
    response_format: Literal["text", "json_object", "json_schema"]
    schema: Mapping[str, Any]
    most_tokens: int
    choices: int
    stop: tuple[str, ...]
    include_usage: bool


def parse_request(request: Mapping[str, Any], budget: Budget) -> ChatRequest:
    """Parses and checks a request. Raises BadParameter and OverBudget."""
    budget.spend(1 + sum(len(part) for part in request.values() if isinstance(part, list)))
    tools = _parse_tools(request)
    tools, must_call = _choose_tools(tools, request.get("tool_choice"))
    response_format, schema = _parse_response_format(request)
    limit = "max_completion_tokens" if request.get("max_completion_tokens") is not None else "max_tokens"
    return ChatRequest(
        messages=_parse_messages(request.get("messages")),
        tools=tools,
        tools_text=_write_tools(request, budget),
        must_call=must_call,
        parallel=_read_flag(request, "parallel_tool_calls", otherwise=True),
        response_format=response_format,
        schema=schema,
        most_tokens=min(_read_integer(request, limit, MAX_OUTPUT), MAX_OUTPUT),
        choices=_read_integer(request, "n", 1, most=MOST_CHOICES),
        stop=_parse_stop(request.get("stop")),
        include_usage=_read_flag(_read_object(request, "stream_options"), "include_usage", otherwise=False),
    )


def _parse_messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise BadParameter("messages", "must be an array of one or more messages")
    messages = tuple(_parse_message(message, f"messages[{number}]") for number, message in enumerate(value))
    open_calls: set[str] = set()
    for number, message in enumerate(messages):
        if message.role == "tool":
            if message.answers is not None and message.answers not in open_calls:
                raise BadParameter(f"messages[{number}].tool_call_id", "no call before this message has that id")
            open_calls.discard(message.answers or "")
        elif open_calls:
            raise BadParameter(f"messages[{number}]", f"results of calls are missing: {', '.join(sorted(open_calls))}")
        open_calls |= {call.id for call in message.calls}
    if open_calls:
        raise BadParameter("messages", f"results of calls are missing: {', '.join(sorted(open_calls))}")
    return messages


def _parse_message(value: Any, at: str) -> Message:
    if not isinstance(value, Mapping):
        raise BadParameter(at, "must be an object")
    role = _ROLES.get(str(value.get("role")))
    if role is None:
        raise BadParameter(f"{at}.role", f"must be one of {', '.join(_ROLES)}")
    text, attachments = _parse_content(value.get("content"), f"{at}.content")
    calls = _parse_calls(value.get("tool_calls"), f"{at}.tool_calls") if role == "assistant" else ()
    answers = value.get("tool_call_id")
    if value["role"] == "tool" and not isinstance(answers, str):
        raise BadParameter(f"{at}.tool_call_id", "must be the id of the call whose result this is")
    if value.get("content") is None and role != "assistant":
        raise BadParameter(f"{at}.content", "is missing")
    return Message(role, text, attachments, calls, answers if value["role"] == "tool" else None)


def _parse_content(value: Any, at: str) -> tuple[str, tuple[str, ...]]:
    if value is None or isinstance(value, str):
        return value or "", ()
    if not isinstance(value, list):
        raise BadParameter(at, "must be a string or an array of parts")
    texts: list[str] = []
    attachments: list[str] = []
    for number, part in enumerate(value):
        kind = str(part.get("type")) if isinstance(part, Mapping) else ""
        if kind in {"text", "refusal"}:
            texts.append(_read_text(part, kind, f"{at}[{number}]"))
        elif kind in _ATTACHMENTS:
            if not part.get(kind):
                raise BadParameter(f"{at}[{number}].{kind}", "is missing")
            attachments.append(_ATTACHMENTS[kind])
        else:
            raise BadParameter(f"{at}[{number}].type", f"must be one of text, {', '.join(_ATTACHMENTS)}")
    return "\n".join(texts), tuple(attachments)


def _parse_calls(value: Any, at: str) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for number, call in enumerate(_check_array(value, at)):
        where = f"{at}[{number}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise BadParameter(f"{where}.function", "must be an object")
        name, arguments = _read_text(function, "name", f"{where}.function"), _read_text(function, "arguments", where)
        calls.append(ToolCall(_read_text(call, "id", where), name, arguments))
    return tuple(calls)


def _parse_tools(request: Mapping[str, Any]) -> tuple[Tool, ...]:
    tools: dict[str, Tool] = {}
    if json_text.is_deeper(request.get("tools"), _MOST_DEPTH):
        raise BadParameter("tools", "is nested too deeply")
    for number, tool in enumerate(_check_array(request.get("tools"), "tools")):
        at = f"tools[{number}]"
        if not isinstance(tool, Mapping) or tool.get("type") != "function":
            raise BadParameter(f"{at}.type", "must be `function`")
        function = _read_object(tool, "function", at)
        name = function.get("name")
        if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
            raise BadParameter(f"{at}.function.name", "must be 1 to 64 letters, digits, `_` or `-`")
        if name in tools:
            raise BadParameter(f"{at}.function.name", f"there are two tools called {name}")
        tools[name] = Tool(name, _read_object(function, "parameters", f"{at}.function"))
    return tuple(tools.values())


def _write_tools(request: Mapping[str, Any], budget: Budget) -> str:
    """Renders the tools as text, whose tokens are counted."""
    text = json_text.encode_json(request["tools"]) if request.get("tools") else ""
    budget.spend(len(text) // 64)
    return text


def _choose_tools(tools: tuple[Tool, ...], choice: Any) -> tuple[tuple[Tool, ...], bool]:
    """Returns the tools that may be called, and whether one must be called."""
    if choice is None or choice == "auto":
        return tools, False
    if choice == "none":
        return (), False
    mode, names = choice, [tool.name for tool in tools]
    if isinstance(choice, Mapping):
        allowed_tools = _read_object(choice, "allowed_tools", "tool_choice")
        mode = allowed_tools.get("mode") if choice.get("type") == "allowed_tools" else "required"
        options = allowed_tools.get("tools") if choice.get("type") == "allowed_tools" else [choice]
        names = [_chosen_name(option) for option in _check_array(options, "tool_choice.allowed_tools.tools")]
    if str(mode) not in {"auto", "required"}:
        raise BadParameter("tool_choice", "must be `none`, `auto`, `required` or name a function")
    tools_by_name = {tool.name: tool for tool in tools}
    for name in names:
        if name not in tools_by_name:
            raise BadParameter("tool_choice", f"there is no tool called {name!r} in `tools`")
    if mode == "required" and not names:
        raise BadParameter("tool_choice", "asks for a call, and there are no tools")
    return tuple(tools_by_name[name] for name in names), mode == "required"


def _chosen_name(option: Any) -> str:
    if not isinstance(option, Mapping) or option.get("type") != "function":
        raise BadParameter("tool_choice", "must be `none`, `auto`, `required` or name a function")
    return _read_text(_read_object(option, "function", "tool_choice"), "name", "tool_choice.function")


def _parse_response_format(
    request: Mapping[str, Any],
) -> tuple[Literal["text", "json_object", "json_schema"], Mapping[str, Any]]:
    response_format = _read_object(request, "response_format")
    match response_format.get("type", "text"):
        case "text":
            return "text", {}
        case "json_object":
            return "json_object", {}
        case "json_schema":
            schema = _read_object(
                _read_object(response_format, "json_schema", "response_format"), "schema", "response_format.json_schema"
            )
            if json_text.is_deeper(schema, _MOST_DEPTH):
                raise BadParameter("response_format", "is nested too deeply")
            return "json_schema", schema
    raise BadParameter("response_format.type", "must be text, json_object or json_schema")


def _parse_stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else _check_array(value, "stop")
    if len(stops) > 4 or not all(isinstance(stop, str) and stop for stop in stops):
        raise BadParameter("stop", "must be a string, or an array of up to four")
    return tuple(stops)


def _read_integer(request: Mapping[str, Any], name: str, otherwise: int, most: int | None = None) -> int:
    value = request.get(name)
    if value is None:
        return otherwise
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
        raise BadParameter(name, f"must be an integer of 1 to {most}" if most else "must be an integer of 1 or more")
    return value


def _read_flag(holder: Mapping[str, Any], name: str, *, otherwise: bool) -> bool:
    value = holder.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadParameter(name, "must be true or false")
    return otherwise if value is None else value


def _check_array(value: Any, at: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise BadParameter(at, "must be an array")
    return value or []


def _read_object(holder: Mapping[str, Any], name: str, at: str = "") -> Mapping[str, Any]:
    value = holder.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise BadParameter(f"{at}.{name}" if at else name, "must be an object")
    return value or {}


def _read_text(holder: Mapping[str, Any], name: str, at: str) -> str:
    value = holder.get(name)
    if not isinstance(value, str):
        raise BadParameter(f"{at}.{name}", "must be a string")
    return value
