"""Chat completions and embeddings, by the gateway and in an app: the OpenAI wire."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.outcome import Outcome
from baobab.tools.ai import settings
from baobab.tools.ai.access import APP_AI, GATEWAY_CALLERS
from baobab.tools.ai.asking import Asked, answered, chosen, counted, settled
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.toolset import CALLED, CALLING, IN_AN_APP, MOST_BYTES, ai, gateway
from baobab.tools.call import Call
from baobab.tools.stream import Stream
from baobab.tools.types import AppId, JsonObject, Text

ModelName = Annotated[str, Text(200, min_length=1), Field(description="A model's id, as GET /v1/models lists it.")]
Messages = Annotated[list[JsonObject], Field(min_length=1, max_length=10_000)]
_MOST_TOKENS, _MOST_CHOICES = 10_000_000, 128
MaxTokens = Annotated[int, Field(ge=1, le=_MOST_TOKENS)]
OneText = Annotated[str, Text(200_000)]
Tokens = Annotated[list[int], Field(max_length=100_000)]
Texts = Annotated[
    OneText
    | Annotated[list[OneText], Field(max_length=2048)]
    | Tokens
    | Annotated[list[Tokens], Field(max_length=2048)],
    Field(description="A text or several; arrays of tokens where the model takes them."),
]
# Surcharges that the catalogue's prices do not hold: service of another speed, searches that the provider makes.
_UNPRICED = frozenset(
    ("service_tier", "web_search_options", "search_parameters", "enable_search", "connectors", "plugins")
)
# What has another model answer than the one that is charged, or undoes the limits that were reckoned with.
_ELSEWHERE = frozenset(("models", "route", "provider", "preset", "generationConfig", "generation_config"))
_USUAL = {"service_tier": ("auto", "default", "flex"), "enable_search": (False,)}
# All others are run by the provider, and charged by rules of their own.
_OWN_TOOLS = ("function", "custom")
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
    if not call.nested:
        await call.unit.commit()
    rooms = call.services.part(Gateway)
    models = chosen(call, name, own, "chat")
    _refuse_what_has_no_price(further)
    body = {"messages": messages, **further}
    limit, bounded = _bounded(body, max_tokens, own.max_tokens)
    answers = _whole(body, "n", _MOST_CHOICES) or 1
    if stream and call.door.streams:
        begin = _streaming(rooms, bounded)
        pieces, asked = await answered(call, models, own, body, begin, limit=limit, answers=answers)
        _tell(call, asked, told_cost=False)
        return Stream(counted(pieces, asked))

    async def ask(model: Model, outcome: Outcome, key: str) -> dict[str, Any]:
        whole = {name: value for name, value in bounded(model).items() if name != "stream_options"}
        return await rooms.chat(model, whole, outcome, key)

    answer, asked = await answered(call, models, own, body, ask, limit=limit, answers=answers)
    return await _ended(call, answer, asked)


def _refuse_what_has_no_price(further: Mapping[str, Any]) -> None:
    for field in (_UNPRICED | _ELSEWHERE) & further.keys():
        value = further[field]
        if value is None or value in _USUAL.get(field, ()):
            continue
        said = "costs extra by rules that no price here says" if field in _UNPRICED else "changes what is charged for"
        raise RequestRefused(f"`{field}` {said}.", remediation="Leave it out.", details={"param": field})
    tools = further.get("tools")
    for tool in tools if isinstance(tools, list) else () if tools is None else (tools,):
        if not isinstance(tool, dict) or tool.get("type") not in _OWN_TOOLS:
            raise RequestRefused(
                "Only tools of the types `function` and `custom` are passed on: what others cost, no price here says.",
                remediation="Leave the others out of `tools`.",
                details={"param": "tools"},
            )


def _streaming(rooms: Gateway, bounded: Callable[[Model], dict[str, Any]]) -> Any:
    async def ask(model: Model, outcome: Outcome, key: str) -> AsyncGenerator[bytes, None]:
        return await rooms.stream(model, bounded(model), outcome, key)

    return ask


async def _embed(
    call: Call, own: AiSettings, given: Any, name: str | None, further: Mapping[str, Any]
) -> dict[str, Any]:
    if not call.nested:
        await call.unit.commit()
    rooms = call.services.part(Gateway)
    models = chosen(call, name, own, "embedding")
    body = {"input": given, **further}

    async def ask(model: Model, outcome: Outcome, key: str) -> dict[str, Any]:
        return await rooms.embed(model, body, outcome, key)

    answer, asked = await answered(call, models, own, body, ask)
    return await _ended(call, answer, asked)


def _bounded(
    body: Mapping[str, Any], max_tokens: int | None, most: int | None
) -> tuple[int | None, Callable[[Model], dict[str, Any]]]:
    """The limit of an answer, lowered to the app's; and the request for a model with the limit in it."""
    newer = _whole(body, "max_completion_tokens", _MOST_TOKENS)
    asked = newer or max_tokens
    limit = min(asked, most) if asked and most else asked or most

    def bounded(model: Model) -> dict[str, Any]:
        if limit is None:
            return dict(body)
        # By the newer name where the caller used none: OpenAI's later models refuse the older one.
        by_newer = newer is not None or (max_tokens is None and model.provider == "openai")
        return {**body, "max_completion_tokens" if by_newer else "max_tokens": limit}

    return limit, bounded


def _whole(body: Mapping[str, Any], field: str, most: int) -> int | None:
    """A field that decides about the price: it is read here as its provider reads it."""
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise RequestRefused(f"`{field}` is a whole number from 1 to {most}.", details={"param": field})
    return value


async def _ended(call: Call, answer: dict[str, Any], asked: Asked) -> dict[str, Any]:
    await settled(asked)
    _tell(call, asked, told_cost=True)
    return answer


def _tell(call: Call, asked: Asked, *, told_cost: bool) -> None:
    """The headers of an answer: which model it was, and what it cost where that is known."""
    call.headers = [(b"x-baobab-model", asked.model.id.encode())]
    if told_cost:
        charged = 0 if asked.byok else asked.cost
        call.headers.append((b"x-baobab-cost-usd", f"{charged / 10**9:.9f}".encode()))
    call.audit.resource_id = asked.model.id
