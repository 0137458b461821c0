"""An app's settings for models, and its usage."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.provider_access import NO_ACCESS, ProviderAccess
from baobab.storage.sql.tables import build_upsert
from baobab.tools.ai import organisation_providers, settings
from baobab.tools.ai.errors import KeyOfAnother, ModelNotUsable, UnknownProvider
from baobab.tools.ai.schemas import AiConfig, AiConfigAnswer, AiUsage, ModelUsage, Timeouts
from baobab.tools.ai.tables import app_ai
from baobab.tools.ai.tools.chat import ModelName
from baobab.tools.ai.toolset import ai
from baobab.tools.core import OMITTED, AppId, AppOwner, Audit, BadRequest, Call, Guard, Rest, Secret, Text
from baobab.tools.core.days import Day, first_and_last
from baobab.tools.core.limits.money import usd

Models = Annotated[list[ModelName], Field(max_length=500)]
MaxTokensPerRequest = Annotated[int, Field(ge=1, le=100_000)]
ProviderKey = Annotated[str, Secret(500, min_length=8, pattern="^[!-~]+$")]


@ai.tool(
    "GET /ai/config",
    access=AppOwner(),
    effect="read",
)
async def ai_config(call: Call, app_id: AppId) -> AiConfigAnswer:
    """Read the app's settings for models. Only the end of a key is shown."""
    return {"config": _config(await settings.load_app_settings(call, app_id))}


@ai.tool(
    "PUT /ai/config",
    access=AppOwner("admin"),
    effect="write",
    raises=(UnknownProvider, KeyOfAnother, ModelNotUsable),
    audit=Audit("app.config.ai", resource="app"),
    rest=Rest(examples={"defaultModel": "baobab/echo", "maxTokensPerRequest": 4000}),
    guard=Guard(destructive_when="if it replaces or removes a key"),
)
async def ai_config_update(
    call: Call,
    app_id: AppId,
    defaultModel: ModelName | None = OMITTED,
    maxTokensPerRequest: MaxTokensPerRequest | None = OMITTED,
    allowedModels: Models = OMITTED,
    fallbackModels: Models = OMITTED,
    byokKey: ProviderKey | None = OMITTED,
    byokProvider: Annotated[str, Text(60)] | None = OMITTED,
    timeouts: Timeouts | None = OMITTED,
    dropParams: bool | None = OMITTED,
) -> AiConfigAnswer:
    """Change the app's settings for models. Fields left out stay; null resets a setting.

    defaultModel: the model for requests that name none; null for the server's default.
    maxTokensPerRequest: the most tokens of an answer, which is cut there; null for no limit.
    allowedModels: the only models that may be called; empty for all.
    fallbackModels: the models that are tried in this order if the provider of the model fails.
    byokKey: your own key for a provider. Its models are then called with this key and not charged. The key is stored
        encrypted and never shown. null removes it.
    byokProvider: the provider of the key, if the key does not show it; null to detect it from the key.
    timeouts: how long a call may take, in seconds. They can only be tighter than the installation's; null for no limits
        of the app's own.
    dropParams: whether optional parameters that a model does not take, such as `seed`, are left out instead of refused.
        A request's `drop_params` takes precedence. null for the installation's setting.
    """
    values: dict[str, Any] = {"updated_at": call.now}
    arguments = {
        "default_model": defaultModel,
        "max_tokens": maxTokensPerRequest,
        "allowed_models": allowedModels,
        "fallback_models": fallbackModels,
        "timeouts": timeouts,
        "drop_params": dropParams,
    }
    values |= {name: value for name, value in arguments.items() if value is not OMITTED}
    if isinstance(byokProvider, str) and not isinstance(byokKey, str):
        raise BadRequest("`byokProvider` is the provider of `byokKey`: send both together.")
    if byokKey is not OMITTED and (await settings.load_app_settings(call, app_id)).byok_last4 is not None:
        call.declare_destructive()
    if byokKey is None:
        values |= {"byok_key": None, "byok_provider": None, "byok_last4": None}
    elif byokKey is not OMITTED:
        named_provider = None if byokProvider is OMITTED else byokProvider
        provider_by_prefix = settings.provider_of(byokKey)
        provider = named_provider or provider_by_prefix
        if provider is None:
            raise UnknownProvider
        if provider_by_prefix is not None and provider_by_prefix != provider:
            raise KeyOfAnother(f"This key begins like a key of `{provider_by_prefix}`.")
        key_providers = call.services.part(Gateway).key_providers
        if provider not in key_providers:
            raise UnknownProvider(
                f"`{provider}` is not a vendor whose models you can call with your own key.",
                remediation=f"Use a key for one of these providers: {', '.join(key_providers) or 'none'}.",
            )
        sealed_key = call.services.vault.seal(byokKey.encode(), settings.key_context(app_id))
        values |= {
            "byok_key": sealed_key,
            "byok_provider": provider,
            "byok_last4": organisation_providers.last4(byokKey),
        }
    await _require_models(call, app_id, values)
    row = {"id": app_id, "allowed_models": [], "fallback_models": [], **values}
    insertion = build_upsert(call.unit.database.dialect, app_ai).values(row)
    await call.execute(insertion.on_conflict_do_update(index_elements=["id"], set_=values))
    await call.services.notices.publish(call.unit, settings.NOTICE, app_id)
    call.audit.resource_id = app_id
    call.audit.data["fields"] = sorted(values.keys() - {"updated_at"})
    return {"config": _config(await settings.load_app_settings(call, app_id))}


@ai.tool(
    "GET /ai/usage",
    access=AppOwner(),
    effect="read",
)
async def ai_usage(call: Call, app_id: AppId, startDate: Day | None = None, endDate: Day | None = None) -> AiUsage:
    """Read what the app's calls to models have used and cost, in US dollars, by model.

    startDate: the first day (UTC); if left out, 30 days ago.
    endDate: the last day (UTC); if left out, today.
    """
    first_day, last_day = first_and_last(startDate, endDate, call.now.date())
    app = call.require_app()
    by_model: dict[str, ModelUsage] = {}
    for usage in await call.services.credits.usage(app.organisation_id, first_day, last_day, app_id=app_id):
        model_usage = by_model.setdefault(usage.model or "", {"tokens": 0, "cost": 0.0, "requests": 0})
        model_usage["tokens"] += usage.prompt_tokens + usage.completion_tokens
        model_usage["requests"] += usage.requests
        model_usage["cost"] += 0 if usage.byok else usd(usage.cost)
    return {
        "totalTokens": sum(model["tokens"] for model in by_model.values()),
        "totalCost": sum(model["cost"] for model in by_model.values()),
        "totalRequests": sum(model["requests"] for model in by_model.values()),
        "byModel": by_model,
    }


async def _require_models(call: Call, app_id: str, values: Mapping[str, Any]) -> None:
    """Raises ModelNotUsable if the new default model or a new fallback model is not a chat model the app can call."""
    default, fallbacks = values.get("default_model"), values.get("fallback_models") or ()
    named_models = [("defaultModel", default)] if default is not None else []
    named_models += [("fallbackModels", name) for name in fallbacks]
    if not named_models:
        return
    app_settings = await settings.get_app_settings(call, app_id)
    # A key in this request already makes its provider's models available.
    new_access = ProviderAccess({values["byok_provider"]: lambda: ""}) if values.get("byok_provider") else NO_ACCESS
    for field, name in named_models:
        model = call.services.part(Gateway).find_model(name, new_access.merge(app_settings.provider_access))
        if model is None or model.modality != "chat":
            problem = "There is no model" if model is None else f"A model for {model.modality} is"
            raise ModelNotUsable(f"{problem} `{name}`, which is set in `{field}`.", details={"param": field})


def _config(ai_settings: settings.AiSettings) -> AiConfig:
    return {
        "defaultModel": ai_settings.default_model,
        "maxTokensPerRequest": ai_settings.max_tokens,
        "allowedModels": list(ai_settings.allowed_models),
        "fallbackModels": list(ai_settings.fallback_models),
        "byokKey": f"***{ai_settings.byok_last4 or ''}" if ai_settings.byok_provider else None,
        "byokProvider": ai_settings.byok_provider,
        "timeouts": ai_settings.timeouts,
        "dropParams": ai_settings.drop_params,
    }
