"""Embeddings in OpenAI's wire format, through the gateway and in an app."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.providers import Provider
from baobab.tools.ai import settings
from baobab.tools.ai.access import GATEWAY_CALLERS
from baobab.tools.ai.answer_headers import set_answer_headers
from baobab.tools.ai.cache import build_entry
from baobab.tools.ai.metered_call import MeteredCall
from baobab.tools.ai.model_calls import call_models
from baobab.tools.ai.model_choice import preview_model, select_models
from baobab.tools.ai.schemas import CacheOptions
from baobab.tools.ai.settings import AiSettings
from baobab.tools.ai.timeouts import FROM_HEADERS, TimeoutHeader
from baobab.tools.ai.tools.chat import ModelName, settle_answer
from baobab.tools.ai.toolset import CALLED, CALLING, IN_AN_APP, MOST_BYTES, ai, gateway
from baobab.tools.core import AppId, Call, Guard, JsonObject, Mcp, Rest, Text
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.limits.limits import GATEWAY_REQUESTS

OneText = Annotated[str, Text(200_000, nul=True)]
Tokens = Annotated[list[int], Field(max_length=100_000)]
Texts = Annotated[
    OneText
    | Annotated[list[OneText], Field(max_length=2048)]
    | Tokens
    | Annotated[list[Tokens], Field(max_length=2048)],
    Field(description="One text or several. Arrays of tokens, too, if the model takes them."),
]
_PlainTexts = Annotated[list[Annotated[str, Text(10_000)]], Field(min_length=1, max_length=2048)]


@gateway.tool(
    "POST /embeddings",
    access=GATEWAY_CALLERS,
    limit=GATEWAY_REQUESTS,
    effect="external",
    raises=CALLING,
    audit=CALLED,
    rest=Rest(query=tuple(FROM_HEADERS), from_headers=FROM_HEADERS, max_body=MOST_BYTES, examples={"input": "Hello!"}),
    guard=Guard(preview=preview_model("embedding")),
)
async def gateway_embeddings(
    call: Call,
    input: Texts,
    model: ModelName | None = None,
    cache: CacheOptions | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Turn texts into vectors whose closeness is that of their meanings.

    model: if left out, the built-in embeddings.
    cache: keep the answer for this long. The same request is then answered from the cache, at no cost.
    baobab_timeout: how long the call may take. Over REST you can also send the header `x-baobab-timeout`.
    """
    return await _embed(call, await settings.get_call_settings(call, baobab_timeout), input, model, further, cache)


@ai.tool(
    "POST /embeddings",
    access=OF_APP,
    effect="external",
    raises=IN_AN_APP,
    audit=CALLED,
    rest=Rest(query=tuple(FROM_HEADERS), from_headers=FROM_HEADERS, max_body=MOST_BYTES, examples={"input": "Hello!"}),
    guard=Guard(preview=preview_model("embedding")),
)
async def ai_embeddings(
    call: Call,
    app_id: AppId,
    input: Texts,
    model: ModelName | None = None,
    cache: CacheOptions | None = None,
    baobab_timeout: TimeoutHeader | None = None,
    **further: Any,
) -> JsonObject:
    """Turn texts into vectors that are close if their meanings are; the app's organisation pays.

    model: if left out, the built-in embeddings.
    cache: keep the answer for this long. The same request is then answered from the cache, at no cost.
    baobab_timeout: how long the call may take. Over REST you can also send the header `x-baobab-timeout`.
    """
    return await _embed(
        call, await settings.get_app_settings(call, app_id, baobab_timeout), input, model, further, cache
    )


@ai.tool(access=OF_APP, effect="external", raises=IN_AN_APP, limit=None, audit=CALLED, mcp=Mcp(offered=False))
async def ai_embed(call: Call, app_id: AppId, texts: _PlainTexts, model: ModelName | None = None) -> JsonObject:
    """Turn the texts of documents and queries into vectors, without counting as a request of the app.

    model: null for the built-in embeddings.
    """
    return await _embed(call, await settings.get_app_settings(call, app_id), texts, model, {}, None)


async def _embed(
    call: Call,
    ai_settings: AiSettings,
    texts: Any,
    name: str | None,
    further: Mapping[str, Any],
    cache: CacheOptions | None,
) -> dict[str, Any]:
    """Has a model turn texts into vectors, and returns OpenAI's answer. Raises the errors of CALLING.

    texts: as OpenAI takes them. name: of the model; None for the built-in embeddings.
    """
    if not call.is_nested:
        await call.unit.commit()
    gateway_ = call.services.part(Gateway)
    models = select_models(call, name, ai_settings, "embedding")
    body = {"input": texts, **further}
    entry = None if cache is None else build_entry(call, ai_settings.provider_access, models[0], body, cache)
    if entry is not None and (cached_answer := await entry.load()) is not None:
        set_answer_headers(call, entry.model, cost=0, cache="hit")
        return cached_answer

    async def ask(metered_call: MeteredCall, provider: Provider | None) -> dict[str, Any]:
        return await gateway_.embed_texts(
            metered_call.model, body, metered_call.meter, provider, metered_call.retry_timeouts
        )

    answer, metered_call = await call_models(call, models, ai_settings, body, ask, cache="miss" if entry else "")
    return await settle_answer(call, answer, metered_call, entry)
