"""Renders a chat completion as one of OpenAI's responses, in one piece or as events."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.mended_answers import find_usage
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires import chunks
from baobab.runtime.gateway.wires.namespaces import grouped_names
from baobab.runtime.gateway.wires.responses_items import ItemWriter
from baobab.runtime.gateway.wires.wire import AnswerMetadata

# The fields of the request that the answer repeats, with their values if the request lacks them.
_ECHOED_FIELDS: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
_INCOMPLETE = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    # What other providers say in place of these.
    "model_length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "insufficient_system_resource": "max_output_tokens",
    "sensitive": "content_filter",
    "safety": "content_filter",
    "refusal": "content_filter",
}


def render_answer(completion: Mapping[str, Any], body: Mapping[str, Any], metadata: AnswerMetadata) -> dict[str, Any]:
    message, reason = chunks.first_message(completion)
    items = ItemWriter(metadata, grouped_names(body))
    items.write_delta(message)
    items.end()
    meter = chunks.read_usage(dict(completion))
    return _render_response(completion, body, metadata, items=items, reason=reason, meter=meter)


async def render_events(
    pieces: AsyncGenerator[dict[str, Any], None], body: Mapping[str, Any], metadata: AnswerMetadata
) -> AsyncGenerator[bytes, None]:
    """Yields the events of a response. Raises UpstreamMalformed if the chunks end before the answer does."""
    items, meter, number = ItemWriter(metadata, grouped_names(body)), UsageMeter(), 0
    reason: str | None = None
    last_chunk: Mapping[str, Any] = {}
    async with contextlib.aclosing(pieces):
        async for chunk in pieces:
            events: list[dict[str, Any]] = []
            if not last_chunk:
                opening = _render_response(chunk, body, metadata)
                events += ({"type": f"response.{state}", "response": opening} for state in ("created", "in_progress"))
            last_chunk = chunk
            meter.count_usage(find_usage(chunk))
            delta, finish_reason = chunks.get_delta(chunk)
            reason = finish_reason or reason
            for event in (*events, *items.write_delta(delta)):
                yield chunks.encode_named_event({**event, "sequence_number": number})
                number += 1
    if reason is None:
        raise UpstreamMalformed
    for event in items.end():
        yield chunks.encode_named_event({**event, "sequence_number": number})
        number += 1
    response = _render_response(last_chunk, body, metadata, items=items, reason=reason, meter=meter)
    yield chunks.encode_named_event(
        {"type": f"response.{response['status']}", "response": response, "sequence_number": number}
    )


def _render_response(
    completion: Mapping[str, Any],
    body: Mapping[str, Any],
    metadata: AnswerMetadata,
    *,
    items: ItemWriter | None = None,
    reason: str | None = None,
    meter: UsageMeter | None = None,
) -> dict[str, Any]:
    """Renders the response object: finished if `items` is given, otherwise in progress."""
    if reason in chunks.FAILURES:
        raise UpstreamMalformed("The model's provider broke off.")
    incomplete = _INCOMPLETE.get((reason or "").lower())
    final_status = "incomplete" if incomplete else "completed"
    echoed_fields = {name: other if body.get(name) is None else body[name] for name, other in _ECHOED_FIELDS.items()}
    return {
        "id": f"resp_{metadata.id}",
        "object": "response",
        "created_at": metadata.created_at,
        "status": "in_progress" if items is None else final_status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "model": completion.get("model"),
        "output": [] if items is None else items.whole,
        "previous_response_id": None,
        "store": False,
        "usage": None if meter is None else _render_usage(meter),
        **echoed_fields,
    }


def _render_usage(meter: UsageMeter) -> dict[str, Any]:
    cache_written = meter.cache_write + meter.cache_write_hour
    return {
        "input_tokens": meter.prompt,
        "input_tokens_details": {"cached_tokens": meter.cached, "cache_write_tokens": cache_written},
        "output_tokens": meter.completion,
        "output_tokens_details": {"reasoning_tokens": meter.reasoning},
        "total_tokens": meter.prompt + meter.completion,
    }
