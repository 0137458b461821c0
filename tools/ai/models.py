"""Which models there are, and what they cost."""

from typing import Any, Literal

from typing_extensions import TypedDict

from baobab.runtime.gateway.gateway import Gateway
from baobab.tools.access import EVERYBODY, OF_APP
from baobab.tools.ai import settings
from baobab.tools.ai.access import GATEWAY_CALLERS
from baobab.tools.ai.asking import allows
from baobab.tools.ai.toolset import ai, gateway
from baobab.tools.call import Call
from baobab.tools.types import AppId

_USD_MILLION = 10**9


class Listed(TypedDict):
    id: str
    object: Literal["model"]
    display_name: str


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[Listed]


class PublicModel(TypedDict):
    id: str
    name: str
    inputPricePerMTokens: float
    outputPricePerMTokens: float
    contextWindow: int | None


class PublicModels(TypedDict):
    models: list[PublicModel]


class AppModel(TypedDict):
    id: str
    name: str
    context_length: int | None
    modality: Literal["chat", "embedding", "image", "video"]
    prompt_price_per_mtok: float
    completion_price_per_mtok: float
    raw_pricing: dict[str, Any]


class AppModels(TypedDict):
    models: list[AppModel]


@gateway.tool(
    "GET /models",
    access=GATEWAY_CALLERS,
    effect="read",
    keywords="which LLMs can I use, available models, providers; "
    "verfügbare Modelle, Sprachmodelle; "
    "modelos disponibles",
)
async def gateway_models(call: Call) -> ModelList:
    """List the models that can be called: by everybody, and by your organisation's own keys and servers."""
    own = await settings.of_organisation(call)
    models = call.services.part(Gateway).models(own.reach)
    return {
        "object": "list",
        "data": [{"id": m.id, "object": "model", "display_name": m.name} for m in models],
    }


@gateway.tool(
    "GET /public/models",
    access=EVERYBODY,
    effect="read",
    keywords="price per token, what does a model cost, model pricing list, public; "
    "Modellpreise, Kosten je Token; "
    "precios de los modelos, coste por token",
)
async def gateway_public_models(call: Call) -> PublicModels:
    """List the models with their prices, in US dollars for a million tokens: what is charged."""
    markup = call.services.options.ai_markup
    return {
        "models": [
            {
                "id": model.id,
                "name": model.name,
                "inputPricePerMTokens": price.prompt / _USD_MILLION,
                "outputPricePerMTokens": price.completion / _USD_MILLION,
                "contextWindow": model.context_window,
            }
            for model in call.services.part(Gateway).models()
            for price in (model.price.marked_up(markup),)
        ]
    }


@ai.tool(
    "GET /ai/models",
    access=OF_APP,
    effect="read",
    keywords="which LLMs can the app use, available models, prices, choose a model; "
    "verfügbare Modelle der App; "
    "modelos disponibles, precios",
)
async def ai_models(call: Call, app_id: AppId) -> AppModels:
    """List the models that the app can call, with their prices in US dollars for a million tokens."""
    markup, own = call.services.options.ai_markup, await settings.of_app(call, app_id)
    gateway = call.services.part(Gateway)
    return {
        "models": [
            {
                "id": model.id,
                "name": model.name,
                "context_length": model.context_window,
                "modality": model.modality,
                "prompt_price_per_mtok": price.prompt / _USD_MILLION,
                "completion_price_per_mtok": price.completion / _USD_MILLION,
                "raw_pricing": _told(price),
            }
            for model in gateway.models(own.reach)
            if allows(gateway, own, model)
            for price in (model.price.marked_up(markup),)
        ]
    }


def _told(price: Any) -> dict[str, Any]:
    """Whole nano-dollars, for those who reckon: per million tokens, or per image or second."""
    return {
        "prompt_nanos_per_mtok": price.prompt,
        "completion_nanos_per_mtok": price.completion,
        "cached_nanos_per_mtok": price.cached,
        "cache_write_nanos_per_mtok": price.cache_write,
        "cache_write_hour_nanos_per_mtok": price.cache_write_hour,
        "nanos_per_unit": price.unit,
    }
