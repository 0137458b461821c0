"""Metrics of calls, in the Prometheus text format. `/metrics` is for the operator alone."""

import hmac
import os
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.hosts import is_loopback
from baobab.tools.call import Door
from baobab.tools.tool import Tool

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class CallMetrics:
    """Counts calls and their seconds; the series of a tool are looked up once."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._calls = Counter(
            "baobab_calls", "Calls of tools.", ("tool", "door", "outcome"), registry=self.registry
        )
        self._seconds = Histogram(
            "baobab_call_seconds", "How long calls took.", ("tool", "door"), buckets=_BUCKETS, registry=self.registry
        )
        self._count: dict[tuple[str, str, str], Callable[[], None]] = {}
        self._observe: dict[tuple[str, str], Callable[[float], None]] = {}

    def __call__(self, tool: Tool, door: Door, outcome: str, seconds: float) -> None:
        counted = (tool.name, door.name, outcome)
        count = self._count.get(counted)
        if count is None:
            count = self._count[counted] = self._calls.labels(*counted).inc
        count()
        timed = (tool.name, door.name)
        observe = self._observe.get(timed)
        if observe is None:
            observe = self._observe[timed] = self._seconds.labels(*timed).observe
        observe(seconds)

    def text(self) -> bytes:
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self.registry)
        everybody = CollectorRegistry()
        multiprocess.MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        return generate_latest(everybody)


def metrics_route(metrics: CallMetrics, token: str) -> Route:
    async def answer(request: Request) -> Response:
        if not _may_read(request, token):
            return Response("Metrics need the token of BAOBAB_METRICS_TOKEN.\n", 401, {"www-authenticate": "Bearer"})
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", answer, methods=["GET"])


def _may_read(request: Request, token: str) -> bool:
    if token:
        return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {token}".encode())
    # A proxy on this machine would make the whole world look local; it passes the public name as Host, though.
    client = request.client.host if request.client else ""
    return is_loopback(client) and is_loopback(request.url.hostname or "")
