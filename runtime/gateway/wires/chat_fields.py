"""Finds the field of a chat completion's request that no translation can read."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.wires.fields import field_error, list_objects, require_text

_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_PART_TYPES = frozenset(
    (
        "audio_url",
        "document",
        "file",
        "guarded_text",
        "grounding_source",
        "image_url",
        "input_audio",
        "query",
        "redacted_thinking",
        "refusal",
        "text",
        "thinking",
        "tool_reference",
        "video_url",
    )
)
_PICTURE_SCHEMES = ("https://", "http://", "gs://")
_NUMBERS = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed", "top_logprobs")


def find_malformed_field(body: Mapping[str, Any]) -> RequestRefused | None:
    """Returns the error for the first field whose form is wrong, None if all have the form of a chat completion's.

    It is for requests that could not be translated: it does not know the forms that only one provider has.
    """
    try:
        _check_messages(body)
        _check_tools(body)
        _check_options(body)
    except RequestRefused as exc:
        return exc
    return None


def _check_messages(body: Mapping[str, Any]) -> None:
    call_ids: set[Any] = set()
    for at, message in list_objects(body, "messages"):
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise field_error(f"{at}.role", "must be `system`, `developer`, `user`, `assistant` or `tool`")
        _check_content(message, at, is_optional=role == "assistant")
        for call_at, call in list_objects(message, "tool_calls", at):
            _check_tool_call(call, call_at)
            call_ids.add(call.get("id"))
        if role == "tool" and require_text(message, "tool_call_id", at) not in call_ids:
            raise field_error(f"{at}.tool_call_id", "must be the id of a call in an earlier message")


def _check_content(message: Mapping[str, Any], at: str, *, is_optional: bool) -> None:
    content = message.get("content")
    if isinstance(content, str) or (content is None and is_optional):
        return
    if not isinstance(content, list):
        raise field_error(f"{at}.content", "must be a text or an array of parts")
    for part_at, part in list_objects(message, "content", at):
        kind = part.get("type")
        if not isinstance(kind, str) or kind not in _PART_TYPES:
            raise field_error(f"{part_at}.type", "must be `text`, `image_url`, `input_audio` or `file`")
        if kind == "text":
            require_text(part, "text", part_at)
        elif kind == "image_url":
            _check_picture(part, part_at)
        elif kind == "input_audio":
            audio = _require_object(part, kind, part_at)
            require_text(audio, "data", f"{part_at}.{kind}")
            require_text(audio, "format", f"{part_at}.{kind}")
        elif kind == "file":
            file = _require_object(part, kind, part_at)
            require_text(file, "file_id" if "file_id" in file else "file_data", f"{part_at}.{kind}")


def _check_picture(part: Mapping[str, Any], at: str) -> None:
    where, image = f"{at}.image_url", part.get("image_url")
    if isinstance(image, str):
        url = image
    elif isinstance(image, dict):
        url = require_text(image, "url", where)
        where += ".url"
    else:
        raise field_error(where, "must be an object with a `url`")
    if not url.lower().startswith(_PICTURE_SCHEMES) and not (url.startswith("data:") and ";base64," in url):
        raise field_error(where, "must be a URL, or data in the form `data:image/png;base64,...`")


def _check_tool_call(call: Mapping[str, Any], at: str) -> None:
    if call.get("type") == "custom":
        return
    function = _require_object(call, "function", at)
    require_text(function, "name", f"{at}.function")
    arguments = require_text(function, "arguments", f"{at}.function")
    try:
        is_object = isinstance(from_json(arguments or "{}"), dict)
    except ValueError:
        is_object = False
    if not is_object:
        raise field_error(f"{at}.function.arguments", "must be the text of a JSON object")


def _check_tools(body: Mapping[str, Any]) -> None:
    for at, tool in list_objects(body, "tools"):
        if tool.get("type", "function") != "function":
            continue
        function = _require_object(tool, "function", at)
        require_text(function, "name", f"{at}.function")
        if function.get("parameters") is not None:
            _require_object(function, "parameters", f"{at}.function")
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        if require_text(choice, "type", "tool_choice") == "function":
            require_text(_require_object(choice, "function", "tool_choice"), "name", "tool_choice.function")
    elif choice not in (None, "auto", "none", "required"):
        raise field_error("tool_choice", "must be `auto`, `none`, `required` or an object")


def _check_options(body: Mapping[str, Any]) -> None:
    if body.get("response_format") is not None:
        response_format = _require_object(body, "response_format")
        if require_text(response_format, "type", "response_format") == "json_schema":
            schema = _require_object(response_format, "json_schema", "response_format")
            _require_object(schema, "schema", "response_format.json_schema")
    stop = body.get("stop")
    if not isinstance(stop, (str, list, type(None))):
        raise field_error("stop", "must be a text or an array of texts")
    for number, text in enumerate(stop if isinstance(stop, list) else ()):
        if not isinstance(text, str):
            raise field_error(f"stop[{number}]", "must be a text")
    for name in _NUMBERS:
        if not isinstance(body.get(name, 0), (int, float)):
            raise field_error(name, "must be a number")
    if body.get("thinking") is not None:
        _require_object(body, "thinking")


def _require_object(holder: Mapping[str, Any], name: str, at: str = "") -> dict[str, Any]:
    value = holder.get(name)
    if not isinstance(value, dict):
        raise field_error(f"{at}.{name}" if at else name, "must be an object")
    return value
