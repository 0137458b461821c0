"""The models and their prices."""

from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.errors import ModelNotFound, RequestRefused
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model
from baobab.tools.ai import settings
from baobab.tools.ai.bases import OPENAI
from baobab.tools.ai.errors import ModelNotAllowed
from baobab.tools.ai.model_choice import allowed_models, is_model_allowed
from baobab.tools.ai.schemas import AppModels, Listed, ModelList, PublicModels
from baobab.tools.ai.tools.chat import ModelName
from baobab.tools.ai.toolset import ai, gateway
from baobab.tools.core import EVERYBODY, AppId, Call, Rest
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.listing import Listing

PageSize = Annotated[int, Field(ge=1, le=1000)]
_USD_MILLION = 10**9


@OPENAI.tool(
    "GET /models",
    in_app="ai_model_list",
    effect="read",
    listing=Listing("data", continues=("after", "id")),
    raises=(RequestRefused,),
    also="/v1/models",
)
async def gateway_models(
    call: Call,
    limit: PageSize | None = None,
    after_id: ModelName | None = None,
    before_id: ModelName | None = None,
    after: ModelName | None = None,
    beta: bool = False,
) -> ModelList:
    """List the models that can be called: by everybody, and by your organisation's own keys and servers.

    In an app, only the models that the app allows are listed. All of them are in one page unless you send `limit`.

    limit: the most models of a page.
    after_id: the `last_id` of the page before, to go on after it.
    before_id: the `first_id` of a page, to read the page before it.
    after: the same as `after_id`, as OpenAI's clients name it.
    beta: sent by Anthropic's clients; it has no effect.
    """
    call_settings, gateway_ = await settings.get_call_settings(call), call.services.part(Gateway)
    allowed_ids = allowed_models(gateway_, call_settings)
    models = [
        _render_model(model)
        for model in gateway_.list_models(call_settings.provider_access)
        if allowed_ids is None or model.id in allowed_ids
    ]
    models, has_more = _select_page(models, limit, after_id or after, before_id)
    first_and_last = (models[0]["id"], models[-1]["id"]) if models else (None, None)
    return {
        "object": "list",
        "data": models,
        "has_more": has_more,
        "first_id": first_and_last[0],
        "last_id": first_and_last[1],
    }


@OPENAI.tool(
    "GET /models/{model_id:path}",
    in_app="ai_model",
    effect="read",
    raises=(ModelNotFound,),
    also="/v1/models/{model_id:path}",
    rest=Rest(examples={"model_id": "baobab/echo"}),
)
async def gateway_model(call: Call, model_id: ModelName) -> Listed:
    """Read one of the models that can be called.

    model_id: the model's id, or another of its names.
    """
    call_settings, gateway_ = await settings.get_call_settings(call), call.services.part(Gateway)
    model = gateway_.get_model(model_id, call_settings.provider_access)
    if not is_model_allowed(gateway_, call_settings, model):
        raise ModelNotAllowed(f"The app allows only {', '.join(call_settings.allowed_models)}.")
    return _render_model(model)


@gateway.tool(
    "GET /public/models",
    access=EVERYBODY,
    effect="read",
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
            for model in call.services.part(Gateway).list_models()
            for price in (model.price.marked_up(markup),)
        ]
    }


@ai.tool(
    "GET /ai/models",
    access=OF_APP,
    effect="read",
)
async def ai_models(call: Call, app_id: AppId) -> AppModels:
    """List the models that the app can call, with their prices in US dollars for a million tokens."""
    markup, app_settings = call.services.options.ai_markup, await settings.get_app_settings(call, app_id)
    gateway = call.services.part(Gateway)
    allowed_ids = allowed_models(gateway, app_settings)
    return {
        "models": [
            {
                "id": model.id,
                "name": model.name,
                "context_length": model.context_window,
                "modality": model.modality,
                "prompt_price_per_mtok": price.prompt / _USD_MILLION,
                "completion_price_per_mtok": price.completion / _USD_MILLION,
                "raw_pricing": _render_price(price),
            }
            for model in gateway.list_models(app_settings.provider_access)
            if allowed_ids is None or model.id in allowed_ids
            for price in (model.price.marked_up(markup),)
        ]
    }


def _select_page(
    models: list[Listed], limit: int | None, after_id: str | None, before_id: str | None
) -> tuple[list[Listed], bool]:
    """Returns a page of the models, and whether there are more in the direction of reading."""
    if after_id is not None and before_id is not None:
        raise RequestRefused("Send `after_id` or `before_id`, not both.", details={"param": "before_id"})
    start, end = 0, len(models)
    if after_id is not None:
        start = _find_position(models, after_id, "after_id") + 1
    elif before_id is not None:
        end = _find_position(models, before_id, "before_id")
        start = max(end - limit, 0) if limit else 0
        return models[start:end], start > 0
    end = min(start + limit, end) if limit else end
    return models[start:end], end < len(models)


def _find_position(models: list[Listed], id_: str, field: str) -> int:
    position = next((number for number, model in enumerate(models) if model["id"] == id_), None)
    if position is None:
        raise RequestRefused(f"`{field}` is not the id of a model in this list.", details={"param": field})
    return position


def _render_model(model: Model) -> Listed:
    return {
        "id": model.id,
        "object": "model",
        "created": 0,
        "owned_by": model.id.partition("/")[0],
        "display_name": model.name,
        "type": "model",
        "created_at": "1970-01-01T00:00:00Z",
    }


def _render_price(price: Any) -> dict[str, Any]:
    """Renders a price exactly, in nano-dollars per million tokens, or per image or second."""
    return {
        "prompt_nanos_per_mtok": price.prompt,
        "completion_nanos_per_mtok": price.completion,
        "cached_nanos_per_mtok": price.cached,
        "cache_write_nanos_per_mtok": price.cache_write,
        "cache_write_hour_nanos_per_mtok": price.cache_write_hour,
        "nanos_per_unit": price.unit,
    }
