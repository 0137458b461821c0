"""Answers requests in other wire formats than chat completions, which are metered and charged in the same way."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from baobab.runtime.gateway.events import KEEP_ALIVE
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.wires.wire import Wire
from baobab.tools.ai import settings
from baobab.tools.ai.answer_headers import set_answer_headers
from baobab.tools.ai.conversations import Conversation
from baobab.tools.ai.metered_call import MeteredCall
from baobab.tools.ai.model_calls import call_models, settle_call
from baobab.tools.ai.model_choice import select_models
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.streaming import stream_answer
from baobab.tools.core import BaobabError, Call


async def answer_on_wire(
    call: Call,
    wire: Wire,
    body: Mapping[str, Any],
    name: str | None,
    limit: int | None,
    render_error: Callable[[BaobabError, int], bytes],
    *,
    stream: bool | None,
    conversation: Conversation | None = None,
    timeout_header: str | None = None,
    beat: bytes = KEEP_ALIVE,
) -> Any:
    """Answers a request in that wire format; returns the answer, or a Stream of it.

    name: the model's. limit: the most tokens of the answer. render_error: renders an error as the last event, given
    the number of events before it. conversation: stores the answer. timeout_header: the time limit that the request's
    header sets. beat: the event that is sent while a model thinks.
    """
    call_settings, models = await resolve_models(call, name, timeout_header)
    if call_settings.max_tokens is not None:
        limit = min(limit or call_settings.max_tokens, call_settings.max_tokens)
        body = {**body, wire.limit: limit}
    gateway = call.services.part(Gateway)
    if models[0].provider != wire.provider:
        # A request that cannot be translated is refused before credits are reserved.
        wire.build_chat_request(body, models[0])
    if stream and call.context.streams:

        async def begin(metered_call: MeteredCall, provider: Provider | None) -> AsyncGenerator[bytes, None]:
            return await gateway.stream_on_wire(
                wire,
                metered_call.model,
                _with_limit(wire, body, metered_call),
                metered_call.meter,
                provider,
                metered_call.retry_timeouts,
            )

        return await stream_answer(
            call,
            models[0],
            call_models(call, models, call_settings, body, begin, limit=limit),
            lambda pieces, _: pieces if conversation is None else conversation.wrap_stream(pieces),
            render_error,
            beat=beat,
        )

    async def ask(metered_call: MeteredCall, provider: Provider | None) -> dict[str, Any]:
        request = {
            name: value for name, value in _with_limit(wire, body, metered_call).items() if name != "stream_options"
        }
        return await gateway.complete_on_wire(
            wire, metered_call.model, request, metered_call.meter, provider, metered_call.retry_timeouts
        )

    answer, metered_call = await call_models(call, models, call_settings, body, ask, limit=limit)
    await settle_call(metered_call)
    set_answer_headers(call, metered_call.model, cost=0 if metered_call.byok else metered_call.cost)
    return answer if conversation is None else await conversation.finish_response(answer)


def _with_limit(wire: Wire, body: Mapping[str, Any], metered_call: MeteredCall) -> Mapping[str, Any]:
    """Returns the request with the limit of tokens for which credits were reserved."""
    return body if metered_call.granted_tokens is None else {**body, wire.limit: metered_call.granted_tokens}


async def resolve_models(
    call: Call, name: str | None, timeout_header: str | None = None
) -> tuple[AiSettings, list[Model]]:
    """Returns the settings for the call, and the requested model with its fallbacks."""
    call_settings = await settings.get_call_settings(call, timeout_header)
    # All reads are done: no transaction stays open while the model works.
    if not call.is_nested:
        await call.unit.commit()
    return call_settings, select_models(call, name, call_settings, "chat")
