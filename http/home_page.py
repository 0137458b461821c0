"""The home page at `/`, for people and for programs, and the page for addresses that do not exist."""

from collections.abc import Awaitable, Callable
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from baobab.http.answer import reply_to, send_error
from baobab.http.html_page import accepts, render_page
from baobab.http.request import Scope
from baobab.http.static_page import build_page_route
from baobab.mcp_server.client_setup import render_client_lines
from baobab.tools.core.envelopes import STRUCTURED
from baobab.tools.core.errors import RouteNotFound

_HTML = "text/html"
_LOGO = """<svg class="logo" viewBox="0 0 32 32" role="img" aria-label="A baobab">
<path class="trunk" d="M10.5 30c2.6-4.6 3-10.5.6-18h9.8c-2.4 7.5-2 13.4.6 18z"/>
<ellipse cx="8.5" cy="11" rx="6.5" ry="4.2"/>
<ellipse cx="16" cy="7" rx="7.5" ry="4.8"/>
<ellipse cx="23.5" cy="11" rx="6.5" ry="4.2"/></svg>"""
_HOME = """{logo}<h1>Baobab</h1>
<p>This server is a backend for AI agents and the apps around them: key-value store, models, agents, approvals. Programs
reach it over MCP and REST.</p>
<ul><li><a href="docs/guides">Guides</a>: how things work, with examples</li>
<li><a href="docs">API reference</a>: every operation, which you can try out</li>
<li><a href="approvals/">Approvals</a>: calls that wait for a person's decision</li>
<li><a href="programs/">Connected programs</a>: programs that act for you, and how to revoke their access</li>
<li><a href="llms.txt">llms.txt</a>: this overview for language models</li></ul>
<h2>Connect a client</h2>
<p>MCP clients reach this server at <code>{mcp}</code>. A client that can sign you in needs only this
address. With an API key, one line is enough:</p>
{clients}"""
_LOST = """<h1>There is no such page</h1><p><a href="{root}">Baobab</a> · <a href="{root}docs/guides">Guides</a> ·
<a href="{root}docs">API reference</a></p>"""

ASGI = Callable[[Scope, Any, Any], Awaitable[None]]


def home_routes(version: str, base_url: str, missing: ASGI) -> list[Route]:
    async def home(request: Request) -> ASGI:
        # On an app's own host there is no home page: the RestApp has put the app id into the path.
        if request.scope["raw_path"] != b"/":
            return missing
        return _render_home(base_url) if accepts(request, _HTML) else _render_facts(version, base_url)

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
        await send_error(reply_to(scope, respond), RouteNotFound(), STRUCTURED, docs, [])

    return refuse


def _render_home(base_url: str) -> Response:
    clients = "".join(
        f"<p>{escape(name)}</p><pre><code>{escape(line)}</code></pre>"
        for name, line in render_client_lines(f"{base_url}/mcp", "YOUR_KEY").items()
    )
    return render_page("Home", _HOME.format(logo=_LOGO, mcp=escape(f"{base_url}/mcp"), clients=clients), root="")


def _render_facts(version: str, base_url: str) -> Response:
    paths = {
        "mcp": "/mcp",
        "openapi": "/openapi.json",
        "docs": "/docs",
        "guides": "/docs/guides",
        "llms_txt": "/llms.txt",
        "approvals": "/approvals",
        "health": "/health/ready",
    }
    facts = {"service": "baobab", "version": version, **{name: base_url + path for name, path in paths.items()}}
    return JSONResponse(facts, headers={"vary": "accept", "cache-control": "no-cache"})
