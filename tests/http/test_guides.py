"""The server's own pages: what it is, its documentation, and what stands where nothing is."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from tests.conftest import Baobab

NAMES = sorted(path.stem for path in (Path(__file__).parents[2] / "docs").glob("*.md"))
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
HERE = "http://127.0.0.1:8000"


class Page(HTMLParser):
    """The links of a page, the addresses within it, and whether it would run anything."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            assert name != "style"
            assert not name.startswith("on")
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" and value:
                self.ids.add(value)


async def fetch_page(baobab: Baobab, path: str) -> Page:
    answer = await baobab.client.get(path, headers=BROWSER)
    assert answer.status_code == 200, path
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src" not in answer.headers["content-security-policy"]
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    page = Page(answer.text)
    assert "script" not in page.tags
    return page


@pytest.mark.parametrize("path", ["/docs/guides", *(f"/docs/guides/{name}" for name in NAMES)])
async def test_every_link_of_a_page_leads_somewhere(baobab: Baobab, path: str) -> None:
    page = await fetch_page(baobab, path)
    pages = {path: page}
    for link in page.links:
        target = urlsplit(urljoin(HERE + path, link))
        if f"{target.scheme}://{target.netloc}" != HERE:
            continue
        if "guides/" in target.path and not target.path.endswith(".md"):
            if target.path not in pages:
                pages[target.path] = await fetch_page(baobab, target.path)
            assert not target.fragment or target.fragment in pages[target.path].ids, link
        else:
            answer = await baobab.client.get(target.path, headers=BROWSER, follow_redirects=True)
            assert answer.status_code == 200, link


async def test_pages_work_below_a_proxy_prefix(baobab: Baobab) -> None:
    for path in ("/docs/guides", "/docs/guides/index"):
        assert not [link for link in (await fetch_page(baobab, path)).links if link.startswith("/")]


async def test_tables_and_code_of_a_page_are_drawn(baobab: Baobab) -> None:
    page = await fetch_page(baobab, "/docs/guides/graph-spec")
    assert {"table", "pre", "h2", "h3"} <= page.tags
    assert {"limits", "templates", "nodes"} <= page.ids


@pytest.mark.parametrize(
    ("path", "accept"),
    [("/docs/guides/kv.md", "*/*"), ("/docs/guides/kv", "text/markdown"), ("/docs/guides", "text/markdown")],
)
async def test_programs_get_markdown(baobab: Baobab, path: str, accept: str) -> None:
    answer = await baobab.client.get(path, headers={"accept": accept})
    assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "accept" in answer.headers["vary"]
    assert answer.text.startswith("# ")
    for target in re.findall(r"\]\(([^)#\s]+)", answer.text):
        link = urlsplit(urljoin(HERE + path, target))
        assert (await baobab.client.get(link.path)).status_code == 200, target


async def test_a_program_that_asks_what_this_is_gets_json(baobab: Baobab) -> None:
    answer = await baobab.client.get("/", headers={"accept": "*/*"})
    assert answer.status_code == 200
    body = answer.json()
    assert body["service"] == "baobab"
    assert {"mcp", "openapi", "docs", "guides", "llms_txt", "version"} <= body.keys()
    for name in ("openapi", "docs", "guides", "llms_txt"):
        assert (await baobab.client.get(urlsplit(body[name]).path)).status_code == 200


@pytest.mark.parametrize("path", ["/nothing", "/docs/guides/nothing", "/docs/guides/..%2f..%2fREADME", "/a/b/c"])
async def test_a_browser_is_shown_a_page_where_nothing_is_and_a_program_is_told(baobab: Baobab, path: str) -> None:
    shown_response = await baobab.client.get(path, headers=BROWSER)
    assert shown_response.status_code == 404
    assert "There is no such page" in shown_response.text
    target = urljoin(HERE + path, next(link for link in Page(shown_response.text).links if link.endswith("docs")))
    assert target == f"{HERE}/docs"
    response = await baobab.client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "RESOURCE_NOT_FOUND"


async def test_there_is_an_icon(baobab: Baobab) -> None:
    answer = await baobab.client.get("/favicon.ico")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content.startswith(b"\x89PNG")
