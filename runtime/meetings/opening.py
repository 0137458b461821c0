"""The providers of meeting bots of an installation: those that its settings name, and the simulator."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from baobab.runtime.meetings.attendee import Attendee
from baobab.runtime.meetings.provider import MeetingProvider, ProviderName
from baobab.runtime.meetings.recall import Recall
from baobab.runtime.meetings.simulator import Simulator
from baobab.runtime.meetings.vexa import Vexa
from baobab.storage.clock import Clock
from baobab.tools.core.services import HttpClient

_PROVIDERS: Mapping[str, Callable[[HttpClient, str, str, str], MeetingProvider]] = {
    "recall": Recall,
    "attendee": Attendee,
    "vexa": Vexa,
}


@dataclass(frozen=True, slots=True)
class Meetings:
    """The providers of this installation. current: the one that new bots get; None where there is none."""

    current: MeetingProvider | None = None
    all: Mapping[str, MeetingProvider] = field(default_factory=dict)
    """By name. Bots of an earlier provider are still read where it is configured."""


def open_meetings(
    name: ProviderName,
    key: str,
    url: str,
    webhook_secret: str,
    http_client: HttpClient,
    clock: Clock,
    *,
    simulated: bool,
) -> Meetings:
    """Returns the providers. name: the real one; empty for none, and then the simulator if it is on."""
    simulator = Simulator(clock)
    # Bots of earlier simulated calls stay readable.
    providers: dict[str, MeetingProvider] = {simulator.name: simulator}
    if name:
        providers[name] = _PROVIDERS[name](http_client, key, url, webhook_secret)
    current = providers.get(name)
    return Meetings(current or (simulator if simulated else None), providers)
