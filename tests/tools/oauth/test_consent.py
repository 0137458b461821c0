"""Consent: what a person is shown, who may decide, and what the client is told."""

from typing import Any

import pytest
from sqlalchemy import select

from baobab.runtime.oauth.errors import InvalidTarget, OAuthError, RequestGone, UnknownClient
from baobab.tools.core.audit import audit_logs
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.core.errors import BadRequest, Forbidden, Unauthenticated
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.core.limits.plans import PLANS
from baobab.tools.oauth.errors import InvalidScope
from baobab.tools.oauth.tables import oauth_clients
from tests.tools.conftest import ToolHarness
from tests.tools.oauth.conftest import CHALLENGE, REDIRECT, Flow, parse_redirect

MOST_KEYS = PLANS["playground"].api_keys or 0


@pytest.fixture
async def ada(harness: ToolHarness) -> Account:
    return await harness.sign_up("ada@example.com")


async def test_a_request_shows_who_asks_for_what(harness: ToolHarness, flow: Flow) -> None:
    client = await flow.register_client("Agent")
    result = await harness.call(
        "oauth_request", request=flow.build_request(client, scopes=["ai:gateway", "mcp", "mcp"])
    )
    assert "kv" in [family["name"] for family in result.pop("families")]
    assert result == {
        "client_id": client["client_id"],
        "client_name": "Agent",
        "client_document": False,
        "redirect_host": "127.0.0.1:3000",
        "scopes": ["mcp", "ai:gateway"],
        "server": "127.0.0.1:8000",
        "expires_at": result["expires_at"],
    }
    assert (result["expires_at"] - harness.clock.now()).total_seconds() == 600


@pytest.mark.parametrize(
    ("uri", "redirect_host"), [("https://app.example/cb", "app.example"), ("cursor://anysphere/cb", "cursor:")]
)
async def test_a_request_shows_whom_the_key_goes_to(
    harness: ToolHarness, flow: Flow, uri: str, redirect_host: str
) -> None:
    request = flow.build_request(await flow.register_client("Agent", uri), redirect_uri=uri)
    assert (await harness.call("oauth_request", request=request))["redirect_host"] == redirect_host


async def test_a_request_that_was_altered_or_made_elsewhere_does_not_open(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    request = flow.build_request(await flow.register_client())
    middle = len(request) // 2
    other = "A" if request[middle] != "A" else "B"
    for text in (request[:middle] + other + request[middle + 1 :], request[:-8], "v1.x.y", "nonsense"):
        with pytest.raises(RequestGone):
            await harness.call("oauth_request", request=text)
        with pytest.raises(RequestGone):
            await harness.call("oauth_decide", ada, request=text, decision="approve")


async def test_a_request_is_good_for_ten_minutes(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    request = flow.build_request(await flow.register_client())
    harness.clock.advance(599)
    await harness.call("oauth_request", request=request)
    harness.clock.advance(1)
    with pytest.raises(RequestGone):
        await harness.call("oauth_request", request=request)
    with pytest.raises(RequestGone):
        await harness.call("oauth_decide", ada, request=request, decision="approve")


@pytest.mark.parametrize(
    ("parameter", "error"),
    [
        ({"scopes": ["mcp", "admin"]}, InvalidScope),
        ({"scopes": [""]}, InvalidScope),
        ({"resource": "https://elsewhere.example/mcp"}, InvalidTarget),
        ({"resource": "http://127.0.0.1:8000/mcp/../v1"}, InvalidTarget),
        ({"code_challenge": CHALLENGE[:-1]}, OAuthError),
        ({"code_challenge": CHALLENGE + "="}, OAuthError),
        ({"state": "s" * 2001}, OAuthError),
    ],
)
async def test_a_request_for_what_there_is_not_is_refused(
    flow: Flow, parameter: dict[str, Any], error: type[OAuthError]
) -> None:
    client = await flow.register_client()
    with pytest.raises(error):
        flow.build_request(client, **parameter)


async def test_an_approval_sends_the_client_a_code_its_state_and_the_issuer(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    request = flow.build_request(await flow.register_client())
    result = await harness.call("oauth_decide", ada, request=request, decision="approve")
    assert result["redirect_to"].startswith(f"{REDIRECT}?")
    redirect = parse_redirect(result)
    assert redirect.keys() == {"code", "state", "iss"}
    assert (redirect["state"], redirect["iss"]) == ("s t&te", "http://127.0.0.1:8000")
    assert len(redirect["code"]) * 5.95 > 160
    assert redirect["code"].encode() not in harness.read_database()


async def test_a_refusal_sends_the_client_the_refusal(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    request = flow.build_request(await flow.register_client(), redirect_uri=REDIRECT + "?tab=1")
    redirect = parse_redirect(await harness.call("oauth_decide", ada, request=request, decision="deny"))
    assert redirect.pop("error_description")
    assert redirect == {"tab": "1", "error": "access_denied", "state": "s t&te", "iss": "http://127.0.0.1:8000"}


async def test_a_decision_takes_a_person(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    request = flow.build_request(await flow.register_client())
    with pytest.raises(Unauthenticated):
        await harness.call("oauth_decide", request=request, decision="approve")
    result = await harness.call("api_keys_create", ada, name="agent")
    key = await harness.authenticate(result["key"])
    with pytest.raises(Forbidden):
        await harness.call("oauth_decide", key, request=request, decision="approve")


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_nobody_decides_for_an_organisation_they_are_no_member_of(
    harness: ToolHarness, flow: Flow, ada: Account, decision: str
) -> None:
    eve = await harness.sign_up("eve@example.com")
    request = flow.build_request(await flow.register_client())
    with pytest.raises(Forbidden):
        await harness.call("oauth_decide", eve, request=request, decision=decision, organization_id=ada.organisation_id)
    theirs = select(audit_logs).where(audit_logs.c.organisation_id == ada.organisation_id)
    async with harness.services.database.reading() as connection:
        assert (await connection.execute(theirs)).all() == []


async def test_a_decision_about_a_client_that_is_gone_is_refused(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    request = flow.build_request(await flow.register_client())
    async with harness.services.database.writing() as connection:
        await connection.execute(oauth_clients.delete())
    with pytest.raises(UnknownClient):
        await harness.call("oauth_decide", ada, request=request, decision="approve")


async def test_a_person_is_told_before_they_agree_that_there_is_no_room_for_a_key(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    mine: dict[str, Any] = {"organisation_id": ada.organisation_id, "account_id": ada.account_id}
    rows = [keys.key_row(harness.services, f"key {n}", "key", ["*"], **mine) for n in range(MOST_KEYS)]
    async with harness.services.database.writing() as connection:
        await connection.execute(api_keys.insert(), rows)
    with pytest.raises(PlanLimitReached):
        await harness.call(
            "oauth_decide", ada, request=flow.build_request(await flow.register_client()), decision="approve"
        )


async def test_a_decision_is_written_down_without_the_code(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    client = await flow.register_client()
    code = await flow.obtain_code(client, ada, read_only=True)
    row = select(audit_logs).where(audit_logs.c.event_type == "oauth.decision")
    async with harness.services.database.reading() as connection:
        audit_row = (await connection.execute(row)).one()
    assert (audit_row.actor_id, audit_row.organisation_id) == (ada.account_id, ada.organisation_id)
    assert audit_row.resource_id == client["client_id"]
    assert audit_row.event_data["decision"] == "approve"
    assert audit_row.event_data["read_only"] is True
    assert code not in str(audit_row)


@pytest.mark.parametrize("wrong", [{"decision": "maybe"}, {"approval": "never"}, {"read_only": "yes"}, {"more": 1}])
async def test_a_decision_says_what_it_must(
    harness: ToolHarness, flow: Flow, ada: Account, wrong: dict[str, Any]
) -> None:
    arguments = {"request": flow.build_request(await flow.register_client()), "decision": "approve", **wrong}
    with pytest.raises(BadRequest):
        await harness.call("oauth_decide", ada, **arguments)
