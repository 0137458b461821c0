"""/metrics, which only the operator may read."""

import hmac

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.metrics import CallMetrics
from baobab.http.state_metrics import render_gauges
from baobab.tools.core.registry import Registry

_REFUSAL = "Metrics need the token of BAOBAB_METRICS_TOKEN, or the one in `metrics.token` of the data folder.\n"


def metrics_route(registry: Registry, metrics: CallMetrics, token: str) -> Route:
    async def answer(request: Request) -> Response:
        if not _may_read(request, token):
            return Response(_REFUSAL, 401, {"www-authenticate": "Bearer"})
        return Response(metrics.render_text() + await render_gauges(registry), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", answer, methods=["GET"])


def _may_read(request: Request, token: str) -> bool:
    """Whether a request has the token. Its IP address does not count: behind a proxy every client is on loopback."""
    return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {token}".encode())
