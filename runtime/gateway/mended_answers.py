"""Brings the chat completions of all providers into one form, so that readers on every wire meet the same answer."""

import contextlib
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.events import DONE, encode_event, event_data
from baobab.runtime.gateway.tool_calls import ToolCallSequencer, mend_calls

# These do not match inside a text, where quotation marks are escaped.
_CALLS = re.compile(rb'"tool_calls"\s*+:\s*+\[\s*+[^\]\s]')
_REASON = re.compile(rb'"finish_reason"\s*+:\s*+"')
_OF_CHOICES = frozenset(("choices", "usage"))


async def mend_events(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Passes on the events of a chat completion with its tool calls in order.

    Each choice that has begun has a finish reason by the end. Events without calls or reasons are not parsed.
    """
    stream = _MendedStream()
    async with contextlib.aclosing(events):
        async for event in events:
            if event == DONE:
                for last_event in stream.end():
                    yield last_event
            elif stream.must_read(event):
                for mended_event in stream.read(event):
                    yield mended_event
                continue
            yield event


def mend_completion(completion: dict[str, Any]) -> dict[str, Any]:
    """Returns a whole chat completion with tool calls in OpenAI's form."""
    for choice in completion["choices"]:
        message = choice.get("message")
        if isinstance(message, dict) and message.get("tool_calls"):
            # The relay has checked that these are objects.
            message["tool_calls"] = mend_calls(message["tool_calls"], get_reason(choice))
    return completion


def get_reason(choice: dict[str, Any]) -> str | None:
    """Returns the finish reason of a choice; None if it has none, which some servers write as an empty text."""
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) and reason else None


def find_usage(chunk: dict[str, Any]) -> dict[str, Any] | None:
    """Finds the usage of a completion or an event: at the top, in a choice as Moonshot's, or in Groq's own field."""
    choices, groq = chunk.get("choices"), chunk.get("x_groq")
    places = [chunk, *(choices if isinstance(choices, list) else ()), groq]
    usages = (place.get("usage") for place in places if isinstance(place, dict))
    return next((usage for usage in usages if isinstance(usage, dict) and usage), None)


class _MendedStream:
    """The state of one stream: its calls and finish reasons, by the index of the choice."""

    def __init__(self) -> None:
        self._sequencers: dict[int, ToolCallSequencer] = {}
        self._head: dict[str, Any] = {}
        self._has_begun = False
        self._reasons: set[int] = set()

    def must_read(self, event: bytes) -> bool:
        """Returns whether an event may have to be changed."""
        if not self._has_begun:
            self._has_begun = event_data(event) is not None
            return self._has_begun
        return (b'"tool_calls"' in event and _CALLS.search(event) is not None) or _REASON.search(event) is not None

    def read(self, event: bytes) -> Iterator[bytes]:
        """Yields the events to pass on in place of one."""
        payload = event_data(event) or b""
        try:
            chunk = from_json(payload)
        except ValueError as exc:
            raise UpstreamMalformed from exc
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        if not isinstance(choices, list) or chunk.get("error"):
            yield event
            return
        self._head = {name: value for name, value in chunk.items() if name not in _OF_CHOICES}
        is_changed, held_back = False, []
        for choice in choices:
            if isinstance(choice, dict) and isinstance(index := choice.get("index", 0), int):
                is_changed = self._read_calls(choice, index) or is_changed
                if reason := get_reason(choice):
                    self._reasons.add(index)
                    held_back += self._take_held_back(index, reason)
        if held_back:
            moved_choices = [self._move_calls(choice) for choice in choices if isinstance(choice, dict)]
            for choice in [*filter(None, moved_choices), *held_back]:
                yield encode_event(to_json({**self._head, "choices": [choice]}))
            is_changed = True
        if not is_changed:
            yield event
        elif find_usage(chunk) or any(_has_content(choice) for choice in choices):
            yield encode_event(to_json(chunk))

    def end(self) -> Iterator[bytes]:
        """Yields what was held back, and the finish reasons that the provider left out."""
        for index, sequencer in sorted(self._sequencers.items()):
            for choice in self._take_held_back(index, None):
                yield encode_event(to_json({**self._head, "choices": [choice]}))
            if index not in self._reasons:
                reason = "tool_calls" if sequencer.has_calls else "stop"
                last_choice = {"index": index, "delta": {}, "finish_reason": reason}
                yield encode_event(to_json({**self._head, "choices": [last_choice]}))

    def _read_calls(self, choice: dict[str, Any], index: int) -> bool:
        """Replaces the calls of a choice's delta by those to pass on. Returns whether it did."""
        sequencer = self._sequencers.setdefault(index, ToolCallSequencer())
        delta = choice.get("delta")
        calls = delta.get("tool_calls") if isinstance(delta, dict) else None
        if not isinstance(delta, dict) or not isinstance(calls, list) or not calls:
            return False
        if not all(isinstance(call, dict) for call in calls):
            return False
        ready = sequencer.add_pieces(calls)
        if ready:
            delta["tool_calls"] = ready
        else:
            del delta["tool_calls"]
        return ready != calls

    def _take_held_back(self, index: int, reason: str | None) -> list[dict[str, Any]]:
        sequencer = self._sequencers[index]
        return [
            {"index": index, "delta": {"tool_calls": [piece]}, "finish_reason": None} for piece in sequencer.end(reason)
        ]

    def _move_calls(self, choice: dict[str, Any]) -> dict[str, Any] | None:
        """Moves the calls of a choice into one of their own, which comes before those that were held back."""
        delta = choice.get("delta")
        if not isinstance(delta, dict) or "tool_calls" not in delta:
            return None
        moved_delta = {"tool_calls": delta.pop("tool_calls")}
        return {"index": choice.get("index", 0), "delta": moved_delta, "finish_reason": None}


def _has_content(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    return bool(get_reason(choice)) or (isinstance(delta, dict) and any(value is not None for value in delta.values()))
