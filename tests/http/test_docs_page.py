"""The API reference at /docs is complete, offline and locked down."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from baobab.http.page_routes import docs_routes

SAMPLE = {
    "openapi": "3.1.0",
    "info": {"title": "Sample", "version": "1"},
    "paths": {"/v1/ping": {"get": {"operationId": "ping", "responses": {"200": {"description": "Pong"}}}}},
}
CONTENT_TYPES = {
    "/docs": "text/html; charset=utf-8",
    "/docs/docs.css": "text/css; charset=utf-8",
    "/docs/docs.js": "text/javascript; charset=utf-8",
    "/docs/ctx.d.ts": "text/plain; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

each_file = pytest.mark.parametrize("path", CONTENT_TYPES)


async def openapi(_: Request) -> Response:
    return JSONResponse(SAMPLE)


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(Starlette(routes=[*docs_routes(), Route("/openapi.json", openapi)])) as client:
        yield client


class Page(HTMLParser):
    """The files that a browser would load, and the scripts and styles within the page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self._within: str | None = None
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        for name, value in attrs:
            if name in ("src", "href") and value:
                self.links.append(value)
            if name == "id" and value:
                self.ids.append(value)
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")

    def handle_data(self, data: str) -> None:
        if self._within in ("script", "style") and data.strip():
            self.inline.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within:
            self._within = None


@each_file
def test_each_file_is_served_with_its_type_and_the_whole_policy(client: TestClient, path: str) -> None:
    answer = client.get(path)

    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPES[path]
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"


@each_file
@pytest.mark.parametrize("form", ["{}", "W/{}", '"another", {}', "*"])
def test_a_copy_that_is_still_good_costs_no_body(client: TestClient, path: str, form: str) -> None:
    etag = client.get(path).headers["etag"]

    answer = client.get(path, headers={"If-None-Match": form.format(etag)})

    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert answer.headers["content-security-policy"] == POLICY


@each_file
def test_an_outdated_copy_is_replaced(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"If-None-Match": '"outdated"'})

    assert answer.status_code == 200
    assert answer.content


@each_file
def test_files_are_read_only(client: TestClient, path: str) -> None:
    assert client.head(path).status_code == 200
    assert client.post(path).status_code == 405


@pytest.mark.parametrize("path", ["/docs/docs.html", "/docs/../page_routes.py", "/docs/%2e%2e%2fpage_routes.py"])
def test_nothing_else_in_the_folder_can_be_reached(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_everything_the_page_refers_to_is_served_beside_it(client: TestClient) -> None:
    links = [link for link in Page(client.get("/docs").text).links if not link.startswith(("data:", "#"))]

    assert {"docs/docs.css", "docs/docs.js", "openapi.json"} <= set(links)
    for link in links:
        assert client.get(urljoin("http://testserver/docs", link)).status_code == 200


def test_the_page_works_below_a_proxy_prefix(client: TestClient) -> None:
    page = Page(client.get("/docs").text)

    assert not [link for link in page.links if link.startswith("/")]
    assert 'new URL("openapi.json", document.baseURI)' in client.get("/docs/docs.js").text


@each_file
def test_no_file_names_an_address_elsewhere(client: TestClient, path: str) -> None:
    text = client.get(path).text

    assert not re.findall(r"(?:https?|wss?):/?/[\w\[]", text)
    assert not re.findall(r"""["'(]//\w""", text)
    assert "@import" not in text


def test_the_page_holds_nothing_the_policy_would_block(client: TestClient) -> None:
    assert Page(client.get("/docs").text).inline == []


def test_the_script_cannot_turn_data_into_markup_or_code(client: TestClient) -> None:
    script = client.get("/docs/docs.js").text

    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|\beval\b|new Function|\.style\b"
    assert re.findall(sinks, script) == []


def test_the_script_has_nowhere_to_keep_a_key(client: TestClient) -> None:
    script = client.get("/docs/docs.js").text

    assert re.findall(r"localStorage|sessionStorage|indexedDB|document\.cookie|caches\.|window\.name", script) == []
    assert 'credentials: "omit"' in script


def test_the_script_finds_every_element_it_asks_for(client: TestClient) -> None:
    script = client.get("/docs/docs.js").text

    used_ids = set(re.findall(r'byId\("([\w-]+)"\)', script))
    defined_ids = set(re.findall(r'\bid: "([\w-]+)"', script)) | set(Page(client.get("/docs").text).ids)
    assert used_ids
    assert used_ids <= defined_ids


def test_the_page_stays_small(client: TestClient) -> None:
    # The types of functions are for editors: no page loads them.
    paths = CONTENT_TYPES.keys() - {"/docs/ctx.d.ts"}
    assert sum(len(client.get(path).content) for path in paths) < 40 * 1024
