"""What clients, strangers and other apps try at the sign-in of an app's users."""

import re

import pytest

from tests.conftest import ADDRESS, Baobab
from tests.mcp_server.oauth_client import parse_query
from tests.mcp_server.user_oauth.conftest import EMAIL, PASSWORD, Browser, OAuthSteps, UserApp, create_user_app
from tests.people import create_key

pytestmark = pytest.mark.own_installation


@pytest.mark.parametrize(
    "redirect",
    [
        "https://evil.example/callback",
        "http://127.0.0.1:3000/other",
        "http://127.0.0.1.evil.example/callback",
        "javascript:x",
    ],
)
async def test_nobody_is_sent_to_an_address_that_the_client_has_not_registered(
    steps: OAuthSteps, redirect: str
) -> None:
    answer = await steps.authorize(redirect_uri=redirect)
    assert answer.status_code == 400
    assert "location" not in answer.headers
    # The port of a loopback address is free.
    free = await steps.authorize(redirect_uri="http://127.0.0.1:49152/callback")
    assert free.headers["location"].startswith(f"{steps.app.issuer}/mcp/consent?")


@pytest.mark.parametrize(
    "uri", ["javascript:alert(1)", "http://evil.example/cb", "https://a.example/#x", f"https://a.example/{'x' * 1700}"]
)
async def test_a_client_with_a_dangerous_address_is_not_registered(steps: OAuthSteps, uri: str) -> None:
    answer = await steps.register(uri)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_redirect_uri"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "too-short"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"resource": f"{ADDRESS}/mcp"}, "invalid_target"),
        ({"resource": f"{ADDRESS}/mcp?app_id=app_000000000009"}, "invalid_target"),
        ({"resource": "https://evil.example/mcp"}, "invalid_target"),
    ],
)
async def test_an_odd_request_is_refused(steps: OAuthSteps, changes: dict[str, str | None], error: str) -> None:
    answer = await steps.authorize(**changes)
    query = parse_query(answer.headers["location"])
    assert query["error"] == error, query
    assert (query["state"], query["iss"]) == ("a state", steps.app.issuer)


async def test_a_code_is_good_once_and_a_second_use_ends_the_session(steps: OAuthSteps) -> None:
    code = (await steps.decide())["code"]
    tokens = (await steps.exchange(code)).json()
    assert await steps.app.is_accepted(tokens["access_token"])
    assert (await steps.exchange(code)).json()["error"] == "invalid_grant"
    assert not await steps.app.is_accepted(tokens["access_token"])
    assert (await steps.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert (await steps.exchange(code)).json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    "changes",
    [
        {"code_verifier": None},
        {"code_verifier": "x" * 64},
        {"redirect_uri": "http://127.0.0.1:3000/other"},
        {"resource": f"{ADDRESS}/mcp"},
        {"resource": "https://evil.example/"},
    ],
)
async def test_a_code_is_not_exchanged_without_what_it_is_bound_to(
    steps: OAuthSteps, changes: dict[str, str | None]
) -> None:
    code = (await steps.decide())["code"]
    refusal = await steps.exchange(code, **changes)
    assert refusal.status_code == 400, refusal.text
    assert (await steps.exchange(code)).status_code == 200


async def test_the_client_the_request_and_the_code_of_one_app_are_strangers_in_another(
    baobab: Baobab, steps: OAuthSteps
) -> None:
    other = OAuthSteps(await create_user_app(baobab))
    await other.register()
    # The client of one app, at the other.
    assert (await steps.authorize(at=other.app.issuer)).status_code == 400
    # The request of one app, at the other's page and its decision.
    request = parse_query((await steps.authorize()).headers["location"])["request"]
    page = await baobab.client.get(f"{other.app.issuer}/mcp/consent", params={"request": request})
    assert page.status_code == 400
    by = {"authorization": f"Bearer {(await other.app.log_in())['access_token']}"}
    path = f"/auth/{other.app.id}/mcp/decision"
    refusal = await other.app.request("POST", path, by, request=request, decision="approve")
    assert refusal.status_code == 400
    # The code and the refresh token of one app, at the other's token endpoint.
    code = (await steps.decide())["code"]
    for client_id in (steps.client_id, other.client_id):
        refusal = await steps.exchange(code, at=other.app.issuer, client_id=client_id)
        assert refusal.status_code in (400, 401)
    tokens = (await steps.exchange(code)).json()
    for client_id in (steps.client_id, other.client_id):
        refusal = await steps.refresh(tokens["refresh_token"], at=other.app.issuer, client_id=client_id)
        assert refusal.status_code in (400, 401)
    assert (await steps.refresh(tokens["refresh_token"])).status_code == 200


async def test_another_client_of_the_same_app_can_use_neither_code_nor_refresh_token(steps: OAuthSteps) -> None:
    thief = OAuthSteps(steps.app)
    await thief.register(name="Thief")
    thief.verifier = steps.verifier
    code = (await steps.decide())["code"]
    assert (await thief.exchange(code)).json()["error"] == "invalid_grant"
    tokens = (await steps.exchange(code)).json()
    assert (await thief.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert await steps.app.is_accepted(tokens["access_token"])


async def test_a_ban_or_a_new_password_between_consent_and_code_leaves_nothing(steps: OAuthSteps) -> None:
    app, code = steps.app, (await steps.decide())["code"]
    by = {"authorization": f"Bearer {(await app.log_in())['access_token']}"}
    await app.request("POST", f"/auth/{app.id}/logout", by)
    assert (await steps.exchange(code)).json()["error"] == "invalid_grant"


async def test_only_a_user_in_person_can_agree(steps: OAuthSteps) -> None:
    app = steps.app
    user_id = (await app.log_in())["user"]["id"]
    request = parse_query((await steps.authorize()).headers["location"])["request"]
    app_key = await create_key(app.baobab, key_scope="app", target_app_id=app.id)
    tokens = await steps.connect()
    callers: tuple[tuple[dict[str, str], int], ...] = (
        ({}, 401),
        (app.baobab.owner, 403),
        ({**app_key, "x-platform-as-user": user_id}, 403),
        ({"authorization": f"Bearer {tokens['access_token']}"}, 401),
    )
    for by, status in callers:
        refusal = await app.request("POST", f"/auth/{app.id}/mcp/decision", by, request=request, decision="approve")
        assert refusal.status_code == status, refusal.text


async def test_the_page_can_be_neither_framed_nor_driven_from_another_site(steps: OAuthSteps) -> None:
    browser = Browser(steps.app)
    browser.pages.append(await steps.app.client.get((await steps.authorize()).headers["location"]))
    policy = browser.pages[-1].headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self' http://127.0.0.1:3000" in policy
    assert "script-src" not in policy
    assert "default-src 'none'" in policy
    assert browser.pages[-1].headers["x-frame-options"] == "DENY"
    assert browser.pages[-1].headers["cache-control"] == "no-store"
    for headers in ({"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        refusal = await browser.send("password", headers, email=EMAIL, password=PASSWORD)
        assert refusal.status_code == 403
        assert "ticket" not in refusal.text
    # Without having signed in, or with what another request has signed.
    assert (await browser.send("approve")).status_code == 401
    await browser.sign_in()
    ticket = re.findall(r'name="ticket" value="([^"]*)"', browser.pages[-1].text)[0]
    other = Browser(steps.app)
    other.pages.append(await steps.app.client.get((await steps.authorize(state="another")).headers["location"]))
    assert (await other.send("approve", ticket=ticket)).status_code == 401
    assert (await browser.send("approve")).status_code == 303


async def test_the_page_shows_a_wrong_password_and_the_clients_name_as_text(app: UserApp) -> None:
    steps, browser = OAuthSteps(app), Browser(app)
    await steps.register(name="<script>alert(1)</script>")
    browser.pages.append(await app.client.get((await steps.authorize()).headers["location"]))
    assert "<script>" not in browser.pages[-1].text
    assert "&lt;script&gt;" in browser.pages[-1].text
    refusal = await browser.send("password", email=EMAIL, password="wrong")
    assert refusal.status_code == 401
    assert "Invalid credentials" in refusal.text
    assert "ticket" not in refusal.text
    assert (await app.client.get(f"{app.issuer}/mcp/consent", params={"request": "v1.x.y"})).status_code == 400
