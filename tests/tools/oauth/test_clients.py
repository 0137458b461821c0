"""Clients: who may register, where they may be sent back to, and documents at an address."""

import asyncio
import json
from collections import Counter
from datetime import timedelta
from typing import Any, Self

import pytest

from baobab.runtime.net.egress import EgressResponse, EgressTimeout
from baobab.runtime.oauth.errors import DocumentRefused, RedirectRefused, UnknownClient
from baobab.tools.core.errors import BadRequest, RateLimited
from tests import jobs
from tests.servers import TIMEOUT_SECONDS
from tests.tools.conftest import ToolHarness
from tests.tools.oauth.conftest import REDIRECT, Flow

DOCUMENT = "https://client.example/oauth/client.json"
DESCRIBED = {"client_id": DOCUMENT, "client_name": "Example", "redirect_uris": [REDIRECT]}


class FakeHttpClient:
    """The network: answers every request alike, and counts them."""

    def __init__(self, body: Any = DESCRIBED, status: int = 200, kind: str = "application/json") -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.kind = status, kind
        self.fails: Exception | None = None
        self.requests: list[dict[str, Any]] = []

    async def request(self, method: str, url: str, **options: Any) -> EgressResponse:
        self.requests.append({"method": method, "url": url, **options})
        if self.fails:
            raise self.fails
        return EgressResponse(self.status, {"Content-Type": self.kind}, self.body, url)

    def install(self, harness: ToolHarness) -> Self:
        object.__setattr__(harness.services, "http_client", self)
        return self


@pytest.mark.parametrize(
    "uri",
    [
        "https://app.example/callback",
        "https://app.example:8443/callback?from=here",
        "http://localhost:3000/callback",
        "http://127.0.0.1/callback",
        "http://[::1]:9/callback",
        "cursor://anysphere.cursor-deeplink/mcp/oauth",
        "vscode://vscode.github-authentication/did-authenticate",
        "com.example.app:/callback",
    ],
)
async def test_a_client_may_be_sent_back_to_https_to_this_machine_and_to_a_program(flow: Flow, uri: str) -> None:
    client = await flow.register_client("Agent", uri)
    assert client["redirect_uris"] == [uri]
    assert await flow.call_endpoint("oauth_client", client_id=client["client_id"]) == client


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        "file:///etc/passwd",
        "http://app.example/callback",
        "http://localhost.example/callback",
        "http://127.0.0.1.example/callback",
        "http://localhost@app.example/callback",
        "https://user@app.example/callback",
        "https://app.example/callback#fragment",
        "https:///callback",
        "https://app.example:99999/callback",
        "https://app.example/call back",
        "https://app.example\\@evil.example/",
        "ftp://app.example/callback",
        "//app.example/callback",
        "callback",
        "https://app.example/" + "a" * 1990,
    ],
)
async def test_a_client_may_be_sent_back_nowhere_else(flow: Flow, uri: str) -> None:
    with pytest.raises((RedirectRefused, BadRequest)):
        await flow.register_client("Agent", uri)


async def test_a_client_names_between_one_and_ten_addresses(flow: Flow) -> None:
    for uris in ([], [f"http://localhost/{n}" for n in range(11)]):
        with pytest.raises(BadRequest):
            await flow.call_endpoint("oauth_register", redirect_uris=uris)


async def test_a_name_holds_nothing_that_does_not_show(flow: Flow) -> None:
    assert (await flow.register_client("Claude\u202e\u200b <b>\n"))["name"] == "Claude <b>"
    assert (await flow.register_client("\u202e"))["name"] == "Unnamed client"


async def test_an_address_registers_at_most_twenty_clients_in_an_hour(flow: Flow) -> None:
    for _ in range(20):
        await flow.call_endpoint("oauth_register", redirect_uris=[REDIRECT], ip="192.0.2.1")
    with pytest.raises(RateLimited):
        await flow.call_endpoint("oauth_register", redirect_uris=[REDIRECT], ip="192.0.2.1")
    flow.harness.clock.advance(3601)
    await flow.call_endpoint("oauth_register", redirect_uris=[REDIRECT], ip="192.0.2.1")


async def test_a_client_that_nobody_decided_about_is_forgotten_after_thirty_days(
    harness: ToolHarness, flow: Flow
) -> None:
    ada = await harness.sign_up("ada@example.com")
    unused_client, used_client = await flow.register_client("Unused"), await flow.register_client("Used")
    await flow.obtain_code(used_client, ada)
    harness.clock.advance(timedelta(days=29).total_seconds())
    await jobs.run_job(harness, "oauth_forget")
    await flow.call_endpoint("oauth_client", client_id=unused_client["client_id"])
    harness.clock.advance(timedelta(days=2).total_seconds())
    await jobs.run_job(harness, "oauth_forget")
    with pytest.raises(UnknownClient):
        await flow.call_endpoint("oauth_client", client_id=unused_client["client_id"])
    await flow.call_endpoint("oauth_client", client_id=used_client["client_id"])


async def test_a_document_is_fetched_once_in_ten_minutes(harness: ToolHarness, flow: Flow) -> None:
    outgoing = FakeHttpClient().install(harness)
    for _ in range(3):
        client = await flow.call_endpoint("oauth_client", client_id=DOCUMENT)
    assert client == {"client_id": DOCUMENT, "name": "Example", "redirect_uris": [REDIRECT], "document": True}
    assert len(outgoing.requests) == 1
    assert outgoing.requests[0]["https_only"]
    assert outgoing.requests[0]["max_bytes"] <= 10 * 1024
    harness.clock.advance(601)
    await flow.call_endpoint("oauth_client", client_id=DOCUMENT)
    assert len(outgoing.requests) == 2


async def test_a_document_that_cannot_be_had_is_not_asked_for_again_at_once(harness: ToolHarness, flow: Flow) -> None:
    outgoing = FakeHttpClient().install(harness)
    outgoing.fails = EgressTimeout()
    for _ in range(3):
        with pytest.raises(DocumentRefused):
            await flow.call_endpoint("oauth_client", client_id=DOCUMENT)
    assert len(outgoing.requests) == 1
    harness.clock.advance(61)
    outgoing.fails = None
    assert (await flow.call_endpoint("oauth_client", client_id=DOCUMENT))["name"] == "Example"


class SlowHttpClient(FakeHttpClient):
    """The network, on which documents come when they are let go, and describe the client that was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.coming = asyncio.Event()
        self.under_way: Counter[str] = Counter()
        self.change = asyncio.Condition()

    async def request(self, method: str, url: str, **options: Any) -> EgressResponse:
        async with self.change:
            self.under_way[url] += 1
            self.change.notify_all()
        await self.coming.wait()
        self.under_way[url] -= 1
        self.body = json.dumps({**DESCRIBED, "client_id": url}).encode()
        return await super().request(method, url, **options)

    async def wait_for_fetches(self, *urls: str) -> None:
        """Return when exactly these are being fetched."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self.change:
            await self.change.wait_for(lambda: self.under_way == Counter(urls))


def document_url(number: int, host: str = "client.example") -> str:
    return f"https://{host}/clients/{number}.json"


async def test_ten_documents_a_minute_are_fetched_for_an_address_and_kept_ones_cost_nothing(
    harness: ToolHarness, flow: Flow
) -> None:
    outgoing = SlowHttpClient().install(harness)
    outgoing.coming.set()
    for number in (*range(10), *range(10)):
        await flow.call_endpoint("oauth_client", client_id=document_url(number), ip="192.0.2.1")
    with pytest.raises(RateLimited):
        await flow.call_endpoint("oauth_client", client_id=document_url(10), ip="192.0.2.1")
    assert len(outgoing.requests) == 10
    await flow.call_endpoint("oauth_client", client_id=document_url(10), ip="192.0.2.2")
    await flow.call_endpoint("oauth_client", client_id=document_url(10), ip="192.0.2.1")
    harness.clock.advance(61)
    await flow.call_endpoint("oauth_client", client_id=document_url(11), ip="192.0.2.1")
    assert len(outgoing.requests) == 12


async def test_slow_documents_of_one_address_and_of_one_site_hold_nobody_elses_place(
    harness: ToolHarness, flow: Flow
) -> None:
    outgoing = SlowHttpClient().install(harness)

    def ask(url: str, ip: str) -> asyncio.Task[Any]:
        return asyncio.create_task(flow.call_endpoint("oauth_client", client_id=url, ip=ip))

    greedy = [ask(document_url(number, f"host-{number}.example"), "192.0.2.1") for number in range(4)]
    await outgoing.wait_for_fetches(document_url(0, "host-0.example"))
    with pytest.raises(DocumentRefused):
        await ask(document_url(9), "192.0.2.1")
    site = [ask(document_url(number, f"{number}.same.example"), f"198.51.100.{number}") for number in range(3)]
    other = ask(document_url(1, "other.test"), "203.0.113.1")
    first = (document_url(0, "host-0.example"), document_url(0, "0.same.example"), document_url(1, "1.same.example"))
    await outgoing.wait_for_fetches(*first, document_url(1, "other.test"))
    outgoing.coming.set()
    clients = await asyncio.gather(*greedy, *site, other)
    assert all(client["document"] for client in clients)


async def test_no_transaction_is_open_while_a_document_is_fetched(harness: ToolHarness, flow: Flow) -> None:
    class Writing(FakeHttpClient):
        async def request(self, method: str, url: str, **options: Any) -> EgressResponse:
            async with harness.services.database.writing():
                return await super().request(method, url, **options)

    Writing().install(harness)
    assert (await flow.call_endpoint("oauth_client", client_id=DOCUMENT))["document"] is True


@pytest.mark.parametrize(
    "outgoing",
    [
        FakeHttpClient({**DESCRIBED, "client_id": "https://client.example/other"}),
        FakeHttpClient({**DESCRIBED, "redirect_uris": ["javascript:alert(1)"]}),
        FakeHttpClient({**DESCRIBED, "redirect_uris": []}),
        FakeHttpClient({**DESCRIBED, "redirect_uris": "https://client.example/"}),
        FakeHttpClient({**DESCRIBED, "redirect_uris": [1]}),
        FakeHttpClient({**DESCRIBED, "token_endpoint_auth_method": "client_secret_post"}),
        FakeHttpClient({**DESCRIBED, "client_secret": "s"}),
        FakeHttpClient([DESCRIBED]),
        FakeHttpClient(b"{"),
        FakeHttpClient(b"[" * 9000),
        FakeHttpClient(status=404),
        FakeHttpClient(status=302),
        FakeHttpClient(kind="text/html"),
    ],
)
async def test_a_document_that_describes_no_public_client_is_refused(
    harness: ToolHarness, flow: Flow, outgoing: FakeHttpClient
) -> None:
    outgoing.install(harness)
    with pytest.raises(DocumentRefused):
        await flow.call_endpoint("oauth_client", client_id=DOCUMENT)


@pytest.mark.parametrize(
    "address",
    [
        "https://client.example",
        "https://client.example/",
        "https://client.example/a#b",
        "https://user@client.example/a",
        "https://client.example/a/../b",
        "https://client.example/./b",
    ],
)
async def test_what_is_no_address_of_a_document_is_not_asked_for(
    harness: ToolHarness, flow: Flow, address: str
) -> None:
    outgoing = FakeHttpClient().install(harness)
    with pytest.raises(DocumentRefused):
        await flow.call_endpoint("oauth_client", client_id=address)
    assert outgoing.requests == []


async def test_a_document_on_a_private_address_is_not_fetched(flow: Flow) -> None:
    with pytest.raises(DocumentRefused):
        await flow.call_endpoint("oauth_client", client_id="https://127.0.0.1/client.json")
