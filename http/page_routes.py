"""The pages of this server outside of the console: documentation and metrics."""

import hmac
from urllib.parse import quote

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from baobab.http.metrics import CallMetrics
from baobab.http.state_metrics import render_gauges
from baobab.http.static_page import CSS, HTML, SCRIPT, build_page_route
from baobab.tools.core.registry import Registry


def docs_routes() -> list[Route]:
    return [
        build_page_route("/docs", "docs.html", HTML),
        build_page_route("/docs/docs.css", "docs.css", CSS),
        build_page_route("/docs/docs.js", "docs.js", SCRIPT),
    ]


_REFUSAL = "Metrics need the token of BAOBAB_METRICS_TOKEN, or the one in `metrics.token` of the data folder.\n"


def metrics_route(registry: Registry, metrics: CallMetrics, token: str) -> Route:
    async def answer(request: Request) -> Response:
        if not _may_read(request, token):
            return Response(_REFUSAL, 401, {"www-authenticate": "Bearer"})
        return Response(metrics.render_text() + await render_gauges(registry), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", answer, methods=["GET"])


def _may_read(request: Request, token: str) -> bool:
    """Whether a request has the token. Its address counts for nothing: behind a proxy every client is on loopback."""
    return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {token}".encode())


def moved_routes() -> list[Route]:
    """The addresses of pages that are in the console now: links in older messages lead to them."""
    return [
        _redirect_route("/approvals", "console"),
        _redirect_route("/approvals/", "../console"),
        _redirect_route("/approvals/{approval_id}", "../console/approvals/{approval_id}"),
        _redirect_route("/programs", "console/programs"),
        _redirect_route("/programs/", "../console/programs"),
    ]


def _redirect_route(path: str, target: str) -> Route:
    """Leads to another page, relative to where it is, so that it works below a proxy's prefix."""

    async def redirect(request: Request) -> Response:
        parts = {name: quote(part, safe="") for name, part in request.path_params.items()}
        return RedirectResponse(target.format(**parts), status_code=307)

    return Route(path, redirect, methods=["GET"], include_in_schema=False)
