"""/metrics: for the operator alone."""

import hmac

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.hosts import is_loopback
from baobab.http.metrics import CallMetrics


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
