"""Accounts and tools of Composio, by its public wire."""

import base64
import hmac
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ADDRESS
from tests.tools.integrations.conftest import Shop, open_shop, read_query
from tests.tools.integrations.fakes import API_KEY, Fake, start_fake

SECRET = "whsec_" + base64.b64encode(b"s" * 24).decode()


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with start_fake() as fake:
        yield fake


@pytest.fixture
async def shop(tmp_path: Path, fake: Fake) -> AsyncIterator[Shop]:
    settings = {
        "BAOBAB_INTEGRATIONS": "composio",
        "BAOBAB_INTEGRATIONS_KEY": API_KEY,
        "BAOBAB_INTEGRATIONS_URL": fake.url,
        "BAOBAB_INTEGRATIONS_WEBHOOK_SECRET": SECRET,
        "BAOBAB_EGRESS_ALLOW": "127.0.0.1",
        "BAOBAB_BASE_URL": ADDRESS,
    }
    async with open_shop(tmp_path / "data", settings) as shop:
        yield shop


async def connect(shop: Shop, fake: Fake, status: str = "ACTIVE") -> dict[str, str]:
    """What the app is told once Composio has sent the browser back."""
    browser = shop.open_browser()
    location = await browser.agree(await shop.begin())
    account = fake.accounts[location.rpartition("/")[2]]
    account.status = status
    answer = await browser.open(f"{account.callback_url}&status=success&connected_account_id={account.id}")
    return read_query(answer.headers["location"])


async def test_an_account_is_connected_and_its_tool_called(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail", scopes=["gmail.readonly"])
    (request,) = fake.list_requests("/auth_configs")
    assert request["body"]["auth_config"] == {
        "type": "use_composio_managed_auth",
        "credentials": {"scopes": "gmail.readonly"},
    }
    assert await connect(shop, fake) == {"status": "connected", "toolkit": "gmail"}
    (connection,) = await shop.list_connections()
    assert (connection["account_name"], connection["simulated"]) == ("ada@shop.example", False)
    assert await shop.execute("GMAIL_FETCH_EMAILS", {"query": "is:unread"}) == {"id": "m1"}
    (request,) = fake.list_requests("/tools/execute/GMAIL_FETCH_EMAILS")
    body = request["body"]
    assert (body["connected_account_id"], body["arguments"]) == ("ca_1", {"query": "is:unread"})
    assert (body["version"], body["user_id"]) == ("20260101_00", f"{shop.app}:{shop.user_id}")


async def test_an_account_of_somebody_else_or_one_that_is_not_active_connects_nothing(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    assert (await connect(shop, fake, "FAILED"))["message"] == "connection_failed"
    browser = shop.open_browser()
    location = await browser.agree(await shop.begin())
    account = fake.accounts[location.rpartition("/")[2]]
    account.status, account.user_id = "ACTIVE", f"{shop.app}:somebody-else"
    answer = await browser.open(account.callback_url)
    assert read_query(answer.headers["location"])["message"] == "connection_failed"
    assert await shop.list_connections() == []


async def test_toolkits_are_searched_and_all_pages_of_tools_are_read(shop: Shop) -> None:
    answer = await shop.ask("GET", "/available?search=tr", status=200)
    assert [each["toolkit"] for each in answer["integrations"]] == ["gmail", "trello"]
    assert "simulated" not in answer
    await shop.configure("gmail")
    tools = (await shop.ask("GET", "/tools?toolkit=gmail", shop.user, 200))["tools"]
    assert [(each["name"], each["read_only"]) for each in tools] == [
        ("GMAIL_FETCH_EMAILS", True),
        ("GMAIL_SEND_EMAIL", False),
        ("GMAIL_LIST_LABELS", True),
    ]
    error = (await shop.ask("POST", "/configure", status=400, toolkit="zoom"))["error"]
    assert error["code"] == "INTEGRATIONS_BYO_CREDENTIALS_REQUIRED"


async def test_soft_failures_and_outages_are_told_apart(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop, fake)
    body: dict[str, Any] = {"toolName": "GMAIL_SEND_EMAIL", "params": {}}
    fake.outcome = {"data": {}, "successful": False, "error": "Recipient address required"}
    error = (await shop.ask("POST", "/execute", shop.user, 422, **body))["error"]
    assert error["message"] == "Recipient address required"
    refusal = {"error": {"message": "Bad gateway", "status": 502}}
    fake.refusals["/execute/GMAIL_SEND_EMAIL"] = [
        (502, refusal, {}),
        (429, refusal, {"Retry-After": "9"}),
        (400, {"error": {"message": "Unknown argument", "suggested_fix": "Leave it out."}}, {}),
    ]
    error = (await shop.ask("POST", "/execute", shop.user, 502, **body))["error"]
    assert error["details"]["outcome"] == "unknown"
    assert (await shop.ask("POST", "/execute", shop.user, 429, **body))["error"][
        "code"
    ] == "INTEGRATIONS_QUOTA_EXCEEDED"
    error = (await shop.ask("POST", "/execute", shop.user, 422, **body))["error"]
    assert error["message"] == "Unknown argument Leave it out."


async def test_a_signed_webhook_marks_an_account_and_an_unsigned_one_is_refused(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop, fake)
    content = {"type": "composio.connected_account.expired", "data": {"id": "ca_1", "status": "EXPIRED"}}
    text = json.dumps(content).encode()
    timestamp = str(int(shop.clock.time()))
    digest = hmac.digest(b"s" * 24, f"msg_1.{timestamp}.".encode() + text, sha256)
    headers = {"webhook-id": "msg_1", "webhook-timestamp": timestamp, "content-type": "application/json"}
    path = "/v1/integrations/_hooks/composio"
    refusal = await shop.baobab.client.post(path, content=text, headers={**headers, "webhook-signature": "v1,AAAA"})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (401, "INTEGRATIONS_HOOK_UNSIGNED")
    headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    for _ in range(2):
        answer = await shop.baobab.client.post(path, content=text, headers=headers)
        assert answer.status_code == 200, answer.text
    assert [each["status"] for each in await shop.list_connections()] == ["expired"]
    error = (await shop.ask("POST", "/execute", shop.user, 401, toolName="GMAIL_LIST_LABELS"))["error"]
    assert error["code"] == "INTEGRATIONS_CONNECTION_EXPIRED"
    shop.clock.advance(600)
    late = await shop.baobab.client.post(path, content=text, headers=headers)
    assert late.status_code == 401


async def test_disconnecting_revokes_and_deletes_the_account(shop: Shop, fake: Fake) -> None:
    await shop.configure("gmail")
    await connect(shop, fake)
    (connection,) = await shop.list_connections()
    await shop.ask("DELETE", f"/connections/{connection['id']}", shop.user, 204)
    assert fake.accounts == {}
    assert len(fake.list_requests("/revoke")) == 1
