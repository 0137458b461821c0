"""An app's settings for models, and its own key for a provider."""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Select, select

from baobab.runtime.gateway.provider_access import NO_ACCESS, ProviderAccess
from baobab.runtime.gateway.retry_timeouts import NO_TIMEOUTS, RetryTimeouts
from baobab.storage.cache import Cache
from baobab.tools.ai import organisation_providers
from baobab.tools.ai.schemas import Timeouts
from baobab.tools.ai.tables import app_ai
from baobab.tools.ai.timeouts import read_timeout, retry_timeouts_of
from baobab.tools.core import Account, Call, Services
from baobab.tools.core.auth.callers import ScopedKey

NOTICE = "app_ai"

# A key's beginning shows its provider; a key must not be sent to another provider.
_PREFIXES = (
    ("sk-ant-", "anthropic"),
    ("sk-or-", "openrouter"),
    ("gsk_", "groq"),
    ("xai-", "xai"),
    ("AIza", "gemini"),
    ("fw_", "fireworks_ai"),
    ("tgp_", "together_ai"),
    ("sk-proj-", "openai"),
    ("sk-svcacct-", "openai"),
    ("sk-admin-", "openai"),
)
# This is in the middle of OpenAI's keys; keys of other providers begin with `sk-` too.
_OPENAI_MARK = "T3BlbkFJ"


@dataclass(frozen=True, slots=True)
class AiSettings:
    """The settings that apply to a call; None and empty mean not set.

    provider_access: the customer's own keys and servers. timeouts: those of the app. retry_timeouts: those of the app
    and of the request together. drop_params: whether parameters that a model does not take are left out.
    """

    default_model: str | None = None
    max_tokens: int | None = None
    allowed_models: tuple[str, ...] = ()
    fallback_models: tuple[str, ...] = ()
    byok_provider: str | None = None
    byok_last4: str | None = None
    provider_access: ProviderAccess = NO_ACCESS
    timeouts: Timeouts | None = None
    retry_timeouts: RetryTimeouts = NO_TIMEOUTS
    drop_params: bool | None = None


_NOTHING_SET = AiSettings()


class AppSettings:
    """Caches the settings of apps. A change by any process clears an app's entry within half a second."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._vault = services.vault
        self._cache: Cache[str, AiSettings] = Cache(self._load, services.clock)
        services.notices.subscribe(NOTICE, self._cache.forget)
        services.notices.subscribe("app", self._cache.forget)

    async def get(self, app_id: str) -> AiSettings:
        return self._cache.find_cached(app_id) or await self._cache.get(app_id) or _NOTHING_SET

    async def _load(self, app_id: str) -> AiSettings:
        async with self._database.reading() as connection:
            row = (await connection.execute(_query(app_id))).first()
        app_settings = _settings(row)
        if row is None or row.byok_key is None:
            return app_settings
        open_key = organisation_providers.bind_secret(self._vault, row.byok_key, key_context(app_id))
        return replace(app_settings, provider_access=ProviderAccess({row.byok_provider: open_key}))


async def get_app_settings(call: Call, app_id: str, timeout_header: str | None = None) -> AiSettings:
    """Returns the settings for calls to models in an app.

    It begins no transaction: the transaction that pays must begin with the credits that it pays from.
    timeout_header: the time limit in the request's header.
    """
    app_settings = await call.services.of(AppSettings).get(app_id)
    if timeout_header is not None:
        app_settings = replace(
            app_settings, retry_timeouts=app_settings.retry_timeouts.tighten(read_timeout(timeout_header))
        )
    organisation_access = await organisation_providers.get_provider_access(call, call.require_app().organisation_id)
    return (
        replace(app_settings, provider_access=app_settings.provider_access.merge(organisation_access))
        if organisation_access
        else app_settings
    )


async def get_call_settings(call: Call, timeout_header: str | None = None) -> AiSettings:
    """Returns the settings for a call: those of its app, or of its organisation if it has no app."""
    return await (
        get_organisation_settings(call, timeout_header)
        if call.app is None
        else get_app_settings(call, call.app.id, timeout_header)
    )


async def get_organisation_settings(call: Call, timeout_header: str | None = None) -> AiSettings:
    """Returns the settings for calls outside of an app: the keys and servers of the caller's organisation."""
    caller = call.caller
    assert isinstance(caller, (Account, ScopedKey))
    organisation_access = await organisation_providers.get_provider_access(call, caller.organisation_id)
    if timeout_header is not None:
        return AiSettings(provider_access=organisation_access, retry_timeouts=read_timeout(timeout_header))
    return AiSettings(provider_access=organisation_access) if organisation_access else _NOTHING_SET


async def load_app_settings(call: Call, app_id: str) -> AiSettings:
    """Reads an app's settings from the database, in the call's own transaction."""
    return _settings((await call.execute(_query(app_id))).first())


def _query(app_id: str) -> Select[Any]:
    return select(app_ai).where(app_ai.c.id == app_id)


def _settings(row: Any) -> AiSettings:
    if row is None:
        return AiSettings()
    return AiSettings(
        default_model=row.default_model,
        max_tokens=row.max_tokens,
        allowed_models=tuple(row.allowed_models),
        fallback_models=tuple(row.fallback_models),
        byok_provider=row.byok_provider,
        byok_last4=row.byok_last4,
        timeouts=row.timeouts,
        retry_timeouts=retry_timeouts_of(row.timeouts),
        drop_params=row.drop_params,
    )


def provider_of(key: str) -> str | None:
    provider_by_prefix = next((provider for prefix, provider in _PREFIXES if key.startswith(prefix)), None)
    return provider_by_prefix or ("openai" if _OPENAI_MARK in key else None)


def key_context(app_id: str) -> str:
    """Returns the context that an app's sealed key is bound to."""
    return f"app_ai.byok_key:{app_id}"
