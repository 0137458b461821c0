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
from baobab.tools.core.auth.callers import Account, ScopedKey
from baobab.tools.core.call import Call
from baobab.tools.core.services import Services

NOTICE = "app_ai"

# Keys say whose they are by how they begin; a key must not be shown to a provider that is not its own.
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
# In the middle of OpenAI's keys; `sk-` alone begins those of others too.
_OPENAI_MARK = "T3BlbkFJ"


@dataclass(frozen=True, slots=True)
class AiSettings:
    """None and empty mean that nothing is set.

    reach: what can be called beside what the installation can. timeouts: those of the app; patience: those of the app
    and of the request. drop_params: whether parameters that a model does not take are left out.
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
    """The settings of apps, held in memory; a change anywhere clears the app's within half a second."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._vault = services.vault
        self._held: Cache[str, AiSettings] = Cache(self._load, services.clock)
        services.notices.subscribe(NOTICE, self._held.forget)
        services.notices.subscribe("app", self._held.forget)

    async def get(self, app_id: str) -> AiSettings:
        return self._held.find_cached(app_id) or await self._held.get(app_id) or _NOTHING_SET

    async def _load(self, app_id: str) -> AiSettings:
        async with self._database.reading() as connection:
            row = (await connection.execute(_query(app_id))).first()
        own = _settings(row)
        if row is None or row.byok_key is None:
            return own
        opens = organisation_providers.bind_secret(self._vault, row.byok_key, key_context(app_id))
        return replace(own, provider_access=ProviderAccess({row.byok_provider: opens}))


async def get_app_settings(call: Call, app_id: str, allowed: str | None = None) -> AiSettings:
    """What calls to models go by. It begins no transaction: one that pays begins with what it pays from.

    allowed: what the request's header says of its time.
    """
    own = await call.services.of(AppSettings).get(app_id)
    if allowed is not None:
        own = replace(own, retry_timeouts=own.retry_timeouts.tighten(read_timeout(allowed)))
    theirs = await organisation_providers.get_provider_access(call, call.require_app().organisation_id)
    return replace(own, provider_access=own.provider_access.merge(theirs)) if theirs else own


async def get_call_settings(call: Call, allowed: str | None = None) -> AiSettings:
    """What a call goes by: its app's settings, or its organisation's."""
    return await (
        get_organisation_settings(call, allowed) if call.app is None else get_app_settings(call, call.app.id, allowed)
    )


async def get_organisation_settings(call: Call, allowed: str | None = None) -> AiSettings:
    """What calls outside of an app go by: the caller's organisation has keys and servers, and no settings."""
    caller = call.caller
    assert isinstance(caller, (Account, ScopedKey))
    theirs = await organisation_providers.get_provider_access(call, caller.organisation_id)
    if allowed is not None:
        return AiSettings(provider_access=theirs, retry_timeouts=read_timeout(allowed))
    return AiSettings(provider_access=theirs) if theirs else _NOTHING_SET


async def load_app_settings(call: Call, app_id: str) -> AiSettings:
    """What the rows say in the call's own transaction."""
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
    told = next((provider for prefix, provider in _PREFIXES if key.startswith(prefix)), None)
    return told or ("openai" if _OPENAI_MARK in key else None)


def key_context(app_id: str) -> str:
    """What a sealed key is bound to."""
    return f"app_ai.byok_key:{app_id}"
