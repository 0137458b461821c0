"""Simulators: what integrations, meetings and people answer with where no provider is set, so that they can be tried
without a key.

A simulated answer shows its price in the fields where a real one has what was charged. Nothing is charged for it.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeVar, cast
from urllib.parse import urlsplit

from typing_extensions import TypedDict

if TYPE_CHECKING:
    # The settings import this module, and a command such as `baobab --help` does not need calls.
    from baobab.tools.core.call import Call

T = TypeVar("T", bound=Mapping[str, Any])
Simulators = Literal["auto", "on", "off"]


class Simulated(TypedDict):
    """The base of results that a simulator may have made. A real one does not have the field."""

    simulated: NotRequired[Literal[True]]


def are_simulators_on(setting: Simulators, host: str, base_url: str, *, has_live_provider: bool) -> bool:
    """Returns whether simulators answer.

    host: the address that the server listens on. base_url: where its clients reach it.
    has_live_provider: whether a real provider of integrations, meetings or people is set.
    """
    if setting != "auto":
        return setting == "on"
    # Invented people and meetings must not be mistaken for real ones by strangers.
    return is_loopback(host) and is_loopback(urlsplit(base_url).hostname or "") and not has_live_provider


def mark_simulated(call: "Call", result: T) -> T:
    """Returns a result with the field `simulated`, and sets the header that says the same."""
    call.headers = [*(call.headers or ()), (b"x-baobab-simulated", b"true")]
    return cast("T", {**result, "simulated": True})


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
