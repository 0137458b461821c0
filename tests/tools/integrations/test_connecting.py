"""A user connects an account: the link, the service's page, and the way back, also for those who come with others'."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.tools.integrations.conftest import BACK, Shop, read_query


async def test_a_user_connects_an_account_and_the_app_is_told(shop: Shop) -> None:
    await shop.configure("gmail")
    answer = await shop.ask("POST", "/connect", shop.user, 200, toolkit="gmail", redirectUrl=BACK)
    assert answer["simulated"] is True
    browser = shop.open_browser()
    page = await browser.open(answer["authUrl"])
    assert f"{shop.user_id}@users.test" in page.text
    assert "Write drafts and send e-mail" in page.text
    assert await browser.connect(answer["authUrl"]) == {"status": "connected", "toolkit": "gmail"}
    (connection,) = await shop.list_connections()
    assert (connection["id"], connection["status"]) == (answer["connectionRequestId"], "active")
    assert (connection["app_user_id"], connection["toolkit_slug"]) == (shop.user_id, "gmail")
    assert (connection["account_name"], connection["simulated"]) == ("ada@mail.example (invented)", True)
    (entry,) = await shop.read_audit_log("integration.callback")
    assert (entry["actor_type"], entry["actor_id"]) == ("app_user", shop.user_id)
    assert entry["event_data"]["account_name"] == "ada@mail.example (invented)"


async def test_a_link_that_one_browser_has_opened_connects_nothing_in_another(shop: Shop) -> None:
    await shop.configure("gmail")
    address, own, other = await shop.begin(), shop.open_browser(), shop.open_browser()
    consent = read_query(await own.agree(address))
    callback = f"/v1/{shop.app}/integrations/callback?code=ada&state={consent['state']}"
    answer = await other.open(callback)
    assert answer.headers["location"].startswith(f"{BACK}?")
    assert read_query(answer.headers["location"]) == {"status": "error", "message": "invalid_state"}
    again = await other.send(address.partition("?")[0], ticket=read_query(address)["ticket"])
    assert (again.status_code, "opened before" in again.text) == (400, True)
    assert await shop.list_connections() == []
    # The browser that has opened it goes on, once.
    answers = [read_query((await own.open(callback)).headers["location"]) for _ in range(2)]
    assert [each["status"] for each in answers] == ["connected", "error"]
    assert len(await shop.list_connections()) == 1


async def test_what_comes_back_without_a_good_state_connects_nothing(shop: Shop) -> None:
    await shop.configure("gmail")
    other_app = await shop.baobab.create_app()
    browser = shop.open_browser()
    state = read_query(await browser.agree(await shop.begin()))["state"]
    path = f"/v1/{shop.app}/integrations/callback"

    async def come_back(address: str) -> tuple[str, dict[str, str]]:
        location = urlsplit((await browser.open(address)).headers["location"])
        return location.path, dict(parse_qsl(location.query))

    own_page = f"/auth/{shop.app}/connect/done"
    assert await come_back(f"{path}?code=ada") == (own_page, {"status": "error", "message": "missing_state"})
    assert (await come_back(f"{path}?code=ada&state=v1.x.y"))[1]["message"] == "invalid_state"
    elsewhere = await come_back(f"/v1/{other_app}/integrations/callback?code=ada&state={state}")
    assert elsewhere[1] == {"status": "error", "message": "app_mismatch"}
    refusal = await come_back(f"{path}?error=access_denied&state={state}")
    assert refusal == ("/settings", {"status": "error", "message": "connection_failed"})
    assert await shop.list_connections() == []
    failures = await shop.read_audit_log("integration.callback")
    assert "connection_failed" in [each["event_data"]["message"] for each in failures]


async def test_a_link_ends_after_an_hour(shop: Shop) -> None:
    await shop.configure("gmail")
    address = await shop.begin()
    shop.clock.advance(3601)
    assert (await shop.open_browser().open(address)).status_code == 400


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("https://shop.example/back", 200),
        ("http://localhost:5173/back", 200),
        ("https://evil.example/back", 400),
        ("https://shop.example.evil.example/", 400),
        ("https://shop.example@evil.example/", 400),
        ("javascript:alert(1)", 400),
    ],
)
async def test_the_browser_is_sent_to_origins_of_the_app_only(shop: Shop, address: str, status: int) -> None:
    await shop.configure("gmail")
    path = f"/v1/{shop.app}/config/cors"
    origins = {"allowed_origins": ["https://shop.example"]}
    await shop.baobab.client.patch(path, json=origins, headers=shop.baobab.owner)
    await shop.ask("POST", "/connect", shop.user, status, toolkit="gmail", redirectUrl=address)


async def test_whoever_runs_the_app_says_for_which_user(shop: Shop) -> None:
    await shop.configure("gmail")
    missing = await shop.ask("POST", "/connect", status=400, toolkit="gmail")
    assert missing["error"]["code"] == "VALIDATION_MISSING_FIELD"
    nobody = "00000000-0000-4000-8000-000000000000"
    await shop.ask("POST", "/connect", status=404, toolkit="gmail", userId=nobody)
    await shop.ask("POST", "/connect", status=200, toolkit="gmail", userId=shop.user_id)
    _, stranger = await shop.create_user()
    await shop.ask("POST", "/connect", stranger, 403, toolkit="gmail", userId=shop.user_id)


async def test_several_accounts_of_one_toolkit_have_aliases_and_one_of_them_is_named(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect(alias="own")
    await shop.connect(choice="Allow as team", alias="support")
    # The same account again is the same one, with its alias.
    await shop.connect()
    names = [(each["alias"], each["account_name"]) for each in await shop.list_connections()]
    assert sorted(names) == [("own", "ada@mail.example (invented)"), ("support", "team@mail.example (invented)")]
    body: dict[str, Any] = {"toolName": "GMAIL_LIST_LABELS"}
    unclear = await shop.ask("POST", "/execute", shop.user, 400, **body)
    assert {each["alias"] for each in unclear["error"]["details"]["accounts"]} == {"own", "support"}
    answer = await shop.ask("POST", "/execute", shop.user, 200, account="support", **body)
    assert answer["account"] == "team@mail.example (invented)"


async def test_users_see_and_disconnect_their_own_accounts_only(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    (connection,) = await shop.list_connections()
    _, stranger = await shop.create_user()
    assert (await shop.ask("GET", "/connections", stranger, 200))["connections"] == []
    await shop.ask("DELETE", f"/connections/{connection['id']}", stranger, 404)
    assert len((await shop.ask("GET", "/connections", status=200))["connections"]) == 1
    await shop.ask("DELETE", f"/connections/{connection['id']}", shop.user, 204)
    assert await shop.list_connections() == []
    (entry,) = await shop.read_audit_log("integration.disconnect")
    assert entry["event_data"]["account_name"] == "ada@mail.example (invented)"


async def test_the_accounts_of_a_deleted_user_are_disconnected(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    path = f"/v1/{shop.app}/admin/auth/users/{shop.user_id}"
    await shop.baobab.client.delete(path, headers=shop.baobab.owner)
    await shop.run_jobs()
    assert (await shop.ask("GET", "/connections", status=200))["connections"] == []
