"""The pages of this server outside the console: documentation and metrics."""

import asyncio
import hmac
import logging
from collections.abc import Iterable
from urllib.parse import quote

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from baobab.http.metrics import CallMetrics
from baobab.http.static_page import CSS, HTML, PLAIN, SCRIPT, build_file_route, build_page_route
from baobab.runtime.functions.source_files import DECLARATIONS
from baobab.storage.sql.database import DatabaseUnavailable
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


def docs_routes() -> list[Route]:
    return [
        build_page_route("/docs", "docs.html", HTML),
        build_page_route("/docs/docs.css", "docs.css", CSS),
        build_page_route("/docs/docs.js", "docs.js", SCRIPT),
        build_file_route("/docs/ctx.d.ts", DECLARATIONS, PLAIN),
    ]


_REFUSAL = "Metrics need the token of BAOBAB_METRICS_TOKEN, or the one in `metrics.token` of the data folder.\n"


def metrics_route(registry: Registry, metrics: CallMetrics, token: str) -> Route:
    async def answer(request: Request) -> Response:
        if not _may_read(request, token):
            return Response(_REFUSAL, 401, {"www-authenticate": "Bearer"})
        return Response(metrics.render_text() + await render_gauges(registry), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", answer, methods=["GET"])


def _may_read(request: Request, token: str) -> bool:
    """Returns whether a request has the token. Its address does not matter: behind a proxy every client is on
    loopback.
    """
    return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {token}".encode())


def moved_routes() -> list[Route]:
    """Builds redirects from old addresses of pages that are in the console now, because older messages link to them."""
    return [
        _redirect_route("/approvals", "console"),
        _redirect_route("/approvals/", "../console"),
        _redirect_route("/approvals/{approval_id}", "../console/approvals/{approval_id}"),
        _redirect_route("/programs", "console/programs"),
        _redirect_route("/programs/", "../console/programs"),
    ]


def _redirect_route(path: str, target: str) -> Route:
    """Redirects to another page by a relative address, so that it works below a proxy's prefix."""

    async def redirect(request: Request) -> Response:
        parts = {name: quote(part, safe="") for name, part in request.path_params.items()}
        return RedirectResponse(target.format(**parts), status_code=307)

    return Route(path, redirect, methods=["GET"], include_in_schema=False)
