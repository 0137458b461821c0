"""/docs/guides: the documentation, as HTML for people and as Markdown for programs."""

import asyncio
import re
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
_LISTED = re.compile(r"^- \[[^\]]*\]\(([a-z-]+)\.md\)", re.MULTILINE)
_LEAD = "The backend of your app and its agents: tables, sign-in, files, search and runs, and a person who is asked."
_BAR = (
    '<a class="skip" href="#main">Skip to the content</a><header class="site"><nav aria-label="Baobab">'
    '<a class="brand" href="{root}">Baobab</a><a href="{root}docs/guides">Guides</a>'
    '<a href="{root}docs">API reference</a><a href="{root}docs/errors">Errors</a><a href="{root}console">Console</a>'
    "</nav></header>"
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
    groups = "".join(
        f"<h2>{escape(heading)}</h2><ul>{''.join(_list_guide(name) for name in names)}</ul>"
        for heading, names in _list_groups().items()
    )
    body = f'<h1>Guides</h1><p class="lead">{_LEAD}</p>{groups}'
    return build_page("Guides", body, root="../", before=_render_side("guides/", "../"), after="")


def _list_guide(name: str) -> str:
    guide = guides()[name]
    return f'<li><a href="guides/{name}">{escape(guide.title)}</a>: {_render_line(guide.description)}</li>'


@cache
def _build_guide(name: str, *, is_text: bool) -> PublicDocument:
    guide = guides()[name]
    if is_text:
        return build_text(guide.text, _MARKDOWN)
    ordered_names = [one for names in _list_groups().values() for one in names]
    at = ordered_names.index(name) if name in ordered_names else None
    neighbours = "" if at is None else _render_neighbours(ordered_names, at)
    # A long section has several parts: those after the first have a tilde.
    sections = [part for part in guide.parts if part.level == 2 and "~" not in part.slug]
    contents = "".join(f'<li><a href="#{part.slug}">{_render_line(part.title)}</a></li>' for part in sections)
    after = (
        f'<aside class="contents"><nav aria-label="On this page"><h2>On this page</h2><ul>{contents}</ul></nav>'
        f'<p><a href="{name}.md">As Markdown</a></p></aside>'
    )
    body = _render_guide(name) + neighbours
    return build_page(guide.title, body, root="../../", before=_render_side("", "../../", name), after=after)


@cache
def _list_groups() -> dict[str, list[str]]:
    """Returns the names of the guides by the headings of the page that lists them, `docs/index.md`."""
    groups: dict[str, list[str]] = {}
    listed_names: set[str] = set()
    for part in guides()["index"].parts:
        if part.level == 2:
            groups[part.title] = [
                name for name in _LISTED.findall(part.text) if name in guides() and name not in listed_names
            ]
            listed_names.update(groups[part.title])
    if others := [name for name in guides() if name not in listed_names and name != "index"]:
        groups["More"] = others
    return {heading: names for heading, names in groups.items() if names}


def _render_side(base: str, root: str, present: str = "") -> str:
    """Renders the bar on top and the groups at the side. base: leads to the guides, root: to the server's root."""
    groups = "".join(
        f"<h2>{escape(heading)}</h2><ul>{''.join(_link_guide(name, base, present) for name in names)}</ul>"
        for heading, names in _list_groups().items()
    )
    return _BAR.format(root=root) + f'<nav class="groups" aria-label="Guides">{groups}</nav>'


def _link_guide(name: str, base: str, present: str) -> str:
    current = ' aria-current="page"' if name == present else ""
    return f'<li><a href="{base}{name}"{current}>{escape(guides()[name].title)}</a></li>'


def _render_neighbours(ordered_names: Sequence[str], at: int) -> str:
    links = [
        f'<a href="{ordered_names[place]}"><small>{word}</small> {escape(guides()[ordered_names[place]].title)}</a>'
        for word, place in (("Before", at - 1), ("Next", at + 1))
        if 0 <= place < len(ordered_names)
    ]
    return f'<nav class="neighbours" aria-label="Before and next">{"".join(links)}</nav>'


def _render_line(text: str) -> str:
    """Renders one line of Markdown, such as the description of a guide with names in backticks."""
    return str(MarkdownIt("commonmark", {"html": False}).renderInline(text))


def _render_guide(name: str) -> str:
    html = str(_build_renderer().render(guides()[name].text))
    # Code that is wider than the window is moved by the keyboard, too.
    return html.replace("<pre>", '<pre tabindex="0">')


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
