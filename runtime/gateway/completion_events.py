"""Builds a chat completion from the events of a stream, and such events from a completion."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.events import DONE, encode_event, event_data
from baobab.runtime.gateway.mended_answers import find_usage
from baobab.runtime.gateway.reasoning import LISTS, ReasoningCollector
from baobab.runtime.gateway.usage_meter import UsageMeter

# The fields that a model writes piece by piece; every other text of an event is complete.
_GROWING = frozenset(("content", "reasoning", "reasoning_content", "thinking", "refusal", "arguments", "text"))
# `obfuscation` pads each event to hide its length.
_OF_EVENTS = frozenset(("choices", "usage", "object", "obfuscation"))

_EVENTS_TO_TEXT = 64
"""The most bytes of events per character of the text; many events have hundreds of bytes for one token."""


class _Parts(list[str]):
    """The pieces of a text that is still growing."""


class _Items(list[Any]):
    """A list that is still growing."""

    def __init__(self) -> None:
        super().__init__()
        self.by_index: dict[int, dict[str, Any]] = {}


class CompletionAssembler:
    """Assembles a completion from the events of a stream."""

    def __init__(self, most: int) -> None:
        """most: the most characters; a longer completion is given up, and so is one with far too many events."""
        self._remaining = most
        self._left_of_events = _EVENTS_TO_TEXT * most
        self._head: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._reasoning: dict[int, ReasoningCollector] = {}
        self._usage: dict[str, Any] | None = None

    def add(self, event: bytes) -> str:
        """Adds an event; returns what it adds to the text of the first choice."""
        payload = event_data(event)
        if payload is None or event == DONE or self._remaining < 0:
            return ""
        self._left_of_events -= len(event)
        if self._left_of_events < 0:
            self._remaining = -1
            return ""
        try:
            chunk = from_json(payload)
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict) or chunk.get("error"):
            self._remaining = -1
            return ""
        self._head |= {name: value for name, value in chunk.items() if name not in _OF_EVENTS and value is not None}
        self._usage = find_usage(chunk) or self._usage
        choices = chunk.get("choices")
        text = ""
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and isinstance(choice.get("index", 0), int):
                self._collect_reasoning(choice)
                self._merge(self._choices.setdefault(choice.get("index", 0), {}), choice)
                if not choice.get("index", 0) and isinstance(delta := choice.get("delta"), dict):
                    content = delta.get("content")
                    text += content if isinstance(content, str) else ""
        return text

    def build_completion(self, meter: UsageMeter) -> dict[str, Any] | None:
        """Builds the completion; None if the events do not form one. meter: the usage, if no event reports it."""
        if self._remaining < 0 or not self._choices:
            return None
        choices = []
        for index, parts in sorted(self._choices.items()):
            choice = _join_parts(parts)
            delta = choice.pop("delta", None) or {}
            calls = (delta.get("tool_calls") or []) if isinstance(delta, dict) else None
            if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
                return None
            message = {"role": "assistant", "content": None, **delta}
            if index in self._reasoning:
                message |= self._reasoning[index].take()
            for call in calls:
                call.pop("index", None)
            # An answer without text begins with an empty content in its events.
            message["content"] = message["content"] or (None if message.get("tool_calls") else "")
            choices.append({**choice, "index": index, "message": message})
        usage = self._usage or _render_usage(meter)
        return {**self._head, "object": "chat.completion", "choices": choices, **({"usage": usage} if usage else {})}

    def _collect_reasoning(self, choice: dict[str, Any]) -> None:
        """Moves the parts of the reasoning out of a choice, because they continue each other in a way of their own."""
        delta = choice.get("delta")
        if isinstance(delta, dict) and any(isinstance(delta.get(name), list) for name in LISTS):
            collector = self._reasoning.setdefault(choice.get("index", 0), ReasoningCollector())
            self._remaining -= collector.add_lists(delta)
            choice["delta"] = {name: value for name, value in delta.items() if name not in LISTS}

    def _merge(self, whole: dict[str, Any], delta: Mapping[str, Any]) -> None:
        for name, value in delta.items():
            if isinstance(value, str) and name in _GROWING:
                self._remaining -= len(value)
                if not isinstance(whole.get(name), _Parts):
                    whole[name] = _Parts()
                whole[name].append(value)
            elif isinstance(value, dict):
                if not isinstance(whole.get(name), dict):
                    whole[name] = {}
                self._merge(whole[name], value)
            elif isinstance(value, list):
                if not isinstance(whole.get(name), _Items):
                    whole[name] = _Items()
                self._extend(whole[name], value)
            elif name not in whole or (value is not None and value != ""):
                # Some providers repeat fields with nothing in them.
                whole[name] = value

    def _extend(self, whole: _Items, delta: list[Any]) -> None:
        """Extends a list: an item with a known index continues that item; all others are appended."""
        for item in delta:
            if not isinstance(item, dict):
                whole.append(item)
                continue
            index = item.get("index")
            target = whole.by_index.get(index) if isinstance(index, int) else None
            if target is None:
                target = {}
                whole.append(target)
                if isinstance(index, int):
                    whole.by_index[index] = target
            self._remaining -= len(item)
            self._merge(target, item)


def encode_events(answer: Mapping[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """Yields a completion as a stream: two events for each of its choices, the usage and the end."""
    head = {name: value for name, value in answer.items() if name not in _OF_EVENTS}
    head["object"] = "chat.completion.chunk"
    for choice in answer["choices"]:
        delta = dict(choice.get("message") or {})
        calls = delta.get("tool_calls")
        if calls:
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
        choice_fields = {name: value for name, value in choice.items() if name != "message"}
        yield encode_event(to_json({**head, "choices": [{**choice_fields, "delta": delta, "finish_reason": None}]}))
        last_choice = {"index": choice.get("index", 0), "delta": {}, "finish_reason": choice["finish_reason"]}
        yield encode_event(to_json({**head, "choices": [last_choice]}))
    if with_usage and answer.get("usage"):
        yield encode_event(to_json({**head, "choices": [], "usage": answer["usage"]}))
    yield DONE


async def stream_completion(
    answer: Mapping[str, Any], meter: UsageMeter, *, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    """Yields an answer that came in one piece as the events of a stream."""
    meter.has_ended = True
    for event in encode_events(answer, with_usage=with_usage):
        yield event


def _join_parts(value: Any) -> Any:
    """Returns the value with every text joined."""
    match value:
        case _Parts():
            return "".join(value)
        case dict():
            return {name: _join_parts(item) for name, item in value.items()}
        case list():
            return [_join_parts(item) for item in value]
    return value


def _render_usage(meter: UsageMeter) -> dict[str, Any] | None:
    if not meter.is_counted:
        return None
    usage: dict[str, Any] = {
        "prompt_tokens": meter.prompt,
        "completion_tokens": meter.completion,
        "total_tokens": meter.prompt + meter.completion,
    }
    if meter.cached:
        usage["prompt_tokens_details"] = {"cached_tokens": meter.cached}
    if meter.reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": meter.reasoning}
    return usage
