"""Opening the gateway: who can be called from here, and what they offer."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from baobab.runtime.egress import Egress, EgressError
from baobab.runtime.gateway import built_in
from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.library import litellm
from baobab.runtime.gateway.media.files import Files
from baobab.runtime.gateway.patience import USUAL, Patience
from baobab.runtime.gateway.probe import ModelsUnlisted, models_of, probe
from baobab.runtime.gateway.providers import Provider, Server, providers_of, vendors_of
from baobab.runtime.gateway.relay import Relay
from baobab.storage.clock import Clock, Ids

_AGAIN_SECONDS = 600.0
_ANYWHERE = ("0.0.0.0/0", "::/0")

_log = logging.getLogger(__name__)


@asynccontextmanager
async def opened(
    environment: Mapping[str, str],
    servers: tuple[Server, ...],
    outgoing: Egress,
    clock: Clock,
    ids: Ids,
    *,
    own_port: int | None,
    patience: Patience = USUAL,
) -> AsyncIterator[Gateway]:
    """The gateway, which learns in the background what servers offer that list their models themselves.

    outgoing: by whose rules the servers of customers are called, and pictures fetched.
    own_port: where this server listens, and others of this machine are looked for elsewhere; None looks for none.
    patience: how long any provider is waited for.
    """
    providers = providers_of(environment, servers)
    catalogue = Catalogue(clock, {provider.name for provider in providers})
    catalogue.offer(built_in.BUILT_IN, built_in.models())
    gateway = Gateway(
        catalogue,
        providers,
        clock,
        ids,
        vendors=vendors_of(environment),
        relay=Relay(outgoing, patience=patience),
        files=Files(outgoing),
    )
    # What an operator has declared is trusted, wherever it is.
    trusted = Egress(_ANYWHERE)
    beside: list[asyncio.Task[Any]] = [
        asyncio.create_task(_learn(gateway, providers, trusted, own_port), name="model servers")
    ]
    if _will_need_litellm(providers):
        # Now: the first call would wait for seconds, and so would others, a little, in the middle of a day's work.
        beside.append(asyncio.create_task(litellm(), name="litellm"))
    try:
        yield gateway
    finally:
        for task in beside:
            task.cancel()
        await asyncio.wait(beside)
        await trusted.close()
        await gateway.close()


async def _learn(gateway: Gateway, providers: list[Provider], client: Egress, own_port: int | None) -> None:
    listing = [provider for provider in providers if provider.lists]
    if own_port is not None:
        declared = [provider.name for provider in providers]
        for provider, models in await probe(own_port, declared=declared):
            gateway.add(provider, models)
    while listing:
        for provider in listing:
            try:
                gateway.catalogue.offer(provider.name, await models_of(provider, client.request))
            except (ModelsUnlisted, EgressError) as exc:
                _log.warning("models: %s does not list its models (%s)", provider.name, type(exc).__name__)
            except Exception:  # noqa: BLE001 - a list that nobody expected must not end the others
                _log.exception("models: the list of %s could not be read", provider.name)
        await asyncio.sleep(_AGAIN_SECONDS)


def _will_need_litellm(providers: list[Provider]) -> bool:
    """Whether some wire is to be translated, or vendors are to be chosen from: many models are sold by several."""
    return any(provider.wire == "translated" for provider in providers) or sum(not one.own for one in providers) > 1
