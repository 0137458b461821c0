"""/metrics: for the operator alone."""

import hmac

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.hosts import is_loopback
from baobab.http.metrics import CallMetrics
from baobab.http.state_metrics import state_text
from baobab.tools.registry import Registry

_FORWARDED = frozenset(
    (
        "cf-connecting-ip",
        "client-ip",
        "fastly-client-ip",
        "forwarded",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-original-forwarded-for",
        "x-original-host",
        "x-real-ip",
    )
)
"""Headers by which proxies say that they pass on what somebody else asks for."""


def metrics_route(registry: Registry, metrics: CallMetrics, token: str) -> Route:
    async def answer(request: Request) -> Response:
        if not _may_read(request, token):
            return Response("Metrics need the token of BAOBAB_METRICS_TOKEN.\n", 401, {"www-authenticate": "Bearer"})
        return Response(metrics.text() + await state_text(registry), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", answer, methods=["GET"])


def _may_read(request: Request, token: str) -> bool:
    if token:
        return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {token}".encode())
    # A proxy on this machine makes the whole world look local. Most say for whom they ask; some pass the public name.
    if any(name in _FORWARDED or name.startswith("x-forwarded-") for name in request.headers):
        return False
    client = request.client.host if request.client else ""
    return is_loopback(client) and is_loopback(request.url.hostname or "")
