"""The page at `/`, for people and for programs, and the page for addresses that do not exist."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from baobab.http.answer import reply_to, send_error
from baobab.http.hosts import APP_ID
from baobab.http.html_page import accepts, render_page
from baobab.http.request import Scope
from baobab.http.static_page import build_page_route
from baobab.tools.core.envelopes import STRUCTURED
from baobab.tools.core.errors import RouteNotFound

_HTML = "text/html"
_LOST = """<h1>There is no such page</h1><p><a href="{root}">Baobab</a> · <a href="{root}docs/guides">Guides</a> ·
<a href="{root}docs">API reference</a></p>"""

ASGI = Callable[[Scope, Any, Any], Awaitable[None]]


def home_routes(version: str, base_url: str, missing: ASGI) -> list[Route]:
    async def home(request: Request) -> ASGI:
        # On an app's own host there is no home page: the RestApp has put the app id into the path.
        if request.scope["raw_path"] != b"/":
            return missing
        # People are led to the console, relative to where they are, so that it works below a proxy's prefix.
        if accepts(request, _HTML):
            return RedirectResponse("console", status_code=307, headers={"vary": "accept", "cache-control": "no-cache"})
        return _render_facts(version, base_url)

    return [
        Route("/", home, methods=["GET"], include_in_schema=False),
        build_page_route("/favicon.ico", "favicon.png", "image/png"),
    ]


def missing_page(docs: str) -> ASGI:
    """Returns the application that answers 404: as a page if the client accepts HTML, else as an error in JSON."""

    async def refuse(scope: Scope, receive: Any, respond: Any) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and accepts(Request(scope), _HTML):
            root = "../" * (scope["path"].count("/") - 1) or "./"
            answer = render_page("Not found", _LOST.format(root=root), root=root, status=404)
            await answer(scope, receive, respond)
            return
        await send_error(reply_to(scope, respond), _build_error(scope["path"].rstrip("/")), STRUCTURED, docs, [])

    return refuse


def _build_error(path: str) -> RouteNotFound:
    """Builds the error for a path that no tool has. Where it would be an app itself, which is read in parts, it names
    these.
    """
    before, _, app_id = path.rpartition("/")
    if before != "/v1" or not APP_ID.fullmatch(app_id):
        return RouteNotFound()
    return RouteNotFound(
        "An app has no address of its own; its parts have.",
        remediation=f"GET {path}/config reads its settings, GET {path}/schema its tables, and GET {path}/TABLE the "
        "rows of one. GET /apps lists your apps.",
    )


def _render_facts(version: str, base_url: str) -> Response:
    paths = {
        "mcp": "/mcp",
        "openapi": "/openapi.json",
        "docs": "/docs",
        "guides": "/docs/guides",
        "llms_txt": "/llms.txt",
        "console": "/console",
        "health": "/health/ready",
    }
    facts = {"service": "baobab", "version": version, **{name: base_url + path for name, path in paths.items()}}
    return JSONResponse(facts, headers={"vary": "accept", "cache-control": "no-cache"})
