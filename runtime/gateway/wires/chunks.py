"""The events of a chat completion, read: for those who tell them in the words of another wire."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.events import DONE, encode_event, event_data
from baobab.runtime.gateway.usage_meter import UsageMeter


async def read_chunks(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of a stream, without comments and its end."""
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
    """What the chunk says of the only answer, and why that ends, where it does."""
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            delta = choice.get("delta")
            return delta if isinstance(delta, dict) else {}, _get_reason(choice)
    return {}, None


def encode_named_event(payload: dict[str, Any]) -> bytes:
    """An event with its name."""
    name: str = payload["type"]
    return b"event: " + name.encode() + b"\n" + encode_event(to_json(payload))


def get_thought(message: dict[str, Any]) -> str:
    """What a message or a delta tells of a model's thoughts, by either of the names that are in use."""
    thought = message.get("reasoning_content") or message.get("reasoning")
    return thought if isinstance(thought, str) else ""


def get_text(message: dict[str, Any]) -> str:
    """What a message or a delta says, be it a refusal."""
    content = message.get("content") or message.get("refusal")
    return content if isinstance(content, str) else ""


def get_calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls of a message or a delta."""
    calls = message.get("tool_calls")
    found = (call for call in calls if isinstance(call, dict)) if isinstance(calls, list) else ()
    return [call for call in found if isinstance(call.get("index", 0), int)]


def get_function(call: dict[str, Any]) -> tuple[str, str]:
    """Name and arguments of a call, or what a delta has of them."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    return str(function.get("name") or ""), str(function.get("arguments") or "")


def read_usage(completion: dict[str, Any]) -> UsageMeter:
    """What a completion, or its last chunk, says was used; nothing where it does not say."""
    meter = UsageMeter()
    meter.count_usage(completion.get("usage"))
    return meter


def first_message(completion: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The only answer of a completion, and why it ended; UpstreamMalformed where there is none."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UpstreamMalformed
    return message, _get_reason(choice)


def _get_reason(choice: dict[str, Any]) -> str | None:
    reason = choice.get("finish_reason")
    return reason if isinstance(reason, str) else None
