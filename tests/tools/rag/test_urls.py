"""Documents by their addresses: fetched by the guarded client, within bounds, and refused in words."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.clock import FixedClock
from tests.installation import open_installation
from tests.tools.ai.conftest import serve_app
from tests.tools.rag.conftest import ANN, FACTS, RagApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Site:
    """A web site whose pages a test changes."""

    def __init__(self) -> None:
        self.fails = 0
        self.trees = FACTS["trees"]

    def build(self) -> Starlette:
        return Starlette(routes=[Route("/{name}", self._answer)])

    async def _answer(self, request: Request) -> Response:
        elsewhere = {
            "moved": "/trees.html",
            "round": "/round",
            "inside": "http://127.0.0.2:8080/",
            "file": "file:///etc/x",
        }
        name = request.path_params["name"]
        if name in elsewhere:
            return RedirectResponse(elsewhere[name])
        if name == "flaky" and self.fails:
            self.fails -= 1
            return Response(status_code=503)
        others = {
            "large": Response(b"", headers={"content-length": str(10**9)}),
            "picture": Response(b"\x89PNG\r\n\x1a\n....", media_type="text/html"),
            "empty": Response(b"", media_type="text/plain"),
        }
        if name not in ("trees.html", "flaky"):
            return others.get(name, Response(status_code=404))
        return HTMLResponse(f"<html><title>Trees</title><body><h1>Trees</h1><p>{self.trees}</p></body></html>")


@pytest.fixture(scope="module")
def site() -> Site:
    return Site()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(site: Site) -> AsyncIterator[str]:
    async with serve_app(site.build()) as at:
        yield at


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reaching(tmp_path_factory: pytest.TempPathFactory, clock: FixedClock) -> AsyncIterator[Any]:
    folder: Path = tmp_path_factory.mktemp("urls")
    async with open_installation(folder, {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}, clock=clock) as installation:
        yield installation


@pytest_asyncio.fixture(loop_scope="module")
async def reader(reaching: Any, clock: FixedClock) -> RagApp:
    app = RagApp(reaching, clock, await reaching.create_app())
    await app.create()
    return app


@pytest.mark.parametrize("name", ["trees.html", "moved"])
async def test_a_page_is_read_where_it_is(reader: RagApp, address: str, name: str) -> None:
    document_id = await reader.ingest(url=f"{address}/{name}")
    document = await reader.get(document_id)
    assert (document["status"], document["errorMessage"]) == ("ready", None)
    assert (document["url"], document["filename"]) == (f"{address}/{name}", name)
    assert (document["title"], document["mediaType"]) == ("Trees", "text/html")
    assert (await reader.query("water in trunks"))[0]["headings"] == ["Trees"]
    assert await reader.ingest(url=f"{address}/{name}") == document_id


async def test_a_page_is_fetched_again_to_replace_the_document(reader: RagApp, address: str, site: Site) -> None:
    document_id = await reader.ingest(url=f"{address}/trees.html", metadata={"kind": "page"})
    site.trees = "Oaks stand in parks."
    path = f"/facts/documents/{document_id}"
    assert (await reader.request("PUT", path, json={"url": f"{address}/trees.html"})).status_code == 202
    await reader.run_jobs()
    site.trees = FACTS["trees"]
    [chunk] = await reader.query("oaks in parks")
    assert ("Oaks stand" in chunk["text"], chunk["metadata"]) == (True, {"kind": "page"})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "answered 404"),
        ("round", "redirect"),
        ("inside", "address that this server may not call"),
        ("file", "Only http and https"),
        ("large", "more than 20971520 bytes"),
        ("picture", "damaged"),
        ("empty", "empty"),
    ],
)
async def test_a_page_that_cannot_be_a_document_fails_in_words(
    reader: RagApp, address: str, name: str, words: str
) -> None:
    document = await reader.get(await reader.ingest(url=f"{address}/{name}"))
    assert (document["status"], document["chunkCount"]) == ("failed", 0)
    assert words in document["errorMessage"], document["errorMessage"]


async def test_a_page_whose_server_fails_for_a_while_is_asked_again(reader: RagApp, address: str, site: Site) -> None:
    site.fails = 2
    document_id = await reader.ingest(url=f"{address}/flaky")
    for _ in range(2):
        assert (await reader.get(document_id))["status"] == "processing"
        reader.clock.advance(10)
        await reader.run_jobs()
    assert (await reader.get(document_id))["status"] == "ready"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1:8000/", "EGRESS_ADDRESS_REFUSED"),
        ("http://169.254.169.254/latest/meta-data", "EGRESS_ADDRESS_REFUSED"),
        ("http://[::1]/", "EGRESS_ADDRESS_REFUSED"),
        ("http://2130706433/", "EGRESS"),
        ("file:///etc/passwd", "EGRESS_URL_REFUSED"),
        ("https://name:secret@example.com/", "EGRESS_URL_REFUSED"),
        ("not a url", "EGRESS_URL_REFUSED"),
    ],
)
async def test_an_address_that_is_never_called_is_refused_at_once(app: RagApp, url: str, code: str) -> None:
    await app.create()
    refusal = await app.request("POST", "/facts/ingest", json={"url": url})
    assert refusal.status_code == 400, refusal.text
    assert refusal.json()["error"]["code"].startswith(code)
    assert (await app.request("GET", "/facts/documents")).json() == []


async def test_a_name_of_a_private_address_is_refused_when_it_is_fetched(app: RagApp) -> None:
    await app.create()
    document = await app.get(await app.ingest(url="http://localhost:8080/"))
    assert document["status"] == "failed"
    assert "may not call" in document["errorMessage"]


async def test_users_add_no_addresses(reader: RagApp, address: str) -> None:
    refusal = await reader.request("POST", "/facts/ingest", ANN, json={"url": f"{address}/trees.html"})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_FORBIDDEN")
