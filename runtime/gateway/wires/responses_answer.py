"""A chat completion told as a response, in one piece or by its events."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from baobab.runtime.gateway.errors import UpstreamMalformed
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.wires import chunks
from baobab.runtime.gateway.wires.namespaces import grouped_names
from baobab.runtime.gateway.wires.responses_items import Items
from baobab.runtime.gateway.wires.wire import Made

# What the answer repeats of its request, and what it says where that said nothing.
_REPEATED: dict[str, Any] = {
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
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def answered(completion: Mapping[str, Any], body: Mapping[str, Any], made: Made) -> dict[str, Any]:
    said, reason = chunks.first_message(completion)
    items = Items(made, grouped_names(body))
    items.told(said)
    items.closed()
    used = chunks.usage_of(dict(completion))
    return _response(completion, body, made, items=items, reason=reason, used=used)


async def telling(
    pieces: AsyncGenerator[dict[str, Any], None], body: Mapping[str, Any], made: Made
) -> AsyncGenerator[bytes, None]:
    """The events of a response; UpstreamMalformed where the chunks end before the answer does."""
    items, used, number = Items(made, grouped_names(body)), Outcome(), 0
    reason: str | None = None
    last: Mapping[str, Any] = {}
    async with contextlib.aclosing(pieces):
        async for chunk in pieces:
            events: list[dict[str, Any]] = []
            if not last:
                begun = _response(chunk, body, made)
                events += ({"type": f"response.{state}", "response": begun} for state in ("created", "in_progress"))
            last = chunk
            used.count(chunk.get("usage"))
            delta, ended = chunks.delta_of(chunk)
            reason = ended or reason
            for event in (*events, *items.told(delta)):
                yield chunks.event({**event, "sequence_number": number})
                number += 1
    if reason is None:
        raise UpstreamMalformed
    for event in items.closed():
        yield chunks.event({**event, "sequence_number": number})
        number += 1
    whole = _response(last, body, made, items=items, reason=reason, used=used)
    yield chunks.event({"type": f"response.{whole['status']}", "response": whole, "sequence_number": number})


def _response(
    told: Mapping[str, Any],
    body: Mapping[str, Any],
    made: Made,
    *,
    items: Items | None = None,
    reason: str | None = None,
    used: Outcome | None = None,
) -> dict[str, Any]:
    """With `items`: as it is in the end."""
    incomplete = _INCOMPLETE.get(reason or "")
    ended = "incomplete" if incomplete else "completed"
    repeated = {name: other if body.get(name) is None else body[name] for name, other in _REPEATED.items()}
    return {
        "id": f"resp_{made.id}",
        "object": "response",
        "created_at": made.at,
        "status": "in_progress" if items is None else ended,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "model": told.get("model"),
        "output": [] if items is None else items.whole,
        "previous_response_id": None,
        "store": False,
        "usage": None if used is None else _usage(used),
        **repeated,
    }


def _usage(used: Outcome) -> dict[str, Any]:
    written = used.cache_write + used.cache_write_hour
    return {
        "input_tokens": used.prompt,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": written},
        "output_tokens": used.completion,
        "output_tokens_details": {"reasoning_tokens": used.reasoning},
        "total_tokens": used.prompt + used.completion,
    }
