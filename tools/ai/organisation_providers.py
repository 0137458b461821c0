"""The keys for providers, and the model servers, that organisations have set."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import Table, select

from baobab.runtime.gateway.provider_access import NO_ACCESS, OwnServer, ProviderAccess, Secret
from baobab.storage.cache import Cache
from baobab.storage.secrets import Vault
from baobab.tools.ai.tables import model_servers, provider_keys
from baobab.tools.ai.timeouts import retry_timeouts_of
from baobab.tools.core import Call, Services

_NOTICE = "ai_reach"
_LONG = 12


class OrganisationProviders:
    """Caches each organisation's keys and servers. A change by any process clears the entry within half a second."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._vault = services.vault
        self._cache: Cache[str, ProviderAccess] = Cache(self._load, services.clock)
        services.notices.subscribe(_NOTICE, self._cache.forget)

    async def get(self, organisation_id: str) -> ProviderAccess:
        cached_access = self._cache.find_cached(organisation_id)
        return cached_access if cached_access is not None else await self._cache.get(organisation_id) or NO_ACCESS

    async def _load(self, organisation_id: str) -> ProviderAccess:
        async with self._database.reading() as connection:
            keys, servers = [
                (await connection.execute(select(table).where(table.c.organisation_id == organisation_id))).all()
                for table in (provider_keys, model_servers)
            ]
        if not keys and not servers:
            return NO_ACCESS
        return ProviderAccess(
            {row.provider: bind_secret(self._vault, row.key, key_context(provider_keys, row.id)) for row in keys},
            {row.name: _build_server(self._vault, row) for row in servers},
        )


async def get_provider_access(call: Call, organisation_id: str) -> ProviderAccess:
    return await call.services.of(OrganisationProviders).get(organisation_id)


async def publish_change(call: Call, organisation_id: str) -> None:
    await call.services.notices.publish(call.unit, _NOTICE, organisation_id)


def bind_secret(vault: Vault, sealed_secret: str, bound_to: str) -> Secret:
    return partial(_open_secret, vault, sealed_secret, bound_to)


def key_context(table: Table, id_: str) -> str:
    """Returns the context that a sealed key is bound to."""
    return f"{table.name}.key:{id_}"


def last4(key: str) -> str:
    """Returns the last four characters of a key, which are shown; empty for a short key."""
    return key[-4:] if len(key) >= _LONG else ""


def _open_secret(vault: Vault, sealed_secret: str, bound_to: str) -> str:
    return vault.open(sealed_secret, bound_to).decode()


def _build_server(vault: Vault, row: Any) -> OwnServer:
    open_key = None if row.key is None else bind_secret(vault, row.key, key_context(model_servers, row.id))
    listed_models: Mapping[str, int | None] = row.models
    return OwnServer(row.id, row.name, row.url, open_key, listed_models, retry_timeouts_of(row.timeouts))
