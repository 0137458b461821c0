"""A model's reasoning, which must come back to the provider that gave it, and to no other one.

Within a loop of tool calls several providers want their reasoning back: as text, as parts with signatures, or
encrypted. A message that holds it names the upstream that it came from. In other wire formats it travels in a field
that clients send back unread: the signature of a thought, or the encrypted content of a reasoning item.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.events import LARGEST
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.reason import ProviderRefusal

ORIGIN = "reasoning_origin"
"""The field of a message that names the upstream of its reasoning. It is never sent to a provider."""
_TEXTS = ("reasoning_content", "reasoning")
LISTS = ("reasoning_details", "thinking_blocks", "reasoning_items")
_FIELDS = (*_TEXTS, *LISTS)
_GROWING = frozenset(("text", "summary", "thinking"))
# Signatures of thoughts that some providers attach to tool calls.
_OF_CALLS = ("extra_content", "provider_specific_fields")
_PREFIX = "baobab1."
_NAMED = re.compile(r"reasoning_(?:content|details|items)|thinking_blocks|\breasoning\b|extra_content")
_DEMANDED = re.compile(r"reasoning_content.{0,80}must be passed back", re.DOTALL)


def name_origin(model: Model | None) -> str:
    """Returns the name of an upstream in messages, which tells nothing about it. model: as its provider serves it."""
    if model is None:
        return ""
    return sha256(f"{model.provider}\n{model.upstream_name}".encode()).hexdigest()[:16]


class _Parts(list[str]):
    """The pieces of a text that is still growing."""


class ReasoningCollector:
    """Collects the reasoning of one answer from its deltas, or from its message."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[dict[str, Any]]] = {}
        self._by_index: dict[tuple[str, object, object], dict[str, Any]] = {}
        self._room = LARGEST

    def add(self, delta: Mapping[str, Any]) -> None:
        """Collects the reasoning of a delta. If there is far too much of it, none comes back."""
        if self._room < 0:
            return
        for name in _TEXTS:
            if isinstance(text := delta.get(name), str) and text:
                self._texts.setdefault(name, []).append(text)
                self._room -= len(text)
        self._room -= self.add_lists(delta)
        if self._room < 0:
            self.take()

    def add_lists(self, delta: Mapping[str, Any]) -> int:
        """Collects the parts of reasoning, without the text. Returns the number of characters."""
        size = 0
        for name in LISTS:
            items = delta.get(name)
            for item in items if isinstance(items, list) else ():
                if isinstance(item, dict):
                    size += sum(len(value) if isinstance(value, str) else 1 for value in item.values())
                    self._add_item(name, item)
        return size

    def take(self) -> dict[str, Any]:
        """Returns the fields that were collected since the last time."""
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        lists = {name: [_join_parts(item) for item in items] for name, items in self._lists.items()}
        self._texts, self._lists, self._by_index = {}, {}, {}
        return {**texts, **lists}

    def _add_item(self, name: str, item: dict[str, Any]) -> None:
        """Adds an item, or continues one of the same index, or the last one if that has no signature yet."""
        items = self._lists.setdefault(name, [])
        key = (name, item.get("type"), item.get("index"))
        if item.get("index") is not None:
            target = self._by_index.get(key)
        else:
            last = items[-1] if items else {}
            is_open = last.get("type") == item.get("type") == "thinking" and not last.get("signature")
            target = last if is_open else None
        if target is None:
            target = {}
            items.append(target)
            self._by_index[key] = target
        for field, value in item.items():
            if isinstance(value, str) and field in _GROWING:
                target.setdefault(field, _Parts()).append(value)
            elif value is not None and value != "":
                target[field] = value


def keep_reasoning(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a message that must come back to its provider."""
    return {name: message[name] for name in (*_FIELDS, ORIGIN) if message.get(name)}


def mark_origin(completion: dict[str, Any], model: Model | None) -> None:
    """Notes in the messages of a completion which upstream their reasoning is from."""
    for choice in completion["choices"]:
        message = choice.get("message")
        if isinstance(message, dict) and (_has_reasoning(message) or any(map(_has_signature, _list_calls(message)))):
            message[ORIGIN] = name_origin(model)


def fit_reasoning(body: Mapping[str, Any], model: Model | None) -> Mapping[str, Any]:
    """Returns a request without the reasoning that is another upstream's than this model's."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not any(isinstance(each, dict) and ORIGIN in each for each in messages):
        return body
    origin = name_origin(model)
    return {**body, "messages": [_fit_message(message, origin) for message in messages]}


def drop_unmarked_reasoning(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a request without the reasoning whose origin is not known."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    return {
        **body,
        "messages": [
            message if isinstance(message, dict) and ORIGIN in message else _drop_fields(message)
            for message in messages
        ],
    }


def change_refused_reasoning(body: Mapping[str, Any], error: RequestRefused) -> Mapping[str, Any]:
    """Returns a request that a provider may take after this refusal; the same object if it is not about reasoning.

    Some providers refuse messages with reasoning. DeepSeek refuses calls without it, such as those of another model,
    and takes an empty text.
    """
    cause, messages = error.__cause__, body.get("messages")
    if not isinstance(cause, ProviderRefusal) or not isinstance(messages, list) or not _NAMED.search(cause.words):
        return body
    change = _fill_in if _DEMANDED.search(cause.words) else _drop_fields
    changed_messages = [change(message) for message in messages]
    is_changed = any(one is not other for one, other in zip(messages, changed_messages, strict=True))
    return {**body, "messages": changed_messages} if is_changed else body


def seal_reasoning(fields: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], origin: str) -> str:
    """Encodes reasoning and the signatures of calls for a client; empty if there are none."""
    of_calls = {str(call["id"]): signature for call in calls if (signature := _get_signature(call))}
    if not fields and not of_calls:
        return ""
    content = to_json({"origin": origin, "fields": dict(fields), "calls": of_calls})
    return _PREFIX + base64.urlsafe_b64encode(content).decode()


def is_sealed(text: Any) -> bool:
    """Returns whether this is what `seal_reasoning` has returned."""
    return isinstance(text, str) and text.startswith(_PREFIX)


def attach_reasoning(message: dict[str, Any], sealed_text: Any) -> None:
    """Adds what a client has sent back to the message that it belongs to, if that calls tools; ignores other text."""
    if not is_sealed(sealed_text) or not message.get("tool_calls"):
        return
    try:
        content = from_json(base64.urlsafe_b64decode(sealed_text[len(_PREFIX) :].encode()))
    except ValueError:
        return
    if not isinstance(content, dict):
        return
    fields, of_calls = content.get("fields"), content.get("calls")
    message[ORIGIN] = str(content.get("origin"))
    for name, value in fields.items() if isinstance(fields, dict) else ():
        if name in _TEXTS and isinstance(value, str):
            message[name] = message.get(name, "") + value
        elif name in LISTS and isinstance(value, list):
            message[name] = [*message.get(name, ()), *value]
    for call in message["tool_calls"]:
        signature = of_calls.get(call.get("id")) if isinstance(of_calls, dict) else None
        if isinstance(signature, dict):
            call.update({name: signature[name] for name in _OF_CALLS if name in signature})


def _fit_message(message: Any, origin: str) -> Any:
    if not isinstance(message, dict) or ORIGIN not in message:
        return message
    plain_message = {name: value for name, value in message.items() if name != ORIGIN}
    return plain_message if message[ORIGIN] == origin else _drop_fields(plain_message)


def _fill_in(message: Any) -> Any:
    if not isinstance(message, dict) or message.get("role") != "assistant" or "reasoning_content" in message:
        return message
    return {**message, "reasoning_content": ""}


def _drop_fields(message: Any) -> Any:
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return message
    calls = _list_calls(message)
    is_signed = any(map(_has_signature, calls))
    if not is_signed and not _has_reasoning(message):
        return message
    plain_message = {name: value for name, value in message.items() if name not in (*_FIELDS, ORIGIN)}
    if is_signed:
        plain_message["tool_calls"] = [
            {name: value for name, value in call.items() if name not in _OF_CALLS} for call in calls
        ]
    return plain_message


def _list_calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _has_reasoning(message: Mapping[str, Any]) -> bool:
    return any(message.get(name) for name in _FIELDS)


def _has_signature(call: Any) -> bool:
    return isinstance(call, dict) and any(call.get(name) for name in _OF_CALLS)


def _get_signature(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: call[name] for name in _OF_CALLS if call.get(name)}


def _join_parts(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: "".join(value) if isinstance(value, _Parts) else value for name, value in item.items()}
