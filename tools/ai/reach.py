"""What organisations bring for models: keys for providers, and servers of their own."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlalchemy import Table, select

from baobab.runtime.gateway.reach import NOTHING, OwnServer, Reach, Secret
from baobab.storage.cache import Cache
from baobab.storage.secrets import Vault
from baobab.tools.ai.tables import model_servers, provider_keys
from baobab.tools.ai.timeouts import patience_of
from baobab.tools.core.call import Call
from baobab.tools.core.services import Services

_NOTICE = "ai_reach"
_LONG = 12


class ReachOfOrganisations:
    """What each organisation can call by itself, held in memory; a change anywhere clears it within half a second."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._vault = services.vault
        self._held: Cache[str, Reach] = Cache(self._load, services.clock)
        services.notices.subscribe(_NOTICE, self._held.forget)

    async def of(self, organisation_id: str) -> Reach:
        held = self._held.held(organisation_id)
        return held if held is not None else await self._held.get(organisation_id) or NOTHING

    async def _load(self, organisation_id: str) -> Reach:
        async with self._database.reading() as connection:
            keys, servers = [
                (await connection.execute(select(table).where(table.c.organisation_id == organisation_id))).all()
                for table in (provider_keys, model_servers)
            ]
        if not keys and not servers:
            return NOTHING
        return Reach(
            {row.provider: secret(self._vault, row.key, context(provider_keys, row.id)) for row in keys},
            {row.name: _server(self._vault, row) for row in servers},
        )


async def of_organisation(call: Call, organisation_id: str) -> Reach:
    return await call.services.of(ReachOfOrganisations).of(organisation_id)


async def changed(call: Call, organisation_id: str) -> None:
    await call.services.notices.publish(call.unit, _NOTICE, organisation_id)


def secret(vault: Vault, sealed: str, bound_to: str) -> Secret:
    return partial(_opened, vault, sealed, bound_to)


def context(table: Table, id_: str) -> str:
    """What a sealed key is bound to."""
    return f"{table.name}.key:{id_}"


def last4(key: str) -> str:
    """What is shown of a key: nothing of a short one, of which it would be too much."""
    return key[-4:] if len(key) >= _LONG else ""


def _opened(vault: Vault, sealed: str, bound_to: str) -> str:
    return vault.open(sealed, bound_to).decode()


def _server(vault: Vault, row: Any) -> OwnServer:
    opens = None if row.key is None else secret(vault, row.key, context(model_servers, row.id))
    listed: Mapping[str, int | None] = row.models
    return OwnServer(row.id, row.name, row.url, opens, listed, patience_of(row.timeouts))
