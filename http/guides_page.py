"""/docs/guides: the documentation, as HTML for people and as Markdown for programs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.html_page import accepts, build_page, build_text
from baobab.http.public_document import PublicDocument
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

    async def guide(request: Request) -> ASGI:
        """Answers a guide. The first rendering of a long page takes a good part of a second, so it runs in a thread."""
        name = request.path_params["name"]
        guide_name = name.removesuffix(".md")
        if guide_name not in guides():
            return missing
        is_text = name.endswith(".md") or accepts(request, _MARKDOWN)
        document = await asyncio.to_thread(_build_guide, guide_name, is_text=is_text)
        return await document.answer(request)

    return [
        build_page_route("/docs/guide.css", "guide.css", CSS),
        Route("/docs/guides", _list_guides, methods=["GET"], include_in_schema=False),
        Route("/docs/guides/{name}", guide, methods=["GET"], include_in_schema=False),
    ]


async def _list_guides(request: Request) -> Response:
    return await _build_list(is_text=accepts(request, _MARKDOWN)).answer(request)


@cache
def _build_list(*, is_text: bool) -> PublicDocument:
    if is_text:
        lines = [f"- [{guide.title}](guides/{guide.name}.md): {guide.description}" for guide in guides().values()]
        return build_text("\n".join(["# Guides", "", *lines, ""]), _MARKDOWN)
    entries = "".join(
        f'<li><a href="guides/{guide.name}">{escape(guide.title)}</a>: {_render_line(guide.description)}</li>'
        for guide in guides().values()
    )
    breadcrumb = _BREADCRUMB.format(root="../")
    return build_page("Guides", f"{breadcrumb}<h1>Guides</h1><ul>{entries}</ul>", root="../")


@cache
def _build_guide(name: str, *, is_text: bool) -> PublicDocument:
    guide = guides()[name]
    if is_text:
        return build_text(guide.text, _MARKDOWN)
    return build_page(guide.title, _BREADCRUMB.format(root="../../") + _render_guide(name), root="../../")


def _render_line(text: str) -> str:
    """Renders one line of Markdown, such as the description of a guide with names in backticks."""
    return str(MarkdownIt("commonmark", {"html": False}).renderInline(text))


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
