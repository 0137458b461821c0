"""Toolkits are enabled, and their tools called with a user's account: once, as the user, with clear failures."""

from pathlib import Path
from typing import Any

from sqlalchemy import update

from baobab.tools.integrations.tables import calls
from tests.people import create_key
from tests.tools.integrations.conftest import Shop, open_shop

MAIL = {"recipient_email": "grace@kapok.example", "subject": "Offer", "body": "Twenty seats are 400 EUR."}


async def test_the_ten_toolkits_are_listed_and_a_search_finds_by_name(shop: Shop) -> None:
    answer = await shop.ask("GET", "/available", status=200)
    slugs = [each["toolkit"] for each in answer["integrations"]]
    assert (slugs[0], len(slugs), answer["simulated"]) == ("gmail", 10, True)
    assert answer["integrations"][0] | {"scopes": []} == {
        "toolkit": "gmail",
        "displayName": "Gmail",
        "curated": True,
        "description": "Read, draft and send e-mail as a Gmail account.",
        "auth_schemes": ["OAUTH2"],
        "requires_byo_credentials": False,
        "scopes": [],
        "providers": ["simulator"],
    }
    answer = await shop.ask("GET", "/available?search=google", status=200)
    assert {each["toolkit"] for each in answer["integrations"]} == {"google-calendar", "google-sheets", "google-drive"}


async def test_a_toolkit_is_enabled_and_disabled_and_its_accounts_stay(shop: Shop) -> None:
    answer = await shop.ask("POST", "/configure", status=200, toolkit="gmail")
    assert {**answer, "id": ""} == {
        "id": "", "app_id": shop.app, "toolkit_slug": "gmail", "enabled": True, "simulated": True
    }  # fmt: skip
    (toolkit,) = (await shop.ask("GET", "/config", status=200))["integrations"]
    assert (toolkit["display_name"], toolkit["enabled"], len(toolkit["scopes"])) == ("Gmail", True, 2)
    await shop.connect()
    await shop.ask("DELETE", "/configure/gmail", status=204)
    assert (await shop.ask("GET", "/config", status=200))["integrations"] == []
    refusal = await shop.ask("POST", "/execute", shop.user, 400, toolName="GMAIL_LIST_LABELS")
    assert refusal["error"]["code"] == "INTEGRATIONS_TOOLKIT_NOT_ENABLED"
    await shop.configure("gmail")
    await shop.execute("GMAIL_LIST_LABELS")
    unknown = await shop.ask("POST", "/configure", status=404, toolkit="no-such-service")
    assert unknown["error"]["code"] == "RESOURCE_NOT_FOUND"


async def test_a_draft_is_written_sent_and_found_in_the_mailbox(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    unread = await shop.execute("GMAIL_FETCH_EMAILS", {"query": "is:unread", "max_results": 1})
    assert (unread["messages"][0]["subject"], unread["nextPageToken"]) == ("Offer for spring", "1")
    draft = await shop.execute("GMAIL_CREATE_EMAIL_DRAFT", MAIL)
    sent_mail = await shop.execute("GMAIL_SEND_DRAFT", {"draft_id": draft["id"]})
    assert sent_mail["labelIds"] == ["SENT"]
    answer = await shop.execute("GMAIL_FETCH_EMAILS", {"query": "400"})
    assert [each["to"] for each in answer["messages"]] == ["grace@kapok.example"]
    own_calls = (await shop.ask("GET", "/calls", shop.user, 200))["calls"]
    assert {(each["status"], each["account_name"]) for each in own_calls} == {
        ("succeeded", "ada@mail.example (invented)")
    }
    assert {each["tool"] for each in own_calls} == {
        "GMAIL_FETCH_EMAILS",
        "GMAIL_CREATE_EMAIL_DRAFT",
        "GMAIL_SEND_DRAFT",
    }


async def test_the_simulated_calendar_channel_and_repository_keep_what_is_written(shop: Shop) -> None:
    await shop.configure("google-calendar", "slack", "github")
    for toolkit in ("google-calendar", "slack", "github"):
        await shop.connect(toolkit)
    times = {"start_datetime": "2030-01-01T09:00:00Z", "end_datetime": "2030-01-01T10:00:00Z"}
    event = await shop.execute("GOOGLECALENDAR_CREATE_EVENT", {"summary": "Planting", **times})
    await shop.execute("GOOGLECALENDAR_PATCH_EVENT", {"event_id": event["id"], "location": "Garden"})
    answer = await shop.execute("GOOGLECALENDAR_EVENTS_LIST", {"q": "planting"})
    assert [(each["summary"], each["location"]) for each in answer["items"]] == [("Planting", "Garden")]
    await shop.execute("GOOGLECALENDAR_DELETE_EVENT", {"event_id": event["id"]})
    assert (await shop.execute("GOOGLECALENDAR_EVENTS_LIST", {"q": "planting"}))["items"] == []
    await shop.execute("SLACK_SEND_MESSAGE", {"channel": "C1", "text": "I take it."})
    history = await shop.execute("SLACK_FETCH_CONVERSATION_HISTORY", {"channel": "C1", "limit": 1})
    assert [each["text"] for each in history["messages"]] == ["I take it."]
    place = {"owner": "ada-invented", "repo": "garden"}
    issue = await shop.execute("GITHUB_CREATE_AN_ISSUE", {**place, "title": "Prune"})
    await shop.execute("GITHUB_CREATE_AN_ISSUE_COMMENT", {**place, "issue_number": issue["number"], "body": "Soon."})
    read = await shop.execute("GITHUB_GET_AN_ISSUE", {**place, "issue_number": issue["number"]})
    assert [each["body"] for each in read["comments_list"]] == ["Soon."]


async def test_what_the_service_refuses_is_a_soft_failure_that_says_why(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    bad = [
        ("GMAIL_SEND_EMAIL", {"recipient_email": "nobody", "body": "x"}, "is not an address"),
        ("GMAIL_SEND_EMAIL", {"body": "x"}, "recipient_email"),
        ("GMAIL_NO_SUCH_TOOL", {}, "has no tool"),
    ]
    for tool, params, words in bad:
        error = (await shop.ask("POST", "/execute", shop.user, 422, toolName=tool, params=params))["error"]
        assert (error["code"], words in error["message"]) == ("INTEGRATIONS_EXECUTION_FAILED", True), error
    assert "connected account" in error["remediation"]


async def test_without_an_account_the_error_says_where_to_connect_one(shop: Shop) -> None:
    await shop.configure("gmail")
    error = (await shop.ask("POST", "/execute", shop.user, 400, toolName="GMAIL_LIST_LABELS"))["error"]
    assert error["code"] == "INTEGRATIONS_NOT_CONNECTED"
    browser = shop.open_browser()
    assert (await browser.connect(error["details"]["connect_url"]))["status"] == "connected"
    await shop.execute("GMAIL_LIST_LABELS")


async def test_a_call_that_is_repeated_with_its_key_is_made_once(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    body: dict[str, Any] = {"toolName": "GMAIL_SEND_EMAIL", "params": MAIL, "idempotencyKey": "offer-1"}
    answers = [await shop.ask("POST", "/execute", shop.user, 200, **body) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    answer = await shop.execute("GMAIL_FETCH_EMAILS", {"query": "400"})
    assert answer["resultSizeEstimate"] == 1
    other = await shop.ask("POST", "/execute", shop.user, 409, **{**body, "params": {**MAIL, "body": "Other"}})
    assert other["error"]["code"] == "RESOURCE_CONFLICT"


async def test_a_call_whose_server_is_gone_is_under_way_and_then_made_again(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    body: dict[str, Any] = {"toolName": "GMAIL_SEND_EMAIL", "params": MAIL, "idempotencyKey": "offer-1"}
    first = await shop.ask("POST", "/execute", shop.user, 200, **body)
    is_call = (calls.c.app_id == shop.app, calls.c.id == first["call_id"])
    async with shop.baobab.application.services.database.writing() as connection:
        await connection.execute(update(calls).where(*is_call).values(status="running", result=None, ended_at=None))
    await shop.ask("POST", "/execute", shop.user, 409, **body)
    shop.clock.advance(301)
    assert (await shop.ask("POST", "/execute", shop.user, 200, **body))["call_id"] == first["call_id"]


async def test_a_user_acts_with_their_own_accounts_only(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    stranger_id, stranger = await shop.create_user()
    body: dict[str, Any] = {"toolName": "GMAIL_LIST_LABELS"}
    await shop.ask("POST", "/execute", stranger, 403, userId=shop.user_id, **body)
    error = (await shop.ask("POST", "/execute", stranger, 400, **body))["error"]
    assert error["code"] == "INTEGRATIONS_NOT_CONNECTED"
    await shop.ask("POST", "/execute", status=400, **body)
    await shop.ask("POST", "/execute", status=200, userId=shop.user_id, **body)
    assert (await shop.ask("POST", "/execute", status=400, userId=stranger_id, **body))["error"]["code"] == error[
        "code"
    ]


async def test_a_user_may_make_so_many_calls_in_a_minute(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    body: dict[str, Any] = {"toolName": "GMAIL_LIST_LABELS"}
    for _ in range(120):
        await shop.ask("POST", "/execute", shop.user, 200, **body)
    answer = await shop.baobab.client.post(f"/v1/{shop.app}/integrations/execute", json=body, headers=shop.user)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "INTEGRATIONS_QUOTA_EXCEEDED")
    assert int(answer.headers["retry-after"]) > 0


async def test_who_approves_a_call_reads_whose_account_it_is_and_what_is_sent(shop: Shop) -> None:
    await shop.configure("gmail")
    await shop.connect()
    key = await create_key(shop.baobab, key_scope="app", target_app_id=shop.app, approval="external")
    body: dict[str, Any] = {"toolName": "GMAIL_SEND_EMAIL", "params": MAIL, "userId": shop.user_id}
    waiting = await shop.ask("POST", "/execute", key, 428, **body)
    approval_id = waiting["error"]["details"]["approval_id"]
    path = f"/v1/approvals/{approval_id}"
    approval = (await shop.baobab.client.get(path, headers=shop.baobab.owner)).json()
    text = str(approval)
    assert all(words in text for words in ("ada@mail.example (invented)", "gmail.compose", "Twenty seats are 400"))
    decision = await shop.baobab.client.post(f"{path}/approve", json={}, headers=shop.baobab.owner)
    assert decision.status_code == 200, decision.text
    await shop.run_jobs()
    assert (await shop.ask("POST", "/execute", key, 200, **body))["account"] == "ada@mail.example (invented)"
    (entry,) = await shop.read_audit_log("integration.execute")
    assert entry["event_data"]["account_name"] == "ada@mail.example (invented)"
    assert "Twenty" not in str(entry)


async def test_without_a_provider_and_without_simulators_integrations_are_not_configured(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "data", {"BAOBAB_SIMULATORS": "off"}) as shop:
        for error in (
            (await shop.ask("GET", "/available", status=400))["error"],
            (await shop.ask("POST", "/configure", status=400, toolkit="gmail"))["error"],
        ):
            assert error["code"] == "INTEGRATIONS_NOT_CONFIGURED"
        error = (await shop.ask("POST", "/connect", shop.user, 400, toolkit="gmail"))["error"]
        assert error["code"] == "INTEGRATIONS_TOOLKIT_NOT_ENABLED"
