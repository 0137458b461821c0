"""Reads the events of a chat completion, which are then rendered in another wire format."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.events import DONE, encode_event, event_data
from baobab.runtime.gateway.mended_answers import find_usage, get_reason
from baobab.runtime.gateway.usage_meter import UsageMeter

FAILURES = frozenset(("error", "network_error"))
"""The finish reasons that tell of a failure: Mistral's, OpenRouter's and GLM's."""


async def read_chunks(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[dict[str, Any], None]:
    """Yields the chunks of a stream, without comments and the end marker."""
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            payload = None if piece == DONE else event_data(piece)
            if payload is None:
                continue
            try:
                chunk = from_json(payload)
            except ValueError as exc:
                raise UpstreamMalformed from exc
            if not isinstance(chunk, dict):
                raise UpstreamMalformed
            yield chunk


def get_delta(chunk: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Returns the delta of the only choice, and its finish reason or None."""
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            delta = choice.get("delta")
            return delta if isinstance(delta, dict) else {}, get_reason(choice)
    return {}, None


def encode_named_event(payload: dict[str, Any]) -> bytes:
    """Encodes an event with its name."""
    name: str = payload["type"]
    return b"event: " + name.encode() + b"\n" + encode_event(to_json(payload))


def get_thought(message: dict[str, Any]) -> str:
    """Returns the reasoning text of a message or delta, under either of its usual names."""
    thought_text = message.get("reasoning_content") or message.get("reasoning")
    return thought_text if isinstance(thought_text, str) else ""


def get_text(message: dict[str, Any]) -> str:
    """Returns the text of a message or delta, or its refusal."""
    content = message.get("content") or message.get("refusal")
    return content if isinstance(content, str) else ""


def get_calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the tool calls of a message or delta."""
    calls = message.get("tool_calls")
    call_objects = (call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
    return [call for call in call_objects if isinstance(call.get("index", 0), int)]


def get_function(call: dict[str, Any]) -> tuple[str, str]:
    """Returns the name and arguments of a call, or the parts of them in a delta."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return str(function.get("name") or ""), str(function.get("arguments") or "")


def read_usage(completion: dict[str, Any]) -> UsageMeter:
    """Reads the usage of a completion or its last chunk; all zero if there is none."""
    meter = UsageMeter()
    meter.count_usage(find_usage(completion))
    return meter


def first_message(completion: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Returns the first message of a completion and its finish reason. Raises UpstreamMalformed if there is none."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UpstreamMalformed
    return message, get_reason(choice)
