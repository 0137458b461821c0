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
from baobab.runtime.gateway.litellm_import import load_litellm
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.probe import ModelListFailed, fetch_models, probe_servers
from baobab.runtime.gateway.providers import DeclaredServer, Provider, list_providers, list_vendors
from baobab.runtime.gateway.relay import Relay
from baobab.runtime.gateway.retry_timeouts import DEFAULT_TIMEOUTS, RetryTimeouts
from baobab.storage.clock import Clock, Ids

_AGAIN_SECONDS = 600.0
_ANYWHERE = ("0.0.0.0/0", "::/0")

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_gateway(
    environment: Mapping[str, str],
    servers: tuple[DeclaredServer, ...],
    outgoing: Egress,
    clock: Clock,
    ids: Ids,
    *,
    own_port: int | None,
    retry_timeouts: RetryTimeouts = DEFAULT_TIMEOUTS,
) -> AsyncIterator[Gateway]:
    """The gateway, which learns in the background what servers offer that list their models themselves.

    outgoing: by whose rules the servers of customers are called, and pictures fetched.
    own_port: where this server listens, and others of this machine are looked for elsewhere; None looks for none.
    patience: how long any provider is waited for.
    """
    providers = list_providers(environment, servers)
    catalogue = Catalogue(clock, {provider.name for provider in providers})
    catalogue.register_models(built_in.BUILT_IN, built_in.list_models())
    gateway = Gateway(
        catalogue,
        providers,
        clock,
        ids,
        vendors=list_vendors(environment),
        relay=Relay(outgoing, retry_timeouts=retry_timeouts),
        files=RemoteFiles(outgoing),
    )
    # What an operator has declared is trusted, wherever it is.
    trusted = Egress(_ANYWHERE)
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(_discover_models(gateway, providers, trusted, own_port), name="model servers")
    ]
    if _will_need_litellm(providers):
        # Now: the first call would wait for seconds, and so would others, a little, in the middle of a day's work.
        tasks.append(asyncio.create_task(load_litellm(), name="litellm"))
    try:
        yield gateway
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await trusted.close()
        await gateway.close()


async def _discover_models(gateway: Gateway, providers: list[Provider], client: Egress, own_port: int | None) -> None:
    listing = [provider for provider in providers if provider.lists_models]
    if own_port is not None:
        declared = [provider.name for provider in providers]
        for provider, models in await probe_servers(own_port, declared=declared):
            gateway.add_provider(provider, models)
    while listing:
        for provider in listing:
            try:
                gateway.catalogue.register_models(provider.name, await fetch_models(provider, client.request))
            except (ModelListFailed, EgressError) as exc:
                _log.warning("models: %s does not list its models (%s)", provider.name, type(exc).__name__)
            except Exception:  # noqa: BLE001 - a list that nobody expected must not end the others
                _log.exception("models: the list of %s could not be read", provider.name)
        await asyncio.sleep(_AGAIN_SECONDS)


def _will_need_litellm(providers: list[Provider]) -> bool:
    """Whether some wire is to be translated, or vendors are to be chosen from: many models are sold by several."""
    return any(provider.wire == "translated" for provider in providers) or sum(not one.is_own for one in providers) > 1
