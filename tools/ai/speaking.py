"""Answers on other wires than chat completions, counted and paid as those are."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from baobab.runtime.gateway.events import KEPT_ALIVE
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.wires.wire import Wire
from baobab.tools.ai import settings
from baobab.tools.ai.asking import Asked, answered, chosen, settled
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.stored import Conversation
from baobab.tools.ai.streaming import stream_answer
from baobab.tools.ai.telling import tell
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BaobabError


async def spoken(
    call: Call,
    wire: Wire,
    body: Mapping[str, Any],
    name: str | None,
    limit: int | None,
    told: Callable[[BaobabError, int], bytes],
    *,
    stream: bool | None,
    kept: Conversation | None = None,
    allowed: str | None = None,
    beat: bytes = KEPT_ALIVE,
) -> Any:
    """The answer to a request on that wire, or a Stream of it.

    name: the model's. limit: tokens that the answer may have. told: an error as the last event, behind so many others.
    kept: what becomes of the answer. allowed: what the request's header says. beat: what is sent of the wire while a
    model thinks.
    """
    own, models = await asking(call, name, allowed)
    if own.max_tokens is not None:
        limit = min(limit or own.max_tokens, own.max_tokens)
        body = {**body, wire.limit: limit}
    rooms = call.services.part(Gateway)
    if models[0].provider != wire.provider:
        # What cannot be translated is refused before anything is set aside for it.
        wire.asked(body, models[0])
    if stream and call.door.streams:

        async def begin(asked: Asked, way: Provider | None) -> AsyncGenerator[bytes, None]:
            return await rooms.speaking(
                wire, asked.model, _within(wire, body, asked), asked.outcome, way, asked.patience
            )

        return await stream_answer(
            call,
            models[0],
            answered(call, models, own, body, begin, limit=limit),
            lambda pieces, _: pieces if kept is None else kept.pieces(pieces),
            told,
            beat=beat,
        )

    async def ask(asked: Asked, way: Provider | None) -> dict[str, Any]:
        whole = {name: value for name, value in _within(wire, body, asked).items() if name != "stream_options"}
        return await rooms.speak(wire, asked.model, whole, asked.outcome, way, asked.patience)

    answer, asked = await answered(call, models, own, body, ask, limit=limit)
    await settled(asked)
    tell(call, asked.model, cost=0 if asked.byok else asked.cost)
    return answer if kept is None else await kept.whole(answer)


def _within(wire: Wire, body: Mapping[str, Any], asked: Asked) -> Mapping[str, Any]:
    """The request with the limit that was set aside for."""
    return body if asked.most is None else {**body, wire.limit: asked.most}


async def asking(call: Call, name: str | None, allowed: str | None = None) -> tuple[AiSettings, list[Model]]:
    """The app's or the organisation's settings; and the model that is meant, with those to fall back on."""
    own = await settings.of_call(call, allowed)
    # What was read is done with: no transaction stays open while a model thinks.
    if not call.nested:
        await call.unit.commit()
    return own, chosen(call, name, own, "chat")
