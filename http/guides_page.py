"""/docs/guides: the documentation, as HTML for people and as Markdown for programs."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.html_page import accepts, render_page, text_response
from baobab.http.request import Scope
from baobab.http.static_page import CSS, build_page_route
from baobab.tools.core.guides import Slugs, guides

_MARKDOWN = "text/markdown"
_BREADCRUMB = (
    '<nav class="trail"><a href="{root}">Baobab</a> · <a href="{root}docs/guides">Guides</a> · '
    '<a href="{root}docs">API reference</a></nav>'
)


ASGI = Callable[[Scope, Any, Any], Awaitable[None]]


def guide_routes(missing: ASGI) -> list[Route]:
    """Builds the routes of the guides. missing: the application that answers if there is no such page."""

    def guide(request: Request) -> ASGI:
        """Answers a guide. It is not `async`, so that it runs in a thread: the first rendering of a long page takes a
        good part of a second.
        """
        return _answer_guide(request) or missing

    return [
        build_page_route("/docs/guide.css", "guide.css", CSS),
        Route("/docs/guides", _list_guides, methods=["GET"], include_in_schema=False),
        Route("/docs/guides/{name}", guide, methods=["GET"], include_in_schema=False),
    ]


def _list_guides(request: Request) -> Response:
    if accepts(request, _MARKDOWN):
        lines = [f"- [{guide.title}](guides/{guide.name}.md): {guide.description}" for guide in guides().values()]
        return text_response("\n".join(["# Guides", "", *lines, ""]), _MARKDOWN)
    entries = "".join(
        f'<li><a href="guides/{guide.name}">{escape(guide.title)}</a>: {escape(guide.description)}</li>'
        for guide in guides().values()
    )
    breadcrumb = _BREADCRUMB.format(root="../")
    return render_page("Guides", f"{breadcrumb}<h1>Guides</h1><ul>{entries}</ul>", root="../")


def _answer_guide(request: Request) -> Response | None:
    name = request.path_params["name"]
    guide = guides().get(name.removesuffix(".md"))
    if guide is None:
        return None
    if name.endswith(".md") or accepts(request, _MARKDOWN):
        return text_response(guide.text, _MARKDOWN)
    breadcrumb = _BREADCRUMB.format(root="../../")
    return render_page(guide.title, breadcrumb + _render_guide(guide.name), root="../../")


@cache
def _render_guide(name: str) -> str:
    return str(_build_renderer().render(guides()[name].text))


def _build_renderer() -> MarkdownIt:
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    renderer.core.ruler.push("addresses", lambda state: _rewrite_addresses(state.tokens))
    return renderer


def _rewrite_addresses(tokens: Sequence[Token]) -> None:
    """Gives headings the ids that links use, and links the addresses of this server's pages."""
    slugs = Slugs()
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", slugs.of(tokens[at + 1].content))
        for child in token.children or ():
            target = child.attrGet("href")
            if child.type == "link_open" and isinstance(target, str) and "://" not in target:
                name, _, anchor = target.partition("#")
                child.attrSet("href", name.removesuffix(".md") + (f"#{anchor}" if anchor else ""))
