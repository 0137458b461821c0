"""Renders a chat completion as one of Anthropic's messages, in one piece or as events."""

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from pydantic_core import from_json

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.mended_answers import find_usage
from baobab.runtime.gateway.reasoning import ReasoningCollector, seal_reasoning
from baobab.runtime.gateway.tool_calls import CUT_REASONS
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires import chunks
from baobab.runtime.gateway.wires.chunks import encode_named_event
from baobab.runtime.gateway.wires.wire import AnswerMetadata

_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    # What other providers say in place of these.
    "model_length": "max_tokens",
    "max_tokens": "max_tokens",
    "insufficient_system_resource": "max_tokens",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "sensitive": "refusal",
    "safety": "refusal",
    "refusal": "refusal",
}


def render_answer(completion: Mapping[str, Any], body: Mapping[str, Any], metadata: AnswerMetadata) -> dict[str, Any]:
    """Renders a finished completion as a message."""
    message, reason = chunks.first_message(completion)
    content: list[dict[str, Any]] = []
    calls, collector = chunks.get_calls(message), ReasoningCollector()
    collector.add(message)
    sealed_reasoning = seal_reasoning(collector.take(), calls, metadata.origin)
    if _wants_thoughts(body) and (thought_text := chunks.get_thought(message)):
        content.append({"type": "thinking", "thinking": thought_text, "signature": sealed_reasoning})
    elif calls and sealed_reasoning:
        content.append({"type": "redacted_thinking", "data": sealed_reasoning})
    if text := chunks.get_text(message):
        content.append({"type": "text", "text": text})
    for call in calls:
        name, arguments = chunks.get_function(call)
        tool_input = _parse_input(arguments, reason)
        content.append({"type": "tool_use", "id": str(call.get("id")), "name": name, "input": tool_input})
    usage = _render_usage(chunks.read_usage(dict(completion)))
    return {
        **_render_message(completion, metadata),
        "content": content,
        "stop_reason": _stop_reason(reason, message, has_calls=bool(message.get("tool_calls"))),
        "usage": usage,
    }


async def render_events(
    pieces: AsyncGenerator[dict[str, Any], None], body: Mapping[str, Any], metadata: AnswerMetadata
) -> AsyncGenerator[bytes, None]:
    """Yields the events of a message. Raises UpstreamMalformed if the chunks end before the answer does."""
    blocks, meter = _BlockWriter(metadata.origin, wants_thoughts=_wants_thoughts(body)), UsageMeter()
    has_begun, reason = False, None
    async with contextlib.aclosing(pieces):
        async for chunk in pieces:
            if not has_begun:
                has_begun = True
                yield encode_named_event(
                    {
                        "type": "message_start",
                        "message": {**_render_message(chunk, metadata), "usage": _render_usage(UsageMeter())},
                    }
                )
            meter.count_usage(find_usage(chunk))
            delta, finish_reason = chunks.get_delta(chunk)
            for block_event in blocks.write_delta(delta):
                yield encode_named_event(block_event)
            if finish_reason is not None:
                reason = _stop_reason(finish_reason, {"refusal": blocks.has_refusal}, has_calls=blocks.has_calls)
    if reason is None:
        raise UpstreamMalformed
    for block_event in blocks.end():
        yield encode_named_event(block_event)
    stop = {"stop_reason": reason, "stop_sequence": None}
    yield encode_named_event({"type": "message_delta", "delta": stop, "usage": _render_usage(meter)})
    yield encode_named_event({"type": "message_stop"})


class _BlockWriter:
    """Writes the blocks of a streamed message. One block is open at a time; the next one closes it.

    Reasoning that is not shown comes in a redacted block before a call, so that the client can send it back.
    """

    def __init__(self, origin: str, *, wants_thoughts: bool) -> None:
        self._origin = origin
        self._collector = ReasoningCollector()
        self._wants_thoughts = wants_thoughts
        self._open: object = None
        self._index = -1
        self._calls: dict[object, int] = {}
        self.has_refusal = False
        """Whether the model's text is its refusal to answer."""

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def write_delta(self, delta: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the events for a delta."""
        events: list[dict[str, Any]] = []
        self._collector.add(delta)
        if self._wants_thoughts and (thought_text := chunks.get_thought(delta)):
            events += self._open_block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
            events.append(self._render_delta(self._index, {"type": "thinking_delta", "thinking": thought_text}))
        self.has_refusal = self.has_refusal or bool(delta.get("refusal"))
        if text := chunks.get_text(delta):
            events += self._open_block("text", {"type": "text", "text": ""})
            events.append(self._render_delta(self._index, {"type": "text_delta", "text": text}))
        for call in chunks.get_calls(delta):
            events += self._write_call(call)
        return events

    def close_block(self) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        signature = seal_reasoning(self._collector.take(), (), self._origin) if self._open == "thinking" else ""
        self._open = None
        events = [self._render_delta(self._index, {"type": "signature_delta", "signature": signature})]
        return [*(events if signature else ()), {"type": "content_block_stop", "index": self._index}]

    def end(self) -> list[dict[str, Any]]:
        """Returns the events that end the message's content."""
        return [*self.close_block(), *(self._write_hidden(()) if self.has_calls else ())]

    def _write_hidden(self, calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns a redacted block with the reasoning since the last one, and the signatures of calls."""
        sealed_reasoning = seal_reasoning(self._collector.take(), calls, self._origin)
        if not sealed_reasoning:
            return []
        opening = self._open_block("hidden", {"type": "redacted_thinking", "data": sealed_reasoning})
        return [*opening, *self.close_block()]

    def _write_call(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        number, (name, arguments) = call.get("index", 0), chunks.get_function(call)
        events: list[dict[str, Any]] = []
        if number not in self._calls:
            block = {"type": "tool_use", "id": str(call.get("id")), "name": name, "input": {}}
            events += [*self.close_block(), *self._write_hidden((call,))]
            events += self._open_block(("call", number), block)
            self._calls[number] = self._index
        if arguments:
            events.append(
                self._render_delta(self._calls[number], {"type": "input_json_delta", "partial_json": arguments})
            )
        return events

    def _open_block(self, source: object, block: dict[str, Any]) -> list[dict[str, Any]]:
        if self._open == source:
            return []
        closing = self.close_block()
        self._open, self._index = source, self._index + 1
        return [*closing, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _render_delta(self, index: int, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": delta}


def _render_message(completion: Mapping[str, Any], metadata: AnswerMetadata) -> dict[str, Any]:
    return {
        "id": f"msg_{metadata.id}",
        "type": "message",
        "role": "assistant",
        "model": completion.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _wants_thoughts(body: Mapping[str, Any]) -> bool:
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") not in (None, "disabled")


def _stop_reason(reason: str | None, message: Mapping[str, Any], *, has_calls: bool) -> str:
    if message.get("refusal"):
        return "refusal"
    if reason in chunks.FAILURES:
        raise UpstreamMalformed("The model's provider broke off.")
    # Some providers only say that the answer has stopped, though it calls tools.
    return (
        "tool_use" if has_calls and reason in (None, "stop") else _REASONS.get((reason or "stop").lower(), "end_turn")
    )


def _parse_input(arguments: str, reason: str | None) -> Any:
    """Parses the arguments of a call, also incomplete ones if the answer breaks off in them."""
    try:
        value = from_json(arguments or "{}", allow_partial=reason in CUT_REASONS)
    except ValueError as exc:
        raise UpstreamMalformed from exc
    if not isinstance(value, dict):
        raise UpstreamMalformed
    return value


def _render_usage(meter: UsageMeter) -> dict[str, Any]:
    """Renders the usage. This wire format does not include tokens read from or written to a cache in the input's."""
    cache_written = meter.cache_write + meter.cache_write_hour
    return {
        "input_tokens": meter.prompt - meter.cached - cache_written,
        "cache_read_input_tokens": meter.cached,
        "cache_creation_input_tokens": cache_written,
        "output_tokens": meter.completion,
    }
