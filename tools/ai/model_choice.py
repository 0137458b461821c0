"""Chooses the model of a call: the requested one and its fallbacks, as far as the app's settings allow them."""

import contextlib
from typing import Any

from baobab.runtime.gateway.errors import (
    ModelNotFound,
    NoModel,
    UseVideoEndpoint,
    WrongEndpoint,
)
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Modality, Model
from baobab.tools.ai.errors import ModelNotAllowed
from baobab.tools.ai.settings import AiSettings, get_call_settings
from baobab.tools.core import Call
from baobab.tools.core.call import Handler


def select_models(call: Call, name: str | None, ai_settings: AiSettings, modality: Modality) -> list[Model]:
    """Returns the requested model, followed by the models to fall back on.

    Raises NoModel, ModelNotFound, ModelNotAllowed, UseVideoEndpoint or WrongEndpoint.
    """
    gateway = call.services.part(Gateway)
    requested_name = (
        name
        or (ai_settings.default_model if modality == "chat" else None)
        or _default_model(gateway, ai_settings, modality)
    )
    if requested_name is None:
        raise NoModel
    model = gateway.get_model(requested_name, ai_settings.provider_access)
    if not is_model_allowed(gateway, ai_settings, model):
        raise ModelNotAllowed(f"The app allows only {', '.join(ai_settings.allowed_models)}.")
    if model.modality == "video" and modality == "chat":
        raise UseVideoEndpoint
    if model.modality != modality:
        raise WrongEndpoint(f"`{model.id}` is a model for {model.modality}.")
    fallbacks = []
    for fallback in ai_settings.fallback_models if modality == "chat" else ():
        with contextlib.suppress(ModelNotFound):
            fallbacks.append(gateway.get_model(fallback, ai_settings.provider_access))
    usable_fallbacks = (
        fallback
        for fallback in fallbacks
        if fallback.modality == modality and is_model_allowed(gateway, ai_settings, fallback)
    )
    return [model, *(fallback for fallback in usable_fallbacks if fallback.id != model.id)]


def preview_model(modality: Modality) -> Handler:
    """Builds a preview that names the model that a call would use. It raises the errors of `select_models`."""

    async def preview(call: Call, model: str | None = None, **_: Any) -> str:
        selected_model = select_models(call, model, await get_call_settings(call), modality)[0]
        return f"It would ask the model {selected_model.id}."

    return preview


def is_model_allowed(gateway: Gateway, ai_settings: AiSettings, model: Model) -> bool:
    """Returns whether the app's settings allow the model, under any of its names."""
    allowed_ids = allowed_models(gateway, ai_settings)
    return allowed_ids is None or model.id in allowed_ids


def allowed_models(gateway: Gateway, ai_settings: AiSettings) -> frozenset[str] | None:
    """Returns the ids of the models that the app's settings allow; None if they allow all."""
    if not ai_settings.allowed_models:
        return None
    models = (gateway.find_model(name, ai_settings.provider_access) for name in ai_settings.allowed_models)
    return frozenset(model.id for model in models if model is not None)


def _default_model(gateway: Gateway, ai_settings: AiSettings, modality: Modality) -> str | None:
    """Returns the server's default: a small model of a provider that can be called, otherwise the built-in one."""
    for name in ("openai/gpt-4o-mini", "anthropic/claude-haiku-4.5", "google/gemini-2.5-flash"):
        if modality == "chat" and gateway.is_callable(name, ai_settings.provider_access):
            return name
    built_in = [model.id for model in gateway.catalogue.list_models(modality) if model.provider == "baobab"]
    return built_in[0] if built_in else None
