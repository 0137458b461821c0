"""Chat completions and embeddings, by the gateway and in an app: the OpenAI wire."""

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Protocol

from pydantic import Field

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.providers import Provider
from baobab.tools.ai import settings
from baobab.tools.ai.access import GATEWAY_CALLERS
from baobab.tools.ai.answer_headers import set_answer_headers
from baobab.tools.ai.cache import CacheEntry, build_entry
from baobab.tools.ai.completion_events import encode_events
from baobab.tools.ai.model_calls import MeteredCall, call_models, preview_model, select_models, settle_call
from baobab.tools.ai.schemas import CacheOptions
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.streaming import stream_answer
from baobab.tools.ai.timeouts import FROM_HEADERS, TimeoutHeader
from baobab.tools.ai.toolset import CALLED, CALLING, IN_AN_APP, MOST_BYTES, ai, gateway
from baobab.tools.ai.unpriced import without_unpriced
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.call import Call
from baobab.tools.core.limits import GATEWAY_REQUESTS
from baobab.tools.core.stream import Stream
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import AnyJsonObject, AppId, JsonObject, Text

ModelName = Annotated[
    str,
    Text(200, min_length=1),
    Field(description="A model's id; op:ai_models lists those of an app, op:gateway_models all."),
]
Messages = Annotated[list[AnyJsonObject], Field(min_length=1, max_length=10_000)]
_MOST_TOKENS, _MOST_CHOICES = 10_000_000, 128
MaxTokens = Annotated[int, Field(ge=1, le=_MOST_TOKENS)]
OneText = Annotated[str, Text(200_000, nul=True)]
Tokens = Annotated[list[int], Field(max_length=100_000)]
Texts = Annotated[
    OneText
    | Annotated[list[OneText], Field(max_length=2048)]
    | Tokens
    | Annotated[list[Tokens], Field(max_length=2048)],
    Field(description="A text or several; arrays of tokens where the model takes them."),
]
_EXAMPLE = {"messages": [{"role": "user", "content": "Hello!"}]}


@gateway.tool(
    "POST /chat/completions",
    access=GATEWAY_CALLERS,
    limit=GATEWAY_REQUESTS,
    effect="external",
    raises=CALLING,
    audit=CALLED,
    rest=Rest(query=tuple(FROM_HEADERS), from_headers=FROM_HEADERS, max_body=MOST_BYTES, examples=_EXAMPLE),
    mcp=Mcp(
        keywords=(
            "chat completion, ask an LLM, GPT, Claude, language model, AI, prompt, generate or summarise text, "
            "OpenAI compatible, without an app; "
            "Sprachmodell fragen, Text erzeugen; "
            "preguntar a un modelo de lenguaje, generar texto"
        )
    ),
    guard=Guard(preview=preview_model("chat")),
)
async def gateway_chat(
    call: Call,
    messages: Messages,
    model: ModelName | None = None,
    stream: bool | None = None,
    max_tokens: MaxTokens | None = None,
    cache: CacheOptions | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Have a model answer a conversation.

    The request and the answer are those of OpenAI's chat completions; fields that are not listed here are passed on.

    messages: the conversation, each `{role, content}`.
    model: left out, the platform's default.
    stream: answer in server-sent events, where the door can.
    max_tokens: the most that the answer may have.
    cache: keep the answer for so long, and answer the very same request from what is kept, at no cost.
    baobab_timeout: how long it may take at most; over REST also the header `x-baobab-timeout`.
    """
    answer: dict[str, Any] = await _chat(
        call,
        await settings.get_call_settings(call, baobab_timeout),
        messages,
        model,
        max_tokens,
        further,
        stream=stream,
        cache=cache,
    )
    return answer


@ai.tool(
    "POST /chat/completions",
    access=OF_APP,
    effect="external",
    raises=IN_AN_APP,
    audit=CALLED,
    rest=Rest(query=tuple(FROM_HEADERS), from_headers=FROM_HEADERS, max_body=MOST_BYTES, examples=_EXAMPLE),
    mcp=Mcp(
        start=True,
        keywords=(
            "ask an LLM, AI, GPT, language model, chat, prompt, summarise, translate, write, classify, generate "
            "text, completion; "
            "Sprachmodell fragen, KI, Text erzeugen, zusammenfassen, übersetzen; "
            "preguntar a la IA, generar texto, resumir, traducir"
        ),
    ),
    guard=Guard(preview=preview_model("chat")),
)
async def ai_chat(
    call: Call,
    app_id: AppId,
    messages: Messages,
    model: ModelName | None = None,
    stream: bool | None = None,
    max_tokens: MaxTokens | None = None,
    cache: CacheOptions | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Have a model answer a conversation, under the app's settings and at its organisation's expense.

    The request and the answer are those of OpenAI's chat completions; fields that are not listed here are passed on.

    messages: the conversation, each `{role, content}`.
    model: left out, the app's default model.
    stream: answer in server-sent events, where the door can.
    max_tokens: the most that the answer may have; the app's maxTokensPerRequest where that is less.
    cache: keep the answer for so long, and answer the very same request from what is kept, at no cost.
    baobab_timeout: how long it may take at most; over REST also the header `x-baobab-timeout`.
    """
    own = await settings.get_app_settings(call, app_id, baobab_timeout)
    answer: dict[str, Any] = await _chat(call, own, messages, model, max_tokens, further, stream=stream, cache=cache)
    return answer


@gateway.tool(
    "POST /embeddings",
    access=GATEWAY_CALLERS,
    limit=GATEWAY_REQUESTS,
    effect="external",
    raises=CALLING,
    audit=CALLED,
    rest=Rest(query=tuple(FROM_HEADERS), from_headers=FROM_HEADERS, max_body=MOST_BYTES, examples={"input": "Hello!"}),
    mcp=Mcp(
        keywords=(
            "embed text, vectors, semantic similarity, meaning, without an app; "
            "Einbettungen, Vektoren, Ähnlichkeit; "
            "vectores, similitud semántica"
        )
    ),
    guard=Guard(preview=preview_model("embedding")),
)
async def gateway_embeddings(
    call: Call,
    input: Texts,  # noqa: A002 - the name on the wire
    model: ModelName | None = None,
    cache: CacheOptions | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Turn texts into vectors whose closeness is that of their meanings.

    model: left out, the built-in embeddings.
    cache: keep the answer for so long, and answer the very same request from what is kept, at no cost.
    baobab_timeout: how long it may take at most; over REST also the header `x-baobab-timeout`.
    """
    return await _embed(call, await settings.get_call_settings(call, baobab_timeout), input, model, further, cache)


@ai.tool(
    "POST /embeddings",
    access=OF_APP,
    effect="external",
    raises=IN_AN_APP,
    audit=CALLED,
    rest=Rest(query=tuple(FROM_HEADERS), from_headers=FROM_HEADERS, max_body=MOST_BYTES, examples={"input": "Hello!"}),
    mcp=Mcp(
        keywords=(
            "embed text, vectors, semantic similarity or search, meaning, RAG; "
            "Einbettungen, Vektoren, Ähnlichkeit; "
            "vectores, similitud semántica"
        )
    ),
    guard=Guard(preview=preview_model("embedding")),
)
async def ai_embeddings(
    call: Call,
    app_id: AppId,
    input: Texts,  # noqa: A002 - the name on the wire
    model: ModelName | None = None,
    cache: CacheOptions | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Turn texts into vectors whose closeness is that of their meanings, at the app's organisation's expense.

    model: left out, the built-in embeddings.
    cache: keep the answer for so long, and answer the very same request from what is kept, at no cost.
    baobab_timeout: how long it may take at most; over REST also the header `x-baobab-timeout`.
    """
    return await _embed(
        call, await settings.get_app_settings(call, app_id, baobab_timeout), input, model, further, cache
    )


async def _chat(
    call: Call,
    own: AiSettings,
    messages: list[dict[str, Any]],
    name: str | None,
    max_tokens: int | None,
    further: Mapping[str, Any],
    *,
    stream: bool | None,
    cache: CacheOptions | None,
) -> Any:
    # What was read is done with: no transaction stays open while a model thinks.
    if not call.nested:
        await call.unit.commit()
    rooms = call.services.part(Gateway)
    models = select_models(call, name, own, "chat")
    further = without_unpriced(call, further)
    body = {"messages": messages, **further}
    limit, bounded = _limit_request(body, max_tokens, own.max_tokens)
    answers = _whole(body, "n", _MOST_CHOICES) or 1
    streamed = bool(stream and call.context.streams)
    kept = None if cache is None else build_entry(call, own.provider_access, models[0], bounded(models[0]), cache)
    if kept is not None and (known := await kept.load()) is not None:
        set_answer_headers(call, kept.model, cost=0, cache="hit")
        return Stream(_replay_stream(known, body)) if streamed else known
    state = "miss" if kept else ""
    if streamed:

        async def begin(metered: MeteredCall, provider: Provider | None) -> AsyncGenerator[bytes, None]:
            return await rooms.stream_chat(
                metered.model,
                bounded(metered.model, metered.granted_tokens),
                metered.meter,
                provider,
                metered.retry_timeouts,
            )

        answering = call_models(call, models, own, body, begin, limit=limit, answers=answers, cache=state)
        return await stream_answer(
            call,
            models[0],
            answering,
            lambda pieces, asked: pieces if kept is None or asked.granted_tokens else kept.save_stream(pieces, asked),
            cache="miss" if kept else None,
        )

    async def ask(metered: MeteredCall, provider: Provider | None) -> dict[str, Any]:
        whole = {
            name: value
            for name, value in bounded(metered.model, metered.granted_tokens).items()
            if name != "stream_options"
        }
        return await rooms.complete_chat(metered.model, whole, metered.meter, provider, metered.retry_timeouts)

    answer, metered = await call_models(call, models, own, body, ask, limit=limit, answers=answers, cache=state)
    return await _settle_answer(call, answer, metered, kept)


async def _replay_stream(answer: Mapping[str, Any], body: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
    """A kept answer as a stream."""
    options = body.get("stream_options")
    wanted = isinstance(options, dict) and options.get("include_usage") is True
    for event in encode_events(answer, with_usage=wanted):
        yield event


async def _embed(
    call: Call, own: AiSettings, given: Any, name: str | None, further: Mapping[str, Any], cache: CacheOptions | None
) -> dict[str, Any]:
    if not call.nested:
        await call.unit.commit()
    rooms = call.services.part(Gateway)
    models = select_models(call, name, own, "embedding")
    body = {"input": given, **further}
    kept = None if cache is None else build_entry(call, own.provider_access, models[0], body, cache)
    if kept is not None and (known := await kept.load()) is not None:
        set_answer_headers(call, kept.model, cost=0, cache="hit")
        return known

    async def ask(metered: MeteredCall, provider: Provider | None) -> dict[str, Any]:
        return await rooms.embed_texts(metered.model, body, metered.meter, provider, metered.retry_timeouts)

    answer, metered = await call_models(call, models, own, body, ask, cache="miss" if kept else "")
    return await _settle_answer(call, answer, metered, kept)


class RequestBuilder(Protocol):
    """Makes the request for a model, with a limit in it; granted: tokens, where the caller has said nothing."""

    def __call__(self, model: Model, granted: int | None = None) -> dict[str, Any]: ...


def _limit_request(
    body: Mapping[str, Any], max_tokens: int | None, most: int | None
) -> tuple[int | None, "RequestBuilder"]:
    """The limit of an answer, lowered to the app's; and the request for a model with the limit in it."""
    newer = _whole(body, "max_completion_tokens", _MOST_TOKENS)
    metered = newer or max_tokens
    limit = min(metered, most) if metered and most else metered or most

    def build_request(model: Model, granted: int | None = None) -> dict[str, Any]:
        most = limit or granted
        if most is None:
            return dict(body)
        # By the newer name where the caller used none: OpenAI's later models refuse the older one.
        by_newer = newer is not None or (max_tokens is None and model.provider == "openai")
        return {**body, "max_completion_tokens" if by_newer else "max_tokens": most}

    return limit, build_request


def _whole(body: Mapping[str, Any], field: str, most: int) -> int | None:
    """A field that decides about the price: it is read here as its provider reads it."""
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise RequestRefused(f"`{field}` is a whole number from 1 to {most}.", details={"param": field})
    return value


async def _settle_answer(
    call: Call, answer: dict[str, Any], metered: MeteredCall, kept: CacheEntry | None
) -> dict[str, Any]:
    await settle_call(metered)
    if kept is not None and metered.granted_tokens is None:
        # What was cut short for want of money is no answer for others.
        await kept.save(answer, metered)
    set_answer_headers(call, metered.model, cost=0 if metered.byok else metered.cost, cache="miss" if kept else None)
    return answer
