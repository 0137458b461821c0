"""A chat completion told as a message, in one piece or by its events."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic_core import from_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.wires import chunks
from baobab.runtime.gateway.wires.chunks import event
from baobab.runtime.gateway.wires.wire import Made

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def answered(completion: Mapping[str, Any], body: Mapping[str, Any], made: Made) -> dict[str, Any]:
    said, reason = chunks.first_message(completion)
    content: list[dict[str, Any]] = []
    if _wants_thoughts(body) and (thought := chunks.thought_of(said)):
        content.append({"type": "thinking", "thinking": thought, "signature": ""})
    if text := chunks.text_of(said):
        content.append({"type": "text", "text": text})
    for call in chunks.calls_of(said):
        name, arguments = chunks.function_of(call)
        given = _input(arguments, reason)
        content.append({"type": "tool_use", "id": str(call.get("id")), "name": name, "input": given})
    usage = _usage(chunks.usage_of(dict(completion)))
    return {**_message(completion, made), "content": content, "stop_reason": _reason(reason, said), "usage": usage}


async def telling(
    pieces: AsyncGenerator[dict[str, Any], None], body: Mapping[str, Any], made: Made
) -> AsyncGenerator[bytes, None]:
    """The events of a message; UpstreamMalformed where the chunks end before the answer does."""
    blocks, used = _Blocks(wants_thoughts=_wants_thoughts(body)), Outcome()
    begun, reason = False, None
    async with contextlib.aclosing(pieces):
        async for chunk in pieces:
            if not begun:
                begun = True
                yield event({"type": "message_start", "message": {**_message(chunk, made), "usage": _usage(Outcome())}})
            used.count(chunk.get("usage"))
            delta, ended = chunks.delta_of(chunk)
            for told in blocks.told(delta):
                yield event(told)
            reason = reason if ended is None else _reason(ended, delta)
    if reason is None:
        raise UpstreamMalformed
    for told in blocks.closed():
        yield event(told)
    stop = {"stop_reason": reason, "stop_sequence": None}
    yield event({"type": "message_delta", "delta": stop, "usage": _usage(used)})
    yield event({"type": "message_stop"})


class _Blocks:
    """The blocks of a message while it is told. One is open at a time; the next one closes it."""

    def __init__(self, *, wants_thoughts: bool) -> None:
        self._wants_thoughts = wants_thoughts
        self._open: object = None
        self._index = -1
        self._calls: dict[object, int] = {}

    def told(self, delta: dict[str, Any]) -> list[dict[str, Any]]:
        """The events that a delta makes."""
        events: list[dict[str, Any]] = []
        if self._wants_thoughts and (thought := chunks.thought_of(delta)):
            events += self._opened("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            events.append(self._delta(self._index, {"type": "thinking_delta", "thinking": thought}))
        if text := chunks.text_of(delta):
            events += self._opened("text", {"type": "text", "text": ""})
            events.append(self._delta(self._index, {"type": "text_delta", "text": text}))
        for call in chunks.calls_of(delta):
            events += self._called(call)
        return events

    def closed(self) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        self._open = None
        return [{"type": "content_block_stop", "index": self._index}]

    def _called(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        number, (name, arguments) = call.get("index", 0), chunks.function_of(call)
        events: list[dict[str, Any]] = []
        if number not in self._calls:
            block = {"type": "tool_use", "id": str(call.get("id")), "name": name, "input": {}}
            events += self._opened(("call", number), block)
            self._calls[number] = self._index
        if arguments:
            events.append(self._delta(self._calls[number], {"type": "input_json_delta", "partial_json": arguments}))
        return events

    def _opened(self, what: object, block: dict[str, Any]) -> list[dict[str, Any]]:
        if self._open == what:
            return []
        closing = self.closed()
        self._open, self._index = what, self._index + 1
        return [*closing, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _delta(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": delta}


def _message(told: Mapping[str, Any], made: Made) -> dict[str, Any]:
    return {
        "id": f"msg_{made.id}",
        "type": "message",
        "role": "assistant",
        "model": told.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _wants_thoughts(body: Mapping[str, Any]) -> bool:
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") not in (None, "disabled")


def _reason(reason: str | None, said: Mapping[str, Any]) -> str:
    return "refusal" if said.get("refusal") else _REASONS.get(reason or "stop", "end_turn")


def _input(arguments: str, reason: str | None) -> Any:
    """The arguments of a call; what there is of them where the limit has cut them off."""
    try:
        value = from_json(arguments or "{}", allow_partial=reason == "length")
    except ValueError as exc:
        raise UpstreamMalformed from exc
    if not isinstance(value, dict):
        raise UpstreamMalformed
    return value


def _usage(used: Outcome) -> dict[str, Any]:
    """This wire counts apart what the provider's cache had of the prompt, or has now."""
    written = used.cache_write + used.cache_write_hour
    return {
        "input_tokens": used.prompt - used.cached - written,
        "cache_read_input_tokens": used.cached,
        "cache_creation_input_tokens": written,
        "output_tokens": used.completion,
    }
