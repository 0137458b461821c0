"""The providers of integrations of an installation: those that its settings name, and the simulator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from baobab.runtime.integrations.composio import Composio
from baobab.runtime.integrations.own_oauth import OwnOAuth
from baobab.runtime.integrations.provider import IntegrationProvider, parse_client
from baobab.runtime.integrations.simulator import Simulator
from baobab.storage.clock import Clock
from baobab.tools.core.services import HttpClient


@dataclass(frozen=True, slots=True)
class Integrations:
    """The providers of this installation. offered: those that new toolkits get, first choice first."""

    offered: tuple[IntegrationProvider, ...] = ()
    all: Mapping[str, IntegrationProvider] = field(default_factory=dict)
    """By name. Accounts of a provider that is not offered any more are still read and disconnected."""


def open_integrations(
    names: Sequence[str],
    key: str,
    url: str,
    webhook_secret: str,
    clients: Sequence[str],
    http_client: HttpClient,
    clock: Clock,
    base_url: str,
    *,
    simulated: bool,
) -> Integrations:
    """Returns the providers. names: the real ones, first choice first; without any, the simulator if it is on.

    key, url, webhook_secret: of Composio. clients: the operator's OAuth clients (`parse_client`).
    """
    simulator = Simulator(clock, base_url)
    providers: dict[str, IntegrationProvider] = {simulator.name: simulator}
    for name in names:
        if name == "composio":
            providers[name] = Composio(http_client, key, url, webhook_secret)
        else:
            providers[name] = OwnOAuth(http_client, clock, dict(parse_client(text) for text in clients))
    choice: tuple[IntegrationProvider, ...] = tuple(providers[name] for name in names)
    if not choice and simulated:
        choice = (simulator,)
    return Integrations(choice, providers)
