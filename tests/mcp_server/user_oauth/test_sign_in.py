"""A user of an app signs in from an MCP client, and has what the app gives until the access ends."""

import json
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from baobab.runtime.net.egress import EgressResponse
from baobab.tools.core.auth.callers import EndUser
from baobab.tools.core.limits.limits import CALLER_REQUESTS
from baobab.tools.core.limits.rate_limits import resolve_answer
from baobab.tools.users.totp import compute_code
from tests.conftest import ADDRESS, Baobab
from tests.installation import get_asgi_app
from tests.jobs import run_due_jobs
from tests.mcp_server.mcp_requests import give_tools
from tests.mcp_server.oauth_client import Storage
from tests.mcp_server.test_oauth import Browser as PlatformBrowser
from tests.mcp_server.test_oauth import list_tools as list_platform_tools
from tests.mcp_server.user_oauth.conftest import (
    DOCUMENT,
    EMAIL,
    OTHER,
    PASSWORD,
    TOOLS,
    Browser,
    OAuthSteps,
    UserApp,
    connect,
    create_user_app,
)
from tests.people import create_key, create_person
from tests.tools.agents.conftest import build_graph

pytestmark = pytest.mark.own_installation

ASK: dict[str, Any] = build_graph(
    {
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "Go on?"},
        },
        "done": {"type": "end", "output_template": "done"},
    },
    ("ask", "done"),
    tools={"builtin": ["interrupt"]},
)


@pytest.mark.parametrize("by_code", [False, True], ids=["by password", "by mailed code"])
async def test_the_official_client_signs_a_user_in_and_gets_the_tools_of_users(app: UserApp, by_code: bool) -> None:
    browser, storage = Browser(app, by_code=by_code), Storage()
    async with connect(app, browser, storage) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        # The rules of the rows are as over REST.
        user_id = await app.find_user_id()
        result = await client.call_tool("kv_put", {"key": f"user:{user_id}:note", "value": "mine"})
        assert not result.is_error, result.content
        assert "mine" in str((await client.call_tool("kv_get", {"key": f"user:{user_id}:note"})).content)
        refusal = await client.call_tool("kv_get", {"key": f"user:{OTHER}:note"})
        assert refusal.is_error
        assert "AUTH_INSUFFICIENT_PERMISSIONS" in str(refusal.content)
        assert (await client.list_resources()).resources == []
        assert (await client.list_prompts()).prompts == []
        assert client.instructions is not None
        assert "one of its users" in client.instructions
        assert "API keys" not in client.instructions
    consent = browser.pages[-1].text
    assert "Official wants to use" in consent
    assert "127.0.0.1:3000" in consent
    assert EMAIL in consent
    for name in TOOLS:
        assert f"({name})" in consent
    assert storage.tokens is not None
    assert storage.tokens.expires_in == 3600
    sessions = (await app.request("GET", f"/v1/{app.id}/admin/auth/users/{user_id}/sessions")).json()["sessions"]
    # The page itself keeps nobody signed in.
    assert [session["client_name"] for session in sessions] == ["Official"]


class CarefulBrowser(Browser):
    """A user who has recovery codes for the second step, and mistypes the first time."""

    def __init__(self, app: UserApp, codes: list[str]) -> None:
        super().__init__(app)
        self.codes = codes

    async def sign_in(self) -> None:
        await super().sign_in()
        assert "authenticator app" in self.pages[-1].text
        wrong = await self.send("second-factor", code="nothing")
        assert (wrong.status_code, "Invalid code" in wrong.text) == (400, True)
        self.pages.append(await self.send("second-factor", code=self.codes.pop()))
        assert self.pages[-1].status_code == 200, self.pages[-1].text


async def test_the_page_asks_a_user_who_has_one_for_the_second_factor(app: UserApp) -> None:
    bearer = {"authorization": f"Bearer {(await app.log_in())['access_token']}"}
    secret = (await app.request("POST", f"/auth/{app.id}/totp", bearer)).json()["secret"]
    code = compute_code(secret, int(app.baobab.application.services.clock.time()) // 30)
    response = await app.request("POST", f"/auth/{app.id}/totp/confirm", bearer, code=code)
    browser, storage = CarefulBrowser(app, response.json()["recovery_codes"]), Storage()
    async with connect(app, browser, storage) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS


@pytest.mark.parametrize("address", ["http://localhost:8000", "http://baobab.test:8000"])
async def test_the_official_client_signs_a_user_in_at_every_name_of_the_server(app: UserApp, address: str) -> None:
    app.address, storage = address, Storage()
    async with connect(app, Browser(app), storage) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
    # One app: the token that was given at one name is good at the others.
    assert storage.tokens is not None
    assert await app.is_accepted(storage.tokens.access_token)


async def test_the_official_client_is_known_by_the_document_that_describes_it(app: UserApp) -> None:
    class FakeHttpClient:
        async def request(self, method: str, url: str, **options: Any) -> EgressResponse:
            document = {
                "client_id": DOCUMENT,
                "client_name": "Published",
                "redirect_uris": ["http://127.0.0.1/callback"],
            }
            return EgressResponse(200, {"Content-Type": "application/json"}, json.dumps(document).encode(), url)

    object.__setattr__(app.baobab.application.services, "http_client", FakeHttpClient())
    browser = Browser(app)
    async with connect(app, browser, Storage(), client_metadata_url=DOCUMENT) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
    assert "Published wants to use" in browser.pages[-1].text


async def test_the_official_client_refreshes_its_token(app: UserApp) -> None:
    browser, storage = Browser(app), Storage()
    async with connect(app, browser, storage) as client:
        await client.list_tools()
        assert storage.tokens is not None
        first = storage.tokens.refresh_token
    steps = OAuthSteps(app)
    assert storage.client is not None
    steps.client_id = storage.client.client_id or ""
    response = await steps.refresh(str(first), resource=app.resource)
    assert response.status_code == 200, response.text
    assert response.json()["refresh_token"] != first
    assert await app.is_accepted(response.json()["access_token"])


async def test_a_refusal_of_the_user_is_told_to_the_client(app: UserApp) -> None:
    browser, storage = Browser(app, "deny"), Storage()
    with pytest.raises(BaseExceptionGroup):
        async with connect(app, browser, storage) as client:
            await client.list_tools()
    assert browser.callback_query["error"] == "access_denied"
    assert browser.callback_query["iss"] == app.issuer
    assert storage.tokens is None


# -- Where the way begins ----------------------------------------------------------------------------------------------


async def test_discovery_leads_to_the_apps_own_sign_in(app: UserApp) -> None:
    answer = await app.client.post(f"/mcp?app_id={app.id}", json={})
    assert answer.status_code == 401
    metadata = f"{ADDRESS}/.well-known/oauth-protected-resource/mcp?app_id={app.id}"
    assert f'resource_metadata="{metadata}"' in answer.headers["www-authenticate"]
    resource = (await app.client.get(metadata)).json()
    assert resource["resource"] == app.resource
    assert resource["authorization_servers"] == [app.issuer, ADDRESS]
    assert resource["scopes_supported"] == ["mcp"]
    well_known = "/.well-known/oauth-authorization-server"
    server = (await app.client.get(f"{well_known}/auth/{app.id}")).json()
    assert (await app.client.get(f"/auth/{app.id}{well_known}")).json() == server
    assert server["issuer"] == app.issuer
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["authorization_response_iss_parameter_supported"] is True
    assert server["token_endpoint_auth_methods_supported"] == ["none"]


async def test_an_app_that_gives_its_users_no_tools_leads_to_the_platform(app: UserApp) -> None:
    await give_tools(app.baobab, app.id, [])
    answer = await app.client.post(f"/mcp?app_id={app.id}", json={})
    assert "app_id" not in answer.headers["www-authenticate"]
    resource = (await app.client.get(f"/.well-known/oauth-protected-resource/mcp?app_id={app.id}")).json()
    assert resource["authorization_servers"] == [ADDRESS]
    assert (await app.client.get(f"/.well-known/oauth-authorization-server/auth/{app.id}")).status_code == 404
    assert (await OAuthSteps(app).register()).status_code == 404
    assert (await app.client.get(f"/auth/{app.id}/mcp/authorize")).status_code == 404
    assert (await app.client.get("/auth/app_000000000000/mcp/authorize")).status_code == 404


async def test_closing_mcp_ends_the_access_of_those_who_are_connected(steps: OAuthSteps) -> None:
    tokens = await steps.connect()
    await give_tools(steps.app.baobab, steps.app.id, [])
    assert (await steps.refresh(tokens["refresh_token"])).status_code == 404
    headers = {"authorization": f"Bearer {tokens['access_token']}", "accept": "application/json, text/event-stream"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers["mcp-protocol-version"] = "2025-11-25"
    answer = await steps.app.client.post(f"/mcp?app_id={steps.app.id}", json=message, headers=headers)
    assert answer.json()["result"]["tools"] == []


async def test_keys_of_those_who_run_the_app_work_at_the_same_address(app: UserApp) -> None:
    key = await create_key(app.baobab)
    assert await app.is_accepted(key["authorization"].removeprefix("Bearer "))
    # A program whose key has ended is led to the platform, which gave it the key.
    answer = await app.client.post(
        f"/mcp?app_id={app.id}", json={}, headers={"authorization": "Bearer bb_sk_" + "x" * 40}
    )
    assert answer.status_code == 401
    assert "app_id" not in answer.headers["www-authenticate"]


async def test_a_program_that_signed_in_with_the_platform_goes_on_at_the_same_address(app: UserApp) -> None:
    organisation = (await app.request("GET", f"/v1/{app.id}/config")).json()["organization_id"]
    person = await create_person(app.baobab, "member", role="member", of=organisation)
    platform, storage = PlatformBrowser(app.baobab, person, organization_id=organisation), Storage()
    assert "apps_list" in await list_platform_tools(app.baobab, platform, storage)
    for came_anew in (False, True):
        platform.consent_request = {}
        async with connect(app, platform, storage) as client:
            assert "search_tools" in [tool.name for tool in (await client.list_tools()).tools]
            assert not (await client.call_tool("config_get", {})).is_error
        # Once its access has ended, it is led to the platform again, and not to the app's sign-in.
        assert bool(platform.consent_request) is came_anew
        for program in (await app.request("GET", "/oauth/programs", person.headers)).json()["programs"]:
            response = await app.request("DELETE", f"/oauth/programs/{program['id']}", person.headers)
            assert response.status_code == 200


async def test_what_waits_for_a_person_never_waits_for_the_user(steps: OAuthSteps) -> None:
    app = steps.app
    await give_tools(app.baobab, app.id, ["agents_run", "agents_runs_get"])
    response = await app.request(
        "POST", f"/v1/{app.id}/agents", name="asker", graph_spec=ASK, visibility="authenticated"
    )
    assert response.status_code == 201, response.text
    tokens = await steps.connect()
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    async with (
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=get_asgi_app(app.client)), headers=headers, base_url=ADDRESS
        ) as http,
        Client(streamable_http_client(app.resource, http_client=http)) as client,
    ):
        started_run: Any = (await client.call_tool("agents_run", {"name": "asker", "input": {}})).structured_content
        await run_due_jobs(app.baobab.application)
        run = {"name": "asker", "id": started_run["run_id"]}
        assert "paused" in str((await client.call_tool("agents_runs_get", run)).content)
        path = f"/v1/{app.id}/agents/asker/runs/{started_run['run_id']}"
        events = (await app.request("GET", f"{path}/events.json")).json()["events"]
        body: dict[str, Any] = {"approval_token": events[-1]["payload"]["approval_token"], "approved": True}
        decision = {**run, **body}
        for tool in ("agents_runs_resume", "approvals_approve", "call_tool"):
            with pytest.raises(MCPError):
                await client.call_tool(tool, decision)
    assert (await app.request("POST", f"{path}/resume", headers, **body)).status_code == 401
    decided_response = await app.request("POST", f"{path}/resume", **body)
    assert decided_response.status_code == 200, decided_response.text


async def test_one_user_cannot_use_up_what_the_app_may_send(steps: OAuthSteps) -> None:
    app, tokens = steps.app, await steps.connect()
    user = EndUser(app.id, await app.find_user_id())
    limits = app.baobab.application.services.limits
    assert await app.is_accepted(tokens["access_token"])
    for _ in range(CALLER_REQUESTS.amount - 1):
        await resolve_answer(CALLER_REQUESTS.spend_of(user, "127.0.0.1", limits))
    headers = {"authorization": f"Bearer {tokens['access_token']}", "accept": "application/json, text/event-stream"}
    headers["mcp-protocol-version"] = "2025-11-25"
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "kv_get", "arguments": {"key": "a"}},
    }
    answer = await app.client.post(f"/mcp?app_id={app.id}", json=message, headers=headers)
    assert answer.status_code == 429
    assert answer.headers["retry-after"]
    assert (await app.request("GET", f"/v1/{app.id}/kv/some-key")).status_code == 404


# -- Tokens ------------------------------------------------------------------------------------------------------------


async def test_a_token_of_a_client_opens_the_mcp_endpoint_of_its_app_and_nothing_else(
    baobab: Baobab, steps: OAuthSteps
) -> None:
    tokens, other = await steps.connect(), await create_user_app(baobab)
    token = tokens["access_token"]
    assert await steps.app.is_accepted(token)
    assert not await steps.app.is_accepted(token, "")
    assert not await other.is_accepted(token)
    by = {"authorization": f"Bearer {token}"}
    for path in (f"/auth/{steps.app.id}/me", f"/v1/{steps.app.id}/kv/some-key", f"/auth/{steps.app.id}/sessions"):
        assert (await steps.app.request("GET", path, by)).status_code == 401
    # Nor can it be turned into one that opens REST.
    body = {"refresh_token": tokens["refresh_token"]}
    refusal = await steps.app.request("POST", f"/auth/{steps.app.id}/refresh", {}, **body)
    assert refusal.status_code == 401
    rest = (await steps.app.log_in())["access_token"]
    assert await steps.app.is_accepted(rest)
    assert not await other.is_accepted(rest)


@pytest.mark.parametrize("end", ["ban", "logout", "password", "deletion", "revocation", "session"])
async def test_what_ends_sessions_ends_the_access_of_a_client_at_once(steps: OAuthSteps, end: str) -> None:
    app, tokens = steps.app, await steps.connect()
    assert await app.is_accepted(tokens["access_token"])
    signed_in = await app.log_in()
    by = {"authorization": f"Bearer {signed_in['access_token']}"}
    user = f"/v1/{app.id}/admin/auth/users/{signed_in['user']['id']}"
    match end:
        case "ban":
            answer = await app.request("PATCH", user, banned=True)
        case "logout":
            answer = await app.request("POST", f"/auth/{app.id}/logout", by)
        case "password":
            new = {"password": "another Horse 8!", "current_password": PASSWORD}
            answer = await app.request("PATCH", f"/auth/{app.id}/me", by, **new)
        case "deletion":
            answer = await app.request("DELETE", user)
        case "revocation":
            form = {"token": tokens["refresh_token"], "client_id": steps.client_id}
            answer = await app.client.post(f"{app.issuer}/mcp/revoke", data=form)
        case _:
            sessions = (await app.request("GET", f"/auth/{app.id}/sessions", by)).json()["sessions"]
            mine = next(session["id"] for session in sessions if session["client_name"] == "Steps")
            answer = await app.request("DELETE", f"/auth/{app.id}/sessions/{mine}", by)
    assert answer.status_code == 200, answer.text
    assert not await app.is_accepted(tokens["access_token"])
    assert (await steps.refresh(tokens["refresh_token"])).status_code == 400


async def test_a_refresh_token_that_is_used_again_ends_the_session(steps: OAuthSteps) -> None:
    tokens = await steps.connect()
    newer = (await steps.refresh(tokens["refresh_token"])).json()
    newest = (await steps.refresh(newer["refresh_token"])).json()
    assert await steps.app.is_accepted(newest["access_token"])
    # Two generations old, so that it is no answer that was lost a moment ago.
    assert (await steps.refresh(tokens["refresh_token"])).json()["error"] == "invalid_grant"
    assert not await steps.app.is_accepted(newest["access_token"])
    assert (await steps.refresh(newest["refresh_token"])).json()["error"] == "invalid_grant"


async def test_what_a_user_does_over_mcp_is_written_down_as_theirs(steps: OAuthSteps) -> None:
    user_id = (await steps.app.log_in())["user"]["id"]
    await steps.connect()
    logs = (await steps.app.request("GET", f"/v1/{steps.app.id}/audit-logs")).json()
    events = {row["event_type"]: row for row in logs["logs"]} if "logs" in logs else {}
    assert {"mcp_client_register", "mcp_client_decision", "mcp_client_login"} <= events.keys(), logs
    assert events["mcp_client_login"]["actor_id"] == user_id


# -- Attacks -----------------------------------------------------------------------------------------------------------
