"""Chat completions in OpenAI's wire format, through the gateway and in an app."""

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Protocol

from pydantic import Field

from baobab.runtime.gateway.completion_events import encode_events
from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.providers import Provider
from baobab.runtime.gateway.reasoning import drop_unmarked_reasoning
from baobab.tools.ai import settings
from baobab.tools.ai.access import GATEWAY_CALLERS
from baobab.tools.ai.answer_headers import set_answer_headers
from baobab.tools.ai.cache import CacheEntry, build_entry
from baobab.tools.ai.metered_call import MeteredCall
from baobab.tools.ai.model_calls import call_models, settle_call
from baobab.tools.ai.model_choice import preview_model, select_models
from baobab.tools.ai.schemas import CacheOptions
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.streaming import stream_answer
from baobab.tools.ai.timeouts import FROM_HEADERS, TimeoutHeader
from baobab.tools.ai.toolset import CALLED, CALLING, IN_AN_APP, MOST_BYTES, ai, gateway
from baobab.tools.ai.unpriced import without_unpriced
from baobab.tools.core import AppId, Call, Guard, JsonObject, Rest, Text
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.limits.limits import GATEWAY_REQUESTS
from baobab.tools.core.stream import Stream
from baobab.tools.core.types import AnyJsonObject

ModelName = Annotated[
    str,
    Text(200, min_length=1),
    Field(description="A model's id. op:ai_models lists the models of an app, op:gateway_models all."),
]
Messages = Annotated[list[AnyJsonObject], Field(min_length=1, max_length=10_000)]
_MOST_TOKENS, _MOST_CHOICES = 10_000_000, 128
MaxTokens = Annotated[int, Field(ge=1, le=_MOST_TOKENS)]
_EXAMPLE = {"messages": [{"role": "user", "content": "Hello!"}]}


@gateway.tool(
    "POST /chat/completions",
    access=GATEWAY_CALLERS,
    limit=GATEWAY_REQUESTS,
    effect="external",
    raises=CALLING,
    audit=CALLED,
    rest=Rest(query=tuple(FROM_HEADERS), from_headers=FROM_HEADERS, max_body=MOST_BYTES, examples=_EXAMPLE),
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

    messages: the messages of the conversation, each `{role, content}`.
    model: if left out, the server's default model.
    stream: answer with server-sent events. MCP always answers in one piece.
    max_tokens: the most tokens that the answer may have.
    cache: keep the answer for this long. The same request is then answered from the cache, at no cost.
    baobab_timeout: how long the call may take. Over REST you can also send the header `x-baobab-timeout`.
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

    messages: the messages of the conversation, each `{role, content}`.
    model: if left out, the app's default model.
    stream: answer with server-sent events. MCP always answers in one piece.
    max_tokens: the most tokens that the answer may have. If the app's maxTokensPerRequest is less, that applies.
    cache: keep the answer for this long. The same request is then answered from the cache, at no cost.
    baobab_timeout: how long the call may take. Over REST you can also send the header `x-baobab-timeout`.
    """
    app_settings = await settings.get_app_settings(call, app_id, baobab_timeout)
    answer: dict[str, Any] = await _chat(
        call, app_settings, messages, model, max_tokens, further, stream=stream, cache=cache
    )
    return answer


async def _chat(
    call: Call,
    ai_settings: AiSettings,
    messages: list[dict[str, Any]],
    name: str | None,
    max_tokens: int | None,
    further: Mapping[str, Any],
    *,
    stream: bool | None,
    cache: CacheOptions | None,
) -> Any:
    # All reads are done: no transaction stays open while the model works.
    if not call.is_nested:
        await call.unit.commit()
    gateway_ = call.services.part(Gateway)
    models = select_models(call, name, ai_settings, "chat")
    further = without_unpriced(call, further)
    body = {"messages": messages, **further}
    limit, build = _limit_request(body, max_tokens, ai_settings.max_tokens, models[0])
    answers = _whole(body, "n", _MOST_CHOICES) or 1
    is_streamed = bool(stream and call.context.streams)
    entry = (
        None if cache is None else build_entry(call, ai_settings.provider_access, models[0], build(models[0]), cache)
    )
    if entry is not None and (cached_answer := await entry.load()) is not None:
        set_answer_headers(call, entry.model, cost=0, cache="hit")
        return Stream(_replay_stream(cached_answer, body)) if is_streamed else cached_answer
    state = "miss" if entry else ""
    if is_streamed:

        async def begin(metered_call: MeteredCall, provider: Provider | None) -> AsyncGenerator[bytes, None]:
            return await gateway_.stream_chat(
                metered_call.model,
                build(metered_call.model, metered_call.granted_tokens),
                metered_call.meter,
                provider,
                metered_call.retry_timeouts,
            )

        pending_answer = call_models(call, models, ai_settings, body, begin, limit=limit, answers=answers, cache=state)
        return await stream_answer(
            call,
            models[0],
            pending_answer,
            lambda pieces, metered_call: (
                pieces if entry is None or metered_call.granted_tokens else entry.save_stream(pieces, metered_call)
            ),
            cache="miss" if entry else None,
        )

    async def ask(metered_call: MeteredCall, provider: Provider | None) -> dict[str, Any]:
        request = {
            name: value
            for name, value in build(metered_call.model, metered_call.granted_tokens).items()
            if name != "stream_options"
        }
        return await gateway_.complete_chat(
            metered_call.model,
            request,
            metered_call.meter,
            provider,
            metered_call.retry_timeouts,
            call.context.follow_text,
        )

    answer, metered_call = await call_models(
        call, models, ai_settings, body, ask, limit=limit, answers=answers, cache=state
    )
    return await settle_answer(call, answer, metered_call, entry)


async def _replay_stream(answer: Mapping[str, Any], body: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
    """Replays a cached answer as a stream."""
    options = body.get("stream_options")
    with_usage = isinstance(options, dict) and options.get("include_usage") is True
    for event in encode_events(answer, with_usage=with_usage):
        yield event


class RequestBuilder(Protocol):
    """Builds the request for a model with a limit of tokens in it; granted: the limit if the caller gave none."""

    def __call__(self, model: Model, granted_tokens: int | None = None) -> dict[str, Any]: ...


def _limit_request(
    body: Mapping[str, Any], max_tokens: int | None, most: int | None, requested_model: Model
) -> tuple[int | None, "RequestBuilder"]:
    """Returns the limit of an answer, lowered to the app's, and a builder of requests with that limit.

    requested_model: earlier reasoning in the messages is for its provider, and not for that of a fallback.
    """
    newer = _whole(body, "max_completion_tokens", _MOST_TOKENS)
    requested_tokens = newer or max_tokens
    limit = min(requested_tokens, most) if requested_tokens and most else requested_tokens or most

    def build_request(model: Model, granted_tokens: int | None = None) -> dict[str, Any]:
        capped_tokens = limit or granted_tokens
        request = body if model.provider == requested_model.provider else drop_unmarked_reasoning(body)
        if capped_tokens is None:
            return dict(request)
        # The newer name if the caller used neither: OpenAI's later models refuse the older one.
        by_newer = newer is not None or (max_tokens is None and model.provider == "openai")
        return {**request, "max_completion_tokens" if by_newer else "max_tokens": capped_tokens}

    return limit, build_request


def _whole(body: Mapping[str, Any], field: str, most: int) -> int | None:
    """Reads a field that decides about the price, in the same way as its provider does."""
    value = body.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise RequestRefused(f"`{field}` must be a whole number from 1 to {most}.", details={"param": field})
    return value


async def settle_answer(
    call: Call, answer: dict[str, Any], metered_call: MeteredCall, entry: CacheEntry | None
) -> dict[str, Any]:
    """Settles the price of an answer in one piece, caches the answer if that was asked for, and sets its headers."""
    await settle_call(metered_call)
    if entry is not None and metered_call.granted_tokens is None:
        # An answer that was cut short for lack of credits is not for other callers.
        await entry.save(answer, metered_call)
    set_answer_headers(
        call, metered_call.model, cost=0 if metered_call.byok else metered_call.cost, cache="miss" if entry else None
    )
    return answer
