"""Gauges: the state of a domain for operators, computed at each request for `/metrics`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from baobab.tools.core.services import Services

Reading = Mapping[tuple[str, ...], float]
"""A number for each combination of the labels' values; `{(): 1.0}` where there are no labels."""

ReadGauge = Callable[[Services], Awaitable[Reading]]


@dataclass(frozen=True, slots=True)
class Gauge:
    """One series of `/metrics`. Labels never name tenants: the number of series must not grow with them."""

    name: str
    labels: tuple[str, ...]
    description: str
    read: ReadGauge
