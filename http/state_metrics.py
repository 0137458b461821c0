"""Renders the gauges of the registry as Prometheus text."""

import asyncio
import logging
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from baobab.storage.database import DatabaseUnavailable
from baobab.tools.core.gauges import Gauge, Reading
from baobab.tools.core.registry import Registry

_PATIENCE_SECONDS = 3
"""A store that does not answer must not hold up the numbers of the others."""

_log = logging.getLogger(__name__)


class _Families(Collector):
    """Passes readings to the Prometheus library; they are not stored or shared among processes."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


async def render_gauges(registry: Registry) -> bytes:
    """Reads every gauge and renders its value. A gauge that cannot be read in time is left out."""
    readings = await asyncio.gather(*(_read_gauge(registry, gauge) for gauge in registry.gauges))
    families: list[Metric] = []
    for gauge, reading in zip(registry.gauges, readings, strict=True):
        family = GaugeMetricFamily(gauge.name, gauge.description, labels=gauge.labels)
        for labels, number in (reading or {}).items():
            family.add_metric(labels, number)
        families.append(family)
    collectors = CollectorRegistry()
    collectors.register(_Families(families))
    return generate_latest(collectors)


async def _read_gauge(registry: Registry, gauge: Gauge) -> Reading | None:
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await gauge.read(registry.services)
    except (TimeoutError, DatabaseUnavailable, OSError) as exc:
        _log.warning("a gauge could not be read", extra={"gauge": gauge.name, "reason": type(exc).__name__})
        return None
