"""Accounts are connected at the services themselves, each with its habits, and a token is renewed once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baobab.runtime.integrations.opening import Integrations
from baobab.runtime.integrations.own_oauth import OwnOAuth
from baobab.runtime.integrations.provider import Client
from tests.tools.integrations.conftest import BACK, Shop, open_shop, read_query
from tests.tools.integrations.fakes import HANG_UP, Detour, Fake, challenge_of, start_fake

CLIENTS = dict.fromkeys(("gmail", "slack", "notion", "github"), Client("client", "secret"))
MAIL = {"recipient_email": "grace@kapok.example", "subject": "Offer", "body": "Twenty seats are 400 EUR."}


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with start_fake() as fake:
        yield fake


@pytest.fixture
async def shop(tmp_path: Path, fake: Fake) -> AsyncIterator[Shop]:
    async with open_shop(tmp_path / "data") as shop:
        detour = Detour(fake)
        provider = OwnOAuth(detour, shop.clock, CLIENTS)
        parts: Any = shop.baobab.application.services.parts
        parts[Integrations] = Integrations((provider,), {provider.name: provider})
        yield shop
        await detour.close()


async def connect(shop: Shop, toolkit: str = "gmail", code: str = "good") -> tuple[dict[str, str], dict[str, str]]:
    """What the service was sent, and what the app was told."""
    browser = shop.open_browser()
    consent = await browser.agree(await shop.begin(toolkit))
    query = read_query(consent)
    path = f"/v1/{shop.app}/integrations/callback?code={code}&state={query['state']}"
    return query, read_query((await browser.open(path)).headers["location"])


async def test_google_is_asked_for_a_lasting_grant_with_proof_of_possession(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    query, answer = await connect(shop)
    assert answer == {"status": "connected", "toolkit": "gmail"}
    assert (query["access_type"], query["prompt"], query["code_challenge_method"]) == ("offline", "consent", "S256")
    (request,) = fake.list_requests("/token")
    assert challenge_of(request["body"]["code_verifier"]) == query["code_challenge"]
    assert request["body"]["redirect_uri"].endswith(f"/v1/{shop.app}/integrations/callback")
    (connection,) = await shop.list_connections()
    assert connection["account_name"] == "ada@shop.example"
    # What was given is less than what was asked for.
    assert connection["scopes"] == ["https://www.googleapis.com/auth/gmail.readonly"]


async def test_slack_gives_the_token_of_the_person(shop: Shop, fake: Fake) -> None:
    await shop.configure("slack")
    query, answer = await connect(shop, "slack")
    assert (answer["status"], "scope" in query, "code_challenge" in query) == ("connected", False, False)
    assert query["user_scope"].startswith("channels:read,channels:history")
    (connection,) = await shop.list_connections()
    assert (connection["account_name"], connection["scopes"]) == ("ada at Shop", ["chat:write", "channels:read"])
    await shop.execute("SLACK_SEND_MESSAGE", {"channel": "C1", "text": "Hello"})
    fake.refusals["/chat.postMessage"] = [(200, {"ok": False, "error": "channel_not_found"}, {})]
    body: dict[str, Any] = {"toolName": "SLACK_SEND_MESSAGE", "params": {"channel": "C9", "text": "Hello"}}
    error = (await shop.ask("POST", "/execute", shop.user, 422, **body))["error"]
    assert error["message"] == "channel_not_found"


async def test_notion_and_github_have_their_own_ways(shop: Shop, fake: Fake) -> None:
    await shop.configure("notion", "github")
    query, answer = await connect(shop, "notion")
    assert (answer["status"], query["owner"], "scope" in query) == ("connected", "user", False)
    assert (await connect(shop, "github", "bad"))[1]["message"] == "connection_failed"
    assert (await connect(shop, "github"))[1]["status"] == "connected"
    names = sorted(str(each["account_name"]) for each in await shop.list_connections())
    assert names == ["Shop notes", "ada"]
    page = {"page_id": "p1", "text": "Good."}
    await shop.execute("NOTION_CREATE_COMMENT", page)
    (request,) = fake.list_requests("/comments")
    assert request["headers"]["notion-version"] == "2022-06-28"
    assert request["body"]["rich_text"][0]["text"]["content"] == "Good."
    # Tokens of GitHub do not end, and nothing is renewed.
    shop.clock.advance(10**7)
    place = {"owner": "ada", "repo": "garden", "issue_number": 1, "body": "Soon."}
    await shop.execute("GITHUB_CREATE_AN_ISSUE_COMMENT", place)
    assert fake.refreshes == 0


async def test_mail_is_read_and_sent_as_gmail_takes_it(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop)
    messages = (await shop.execute("GMAIL_FETCH_EMAILS", {"max_results": 2}))["messages"]
    assert [each["subject"] for each in messages] == ["Mail m1", "Mail m2"]
    message = await shop.execute("GMAIL_FETCH_MESSAGE_BY_MESSAGE_ID", {"message_id": "m1"})
    assert message["messageText"] == "Text of m1"
    await shop.execute("GMAIL_SEND_EMAIL", {**MAIL, "subject": "Offer\nBcc: eve@mail.example"})
    (request,) = fake.list_requests("/messages/send")
    assert set(request["body"]) == {"raw"}


async def test_many_calls_at_once_renew_a_token_once(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop)
    for _ in range(3):
        shop.clock.advance(3500)
        before = fake.refreshes
        await asyncio.gather(*(shop.execute("GMAIL_LIST_LABELS") for _ in range(5)))
        assert fake.refreshes == before + 1
    assert [each["status"] for each in await shop.list_connections()] == ["active"]


async def test_a_grant_that_is_not_renewed_has_expired_and_is_given_again(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop)
    shop.clock.advance(3600)
    fake.refusals["/token"] = [(500, {}, {}), (400, {"error": "invalid_grant"}, {})]
    body: dict[str, Any] = {"toolName": "GMAIL_LIST_LABELS"}
    error = (await shop.ask("POST", "/execute", shop.user, 502, **body))["error"]
    assert error["code"] == "INTEGRATIONS_EXECUTION_FAILED"
    error = (await shop.ask("POST", "/execute", shop.user, 401, **body))["error"]
    assert error["code"] == "INTEGRATIONS_CONNECTION_EXPIRED"
    (connection,) = await shop.list_connections()
    assert (connection["status"], "invalid_grant" in connection["status_reason"]) == ("expired", True)
    browser = shop.open_browser()
    query = read_query(await browser.agree(error["details"]["connect_url"]))
    await browser.open(f"/v1/{shop.app}/integrations/callback?code=good&state={query['state']}")
    assert [each["status"] for each in await shop.list_connections()] == ["active"]
    await shop.execute("GMAIL_LIST_LABELS")


async def test_what_nobody_can_know_is_said_and_not_done_twice(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop)
    fake.refusals["/messages/send"] = [(HANG_UP, None, {})]
    body: dict[str, Any] = {"toolName": "GMAIL_SEND_EMAIL", "params": MAIL, "idempotencyKey": "offer-1"}
    for _ in range(2):
        error = (await shop.ask("POST", "/execute", shop.user, 502, **body))["error"]
        assert (error["code"], error["details"]["outcome"]) == ("INTEGRATIONS_EXECUTION_FAILED", "unknown")
    assert len(fake.list_requests("/messages/send")) == 1


async def test_a_limit_of_the_service_says_when_to_come_back(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop)
    refusal = {"error": {"message": "Quota exceeded"}}
    fake.refusals["/labels"] = [(429, refusal, {"Retry-After": "17"}), (403, refusal, {})]
    body: dict[str, Any] = {"toolName": "GMAIL_LIST_LABELS"}
    answer = await shop.baobab.client.post(f"/v1/{shop.app}/integrations/execute", json=body, headers=shop.user)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "17")
    assert (await shop.ask("POST", "/execute", shop.user, 422, **body))["error"]["message"] == "403: Quota exceeded"


async def test_disconnecting_takes_the_grant_back_at_the_service(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop)
    (connection,) = await shop.list_connections()
    await shop.ask("DELETE", f"/connections/{connection['id']}", shop.user, 204)
    (request,) = fake.list_requests("/revoke")
    assert request["body"] == {"token": "refresh-0"}


async def test_an_app_brings_its_own_client_where_the_operator_has_none(shop: Shop) -> None:
    error = (await shop.ask("POST", "/configure", status=400, toolkit="hubspot"))["error"]
    assert error["code"] == "INTEGRATIONS_BYO_CREDENTIALS_REQUIRED"
    credentials: dict[str, Any] = {"client_id": "shop-client", "client_secret": "first"}
    await shop.configure("hubspot", oauth_credentials=credentials)
    answer = await shop.ask("POST", "/connect", shop.user, 200, toolkit="hubspot", redirectUrl=BACK)
    assert read_query(await shop.open_browser().agree(answer["authUrl"]))["client_id"] == "shop-client"
    other_client = {**credentials, "client_secret": "second"}
    await shop.ask("PATCH", "/configure/hubspot/credentials", status=200, oauth_credentials=other_client)
    assert "second" not in str(await shop.ask("GET", "/config", status=200))
