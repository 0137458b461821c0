"""Answers on other wires than chat completions, counted and paid as those are."""

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
from baobab.tools.ai.model_calls import MeteredCall, call_models, select_models, settle_call
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.streaming import stream_answer
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BaobabError


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
    allowed: str | None = None,
    beat: bytes = KEEP_ALIVE,
) -> Any:
    """The answer to a request on that wire, or a Stream of it.

    name: the model's. limit: tokens that the answer may have. told: an error as the last event, behind so many others.
    kept: what becomes of the answer. allowed: what the request's header says. beat: what is sent of the wire while a
    model thinks.
    """
    own, models = await resolve_models(call, name, allowed)
    if own.max_tokens is not None:
        limit = min(limit or own.max_tokens, own.max_tokens)
        body = {**body, wire.limit: limit}
    gateway = call.services.part(Gateway)
    if models[0].provider != wire.provider:
        # What cannot be translated is refused before anything is set aside for it.
        wire.build_chat_request(body, models[0])
    if stream and call.context.streams:

        async def begin(metered: MeteredCall, provider: Provider | None) -> AsyncGenerator[bytes, None]:
            return await gateway.stream_on_wire(
                wire, metered.model, _with_limit(wire, body, metered), metered.meter, provider, metered.retry_timeouts
            )

        return await stream_answer(
            call,
            models[0],
            call_models(call, models, own, body, begin, limit=limit),
            lambda pieces, _: pieces if conversation is None else conversation.wrap_stream(pieces),
            render_error,
            beat=beat,
        )

    async def ask(metered: MeteredCall, provider: Provider | None) -> dict[str, Any]:
        whole = {name: value for name, value in _with_limit(wire, body, metered).items() if name != "stream_options"}
        return await gateway.complete_on_wire(
            wire, metered.model, whole, metered.meter, provider, metered.retry_timeouts
        )

    answer, metered = await call_models(call, models, own, body, ask, limit=limit)
    await settle_call(metered)
    set_answer_headers(call, metered.model, cost=0 if metered.byok else metered.cost)
    return answer if conversation is None else await conversation.finish_response(answer)


def _with_limit(wire: Wire, body: Mapping[str, Any], metered: MeteredCall) -> Mapping[str, Any]:
    """The request with the limit that was set aside for."""
    return body if metered.granted_tokens is None else {**body, wire.limit: metered.granted_tokens}


async def resolve_models(call: Call, name: str | None, allowed: str | None = None) -> tuple[AiSettings, list[Model]]:
    """The app's or the organisation's settings; and the model that is meant, with those to fall back on."""
    own = await settings.get_call_settings(call, allowed)
    # What was read is done with: no transaction stays open while a model thinks.
    if not call.nested:
        await call.unit.commit()
    return own, select_models(call, name, own, "chat")
