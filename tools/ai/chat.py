"""Chat completions and embeddings, by the gateway and in an app: the OpenAI wire."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.outcome import Outcome
from baobab.tools.ai import settings
from baobab.tools.ai.access import APP_AI, GATEWAY_CALLERS
from baobab.tools.ai.asking import USUAL_OUTPUT, Asked, answered, chosen, counted
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.toolset import CALLED, CALLING, IN_AN_APP, MOST_BYTES, ai, gateway
from baobab.tools.call import Call
from baobab.tools.stream import Stream
from baobab.tools.types import AppId, JsonObject, Text

ModelName = Annotated[str, Text(200, min_length=1), Field(description="A model's id, as GET /v1/models lists it.")]
Messages = Annotated[list[JsonObject], Field(min_length=1, max_length=10_000)]
_MOST_TOKENS, _MOST_CHOICES = 10_000_000, 128
MaxTokens = Annotated[int, Field(ge=1, le=_MOST_TOKENS)]
OneText = Annotated[str, Text(2_000_000)]
Tokens = Annotated[list[int], Field(max_length=100_000)]
Texts = Annotated[
    OneText
    | Annotated[list[OneText], Field(max_length=2048)]
    | Tokens
    | Annotated[list[Tokens], Field(max_length=2048)],
    Field(description="A text or several; arrays of tokens where the model takes them."),
]
# Surcharges that the catalogue's prices do not hold, and values of them that cost nothing.
_UNPRICED, _USUAL = frozenset(("service_tier", "web_search_options")), (None, "auto", "default", "flex")
_EXAMPLE = {"messages": [{"role": "user", "content": "Hello!"}]}


@gateway.tool(
    "POST /chat/completions",
    access=GATEWAY_CALLERS,
    effect="external",
    raises=CALLING,
    audit=CALLED,
    max_body=MOST_BYTES,
    examples=_EXAMPLE,
)
async def gateway_chat(
    call: Call,
    messages: Messages,
    model: ModelName | None = None,
    stream: bool | None = None,
    max_tokens: MaxTokens | None = None,
    **further: Any,
) -> JsonObject:
    """Have a model answer a conversation.

    The request and the answer are those of OpenAI's chat completions; fields that are not listed here are passed on.

    messages: the conversation, each `{role, content}`.
    model: left out, the platform's default.
    stream: answer in server-sent events, where the door can.
    max_tokens: the most that the answer may have.
    """
    answer: dict[str, Any] = await _chat(call, AiSettings(), messages, model, max_tokens, further, stream=stream)
    return answer


@ai.tool(
    "POST /chat/completions",
    access=APP_AI,
    effect="external",
    raises=IN_AN_APP,
    audit=CALLED,
    max_body=MOST_BYTES,
    examples=_EXAMPLE,
    start=True,
)
async def ai_chat(
    call: Call,
    app_id: AppId,
    messages: Messages,
    model: ModelName | None = None,
    stream: bool | None = None,
    max_tokens: MaxTokens | None = None,
    **further: Any,
) -> JsonObject:
    """Have a model answer a conversation, under the app's settings and at its organisation's expense.

    The request and the answer are those of OpenAI's chat completions; fields that are not listed here are passed on.

    messages: the conversation, each `{role, content}`.
    model: left out, the app's default model.
    stream: answer in server-sent events, where the door can.
    max_tokens: the most that the answer may have; the app's maxTokensPerRequest where that is less.
    """
    own = await settings.of_app(call, app_id)
    answer: dict[str, Any] = await _chat(call, own, messages, model, max_tokens, further, stream=stream)
    return answer


@gateway.tool(
    "POST /embeddings",
    access=GATEWAY_CALLERS,
    effect="external",
    raises=CALLING,
    audit=CALLED,
    max_body=MOST_BYTES,
    examples={"input": "Hello!"},
)
async def gateway_embeddings(
    call: Call,
    input: Texts,  # noqa: A002 - the name on the wire
    model: ModelName | None = None,
    **further: Any,
) -> JsonObject:
    """Turn texts into vectors whose closeness is that of their meanings.

    model: left out, the built-in embeddings.
    """
    return await _embed(call, AiSettings(), input, model, further)


@ai.tool(
    "POST /embeddings",
    access=APP_AI,
    effect="external",
    raises=IN_AN_APP,
    audit=CALLED,
    max_body=MOST_BYTES,
    examples={"input": "Hello!"},
)
async def ai_embeddings(
    call: Call,
    app_id: AppId,
    input: Texts,  # noqa: A002 - the name on the wire
    model: ModelName | None = None,
    **further: Any,
) -> JsonObject:
    """Turn texts into vectors whose closeness is that of their meanings, at the app's organisation's expense.

    model: left out, the built-in embeddings.
    """
    return await _embed(call, await settings.of_app(call, app_id), input, model, further)


async def _chat(
    call: Call,
    own: AiSettings,
    messages: list[dict[str, Any]],
    name: str | None,
    max_tokens: int | None,
    further: Mapping[str, Any],
    *,
    stream: bool | None,
) -> Any:
    # What was read is done with: no transaction stays open while a model thinks.
    await call.unit.commit()
    rooms = call.services.part(Gateway)
    models = chosen(call, name, own, "chat")
    for field in _UNPRICED & further.keys():
        if further[field] not in _USUAL:
            raise RequestRefused(f"`{field}` costs extra by rules that no price here says.", details={"param": field})
    body = {"messages": messages, **further}
    limit = _bounded(body, max_tokens, own.max_tokens)
    if stream and call.door.streams:
        pieces, asked = await answered(call, models, own, body, limit, _streaming(rooms, body))
        _tell(call, asked, told_cost=False)
        return Stream(counted(pieces, asked))

    async def ask(model: Model, outcome: Outcome, key: str) -> dict[str, Any]:
        return await rooms.chat(model, body, outcome, key)

    answer, asked = await answered(call, models, own, body, limit, ask)
    return await _ended(call, answer, asked)


def _streaming(rooms: Gateway, body: Mapping[str, Any]) -> Any:
    async def ask(model: Model, outcome: Outcome, key: str) -> AsyncGenerator[bytes, None]:
        return await rooms.stream(model, body, outcome, key)

    return ask


async def _embed(
    call: Call, own: AiSettings, given: Any, name: str | None, further: Mapping[str, Any]
) -> dict[str, Any]:
    await call.unit.commit()
    rooms = call.services.part(Gateway)
    models = chosen(call, name, own, "embedding")
    body = {"input": given, **further}

    async def ask(model: Model, outcome: Outcome, key: str) -> dict[str, Any]:
        return await rooms.embed(model, body, outcome, key)

    answer, asked = await answered(call, models, own, body, 0, ask)
    return await _ended(call, answer, asked)


def _bounded(body: dict[str, Any], max_tokens: int | None, most: int | None) -> int:
    """Write the limit of the answer into the request, lowered to the app's; how long all its answers may be."""
    newer = _whole(body, "max_completion_tokens", _MOST_TOKENS)
    asked = newer or max_tokens
    limit = min(asked, most) if asked and most else asked or most
    if limit is not None:
        body["max_completion_tokens" if newer is not None else "max_tokens"] = limit
    return (limit or USUAL_OUTPUT) * (_whole(body, "n", _MOST_CHOICES) or 1)


def _whole(body: Mapping[str, Any], field: str, most: int) -> int | None:
    """A field that decides about the price: it is read here as its provider reads it."""
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise RequestRefused(f"`{field}` is a whole number from 1 to {most}.", details={"param": field})
    return value


async def _ended(call: Call, answer: dict[str, Any], asked: Asked) -> dict[str, Any]:
    # Counted even if whoever asked is gone by now.
    await asyncio.shield(asked.end())
    _tell(call, asked, told_cost=True)
    return answer


def _tell(call: Call, asked: Asked, *, told_cost: bool) -> None:
    """The headers of an answer: which model it was, and what it cost where that is known."""
    call.headers = [(b"x-baobab-model", asked.model.id.encode())]
    if told_cost:
        call.headers.append((b"x-baobab-cost-usd", f"{asked.cost / 10**9:.9f}".encode()))
    call.audit.resource_id = asked.model.id
