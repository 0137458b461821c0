"""Which models there are, and what they cost."""

from typing import Any, Literal

from typing_extensions import TypedDict

from baobab.runtime.gateway.errors import ModelNotFound
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.tools.ai import settings
from baobab.tools.ai.asking import allowed_models, allows
from baobab.tools.ai.bases import OPENAI
from baobab.tools.ai.chat import ModelName
from baobab.tools.ai.errors import ModelNotAllowed
from baobab.tools.ai.toolset import ai, gateway
from baobab.tools.core.auth.access import EVERYBODY, OF_APP
from baobab.tools.core.call import Call
from baobab.tools.core.toolset import Mcp, Rest
from baobab.tools.core.types import AppId

_USD_MILLION = 10**9


class Listed(TypedDict):
    """A model as the clients of both wires read it.

    created, created_at: the beginning of 1970, for no list says when a model was made. owned_by: its vendor.
    """

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    display_name: str
    type: Literal["model"]
    created_at: str


class ModelList(TypedDict):
    """All of them, in one piece."""

    object: Literal["list"]
    data: list[Listed]
    has_more: bool
    first_id: str | None
    last_id: str | None


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


@OPENAI.tool(
    "GET /models",
    in_app="ai_model_list",
    effect="read",
    also="/v1/models",
    mcp=Mcp(
        keywords=(
            "which LLMs can I use, available models, providers; verfügbare Modelle, Sprachmodelle; modelos disponibles"
        )
    ),
)
async def gateway_models(call: Call) -> ModelList:
    """List the models that can be called: by everybody, and by your organisation's own keys and servers.

    In an app: those of them that it allows.
    """
    own, rooms = await settings.of_call(call), call.services.part(Gateway)
    allowed = allowed_models(rooms, own)
    models = [_listed(model) for model in rooms.models(own.reach) if allowed is None or model.id in allowed]
    ends = (models[0]["id"], models[-1]["id"]) if models else (None, None)
    return {"object": "list", "data": models, "has_more": False, "first_id": ends[0], "last_id": ends[1]}


@OPENAI.tool(
    "GET /models/{model_id:path}",
    in_app="ai_model",
    effect="read",
    raises=(ModelNotFound,),
    also="/v1/models/{model_id:path}",
    rest=Rest(examples={"model_id": "baobab/echo"}),
    mcp=Mcp(
        keywords=(
            "details of one LLM, price and context length of a model, does this model exist; "
            "ein Modell ansehen; "
            "ver un modelo"
        )
    ),
)
async def gateway_model(call: Call, model_id: ModelName) -> Listed:
    """Read one of the models that can be called.

    model_id: its id, or another of its names.
    """
    own, rooms = await settings.of_call(call), call.services.part(Gateway)
    model = rooms.find(model_id, own.reach)
    if not allows(rooms, own, model):
        raise ModelNotAllowed(f"The app allows {', '.join(own.allowed_models)}.")
    return _listed(model)


@gateway.tool(
    "GET /public/models",
    access=EVERYBODY,
    effect="read",
    mcp=Mcp(
        keywords=(
            "price per token, what does a model cost, model pricing list, public; "
            "Modellpreise, Kosten je Token; "
            "precios de los modelos, coste por token"
        )
    ),
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
    mcp=Mcp(
        keywords=(
            "which LLMs can the app use, available models, prices, choose a model; "
            "verfügbare Modelle der App; "
            "modelos disponibles, precios"
        )
    ),
)
async def ai_models(call: Call, app_id: AppId) -> AppModels:
    """List the models that the app can call, with their prices in US dollars for a million tokens."""
    markup, own = call.services.options.ai_markup, await settings.of_app(call, app_id)
    gateway = call.services.part(Gateway)
    allowed = allowed_models(gateway, own)
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
            if allowed is None or model.id in allowed
            for price in (model.price.marked_up(markup),)
        ]
    }


def _listed(model: Model) -> Listed:
    return {
        "id": model.id,
        "object": "model",
        "created": 0,
        "owned_by": model.id.partition("/")[0],
        "display_name": model.name,
        "type": "model",
        "created_at": "1970-01-01T00:00:00Z",
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
