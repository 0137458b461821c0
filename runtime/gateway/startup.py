"""Opens the gateway and finds the providers and their models."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from baobab.runtime.gateway import built_in
from baobab.runtime.gateway.catalogue import Catalogue
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.litellm_import import load_litellm
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.probe import ModelListFailed, fetch_models, probe_servers
from baobab.runtime.gateway.providers import DeclaredServer, Provider, list_providers, list_vendors
from baobab.runtime.gateway.relay import Relay
from baobab.runtime.gateway.retry_timeouts import DEFAULT_TIMEOUTS, RetryTimeouts
from baobab.runtime.net.egress import Egress, EgressError
from baobab.storage.clock import Clock, Ids

_AGAIN_SECONDS = 600.0
_FIRST_LISTS_SECONDS = 5.0
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
    wait_until_open: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[Gateway]:
    """Opens the gateway. A background task fetches the lists of servers that list their models themselves.

    outgoing: the egress client with whose rules customers' servers are called and pictures are fetched.
    own_port: this server's port, which is skipped when local model servers are searched; None searches for none.
    retry_timeouts: how long any provider may take.
    wait_until_open: returns once providers may be asked for their models; None if they may be at once.
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
        require_open=outgoing.require_open,
    )
    # Servers that the operator has declared are trusted at any address.
    trusted_egress = Egress(_ANYWHERE, require_open=outgoing.require_open)
    has_looked = asyncio.Event()
    discovery = _discover_models(gateway, providers, trusted_egress, own_port, has_looked, wait_until_open)
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(discovery, name="model servers")]
    if _will_need_litellm(providers):
        # Imported now, because the first call would otherwise wait for seconds and slow down others.
        tasks.append(asyncio.create_task(load_litellm(), name="litellm"))
    try:
        # The first calls must find the same models as later ones. Servers that do not answer must not stop the start.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(has_looked.wait(), _FIRST_LISTS_SECONDS)
        yield gateway
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await trusted_egress.close()
        await gateway.close()


async def _discover_models(
    gateway: Gateway,
    providers: list[Provider],
    client: Egress,
    own_port: int | None,
    has_looked: asyncio.Event,
    wait_until_open: Callable[[], Awaitable[None]] | None,
) -> None:
    """Registers the models of servers that list them, again and again. has_looked: set after the first time."""
    if wait_until_open is not None:
        has_looked.set()
        await wait_until_open()
    listing_providers = [provider for provider in providers if provider.lists_models]
    if own_port is not None:
        declared_names = [provider.name for provider in providers]
        for provider, models in await probe_servers(own_port, declared_names=declared_names):
            gateway.add_provider(provider, models)
    if not listing_providers:
        has_looked.set()
    while listing_providers:
        for provider in listing_providers:
            try:
                gateway.catalogue.register_models(provider.name, await fetch_models(provider, client.request))
            except (ModelListFailed, EgressError) as exc:
                _log.warning("models: %s does not list its models (%s)", provider.name, type(exc).__name__)
            except Exception:  # noqa: BLE001 - one server's strange answer must not stop the others
                _log.exception("models: the list of %s could not be read", provider.name)
        has_looked.set()
        await asyncio.sleep(_AGAIN_SECONDS)


def _will_need_litellm(providers: list[Provider]) -> bool:
    """Returns whether LiteLLM is needed, to translate a wire format or to choose between several vendors of a model."""
    return (
        any(provider.wire == "translated" for provider in providers)
        or sum(not provider.is_own for provider in providers) > 1
    )
