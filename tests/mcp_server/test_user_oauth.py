"""An app's users sign in over MCP: the official client goes the whole way, and others try to go another."""

import base64
import contextlib
import hashlib
import html
import json
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata
from mcp.shared.exceptions import MCPError
from pydantic import AnyUrl

from baobab.runtime.egress import EgressResponse
from baobab.tools.core.auth.callers import EndUser
from baobab.tools.core.limits import CALLER_REQUESTS
from baobab.tools.core.rate_limits import resolve_answer
from tests.conftest import ADDRESS, Baobab
from tests.installation import get_asgi_app, reset_rate_limits
from tests.jobs import run_due_jobs
from tests.mcp_server.mcp_requests import give_tools
from tests.mcp_server.oauth_client import REDIRECT, Storage, parse_query
from tests.mcp_server.test_oauth import Browser as PlatformBrowser
from tests.mcp_server.test_oauth import list_tools as list_platform_tools
from tests.people import create_key, create_person
from tests.tools.agents.conftest import build_graph

pytestmark = pytest.mark.own_installation

EMAIL, PASSWORD = "ada@example.com", "correct Horse 7!"
TOOLS = ["kv_get", "kv_put"]
OTHER = "22222222-2222-4222-8222-222222222222"
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
DOCUMENT = "https://client.example/oauth/client.json"


@dataclass
class UserApp:
    """An app that gives tools to its users, one of whom is Ada."""

    baobab: Baobab
    id: str
    address: str = ADDRESS
    """The name of the server that its users use."""

    @property
    def client(self) -> httpx.AsyncClient:
        return self.baobab.client

    @property
    def resource(self) -> str:
        return f"{self.address}/mcp?app_id={self.id}"

    @property
    def issuer(self) -> str:
        return f"{self.address}/auth/{self.id}"

    async def request(self, method: str, path: str, by: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        headers = self.baobab.owner if by is None else by
        return await self.client.request(method, path, headers=headers, json=body or None)

    async def log_in(self) -> dict[str, Any]:
        """Ada's tokens for REST, without a limit of tries."""
        reset_rate_limits(self.baobab.application.services)
        answer = await self.request("POST", f"/auth/{self.id}/login", {}, email=EMAIL, password=PASSWORD)
        assert answer.status_code == 200, answer.text
        tokens: dict[str, Any] = answer.json()
        return tokens

    async def find_user_id(self) -> str:
        user_id: str = (await self.request("GET", f"/v1/{self.id}/admin/auth/users")).json()["users"][0]["id"]
        return user_id

    async def read_code(self) -> str:
        await run_due_jobs(self.baobab.application)
        outbox = (await self.request("GET", f"/v1/{self.id}/auth/outbox")).json()
        found = re.search(r"^    (\d{6})$", outbox["mails"][0]["text"], re.MULTILINE)
        assert found
        return found[1]

    async def is_accepted(self, token: str, view: str | None = None) -> bool:
        """Whether MCP answers a token at the address of the app, or of another view."""
        address = f"/mcp?app_id={self.id}" if view is None else f"/mcp{view}"
        headers = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
        headers["mcp-protocol-version"] = "2025-11-25"
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        answer = await self.client.post(address, json=message, headers=headers)
        assert answer.status_code in (200, 401), answer.text
        return answer.status_code == 200


async def create_user_app(baobab: Baobab) -> UserApp:
    app = UserApp(baobab, await baobab.create_app())
    await give_tools(baobab, app.id, TOOLS)
    reset_rate_limits(baobab.application.services)
    signed_up = await app.request("POST", f"/auth/{app.id}/signup", {}, email=EMAIL, password=PASSWORD)
    assert signed_up.status_code == 201, signed_up.text
    own = "user:%7Buser.id%7D:**"
    exposed = await app.request("PUT", f"/v1/{app.id}/kv/_expose/{own}", read="owner", write="owner")
    assert exposed.status_code == 204, exposed.text
    return app


class Browser:
    """A user with a browser that knows forms and no script: signs in on the page and decides there."""

    def __init__(self, app: UserApp, decision: str = "approve", *, by_code: bool = False) -> None:
        self.app = app
        self.decision = decision
        self.by_code = by_code
        self.pages: list[httpx.Response] = []
        self.callback_query: dict[str, str] = {}

    async def open_link(self, link: str) -> None:
        sent_on = (await self.app.client.get(link)).headers["location"]
        assert sent_on.startswith(f"{self.app.issuer}/mcp/consent?"), sent_on
        self.pages.append(await self.app.client.get(sent_on))
        await self.sign_in()
        answer = await self.send(self.decision)
        assert answer.status_code == 303, answer.text
        self.callback_query = parse_query(answer.headers["location"])

    async def sign_in(self) -> None:
        reset_rate_limits(self.app.baobab.application.services)
        if self.by_code:
            self.pages.append(await self.send("mail", email=EMAIL))
            self.pages.append(await self.send("code", code=await self.app.read_code()))
        else:
            self.pages.append(await self.send("password", email=EMAIL, password=PASSWORD))
        assert self.pages[-1].status_code == 200, self.pages[-1].text

    async def send(self, step: str, headers: dict[str, str] | None = None, **fields: str) -> httpx.Response:
        """Sends the form of the newest page, as it stands there."""
        hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.pages[-1].text)
        form = {name: html.unescape(value) for name, value in hidden} | fields | {"step": step}
        same_site = {"origin": self.app.address, "sec-fetch-site": "same-origin"}
        return await self.app.client.post(
            f"{self.app.issuer}/mcp/consent", data=form, headers=same_site if headers is None else headers
        )

    async def read_callback(self) -> AuthorizationCodeResult:
        found = self.callback_query
        return AuthorizationCodeResult(code=found.get("code", ""), state=found.get("state"), iss=found.get("iss"))


@contextlib.asynccontextmanager
async def connect(app: UserApp, browser: Any, storage: Storage, **options: Any) -> AsyncIterator[Client]:
    """The official client at the app's address, with its own OAuth."""
    metadata = OAuthClientMetadata(client_name="Official", redirect_uris=[AnyUrl(REDIRECT)])
    auth = OAuthClientProvider(app.resource, metadata, storage, browser.open_link, browser.read_callback, **options)
    transport = httpx2.ASGITransport(app=get_asgi_app(app.client))
    async with (
        httpx2.AsyncClient(transport=transport, auth=auth, base_url=app.address) as http,
        Client(streamable_http_client(app.resource, http_client=http)) as client,
    ):
        yield client


class OAuthSteps:
    """The client's steps one by one, each of which a test may take wrongly."""

    def __init__(self, app: UserApp) -> None:
        self.app = app
        self.verifier = secrets.token_urlsafe(48)
        self.client_id = ""

    async def register(self, *uris: str, name: str = "Steps") -> httpx.Response:
        body = {"redirect_uris": list(uris or (REDIRECT,)), "client_name": name}
        answer = await self.app.client.post(f"{self.app.issuer}/mcp/register", json=body)
        self.client_id = answer.json().get("client_id", "")
        return answer

    async def authorize(self, at: str | None = None, **changed: str | None) -> httpx.Response:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")
        asked = {"response_type": "code", "client_id": self.client_id, "redirect_uri": REDIRECT, "state": "a state"}
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        given = {name: value for name, value in {**asked, **changed}.items() if value is not None}
        return await self.app.client.get(f"{at or self.app.issuer}/mcp/authorize", params=given)

    async def decide(self, token: str | None = None, **changed: str | None) -> dict[str, str]:
        """What the browser brings back to the client once Ada has agreed, by a page of the app's own."""
        by = {"authorization": f"Bearer {token or (await self.app.log_in())['access_token']}"}
        request = parse_query((await self.authorize(**changed)).headers["location"])["request"]
        path = f"/auth/{self.app.id}/mcp/decision"
        decided = await self.app.request("POST", path, by, request=request, decision="approve")
        assert decided.status_code == 200, decided.text
        return parse_query(decided.json()["redirect_to"])

    async def exchange(self, code: str, at: str | None = None, **changed: str | None) -> httpx.Response:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT}
        form |= {"client_id": self.client_id, "code_verifier": self.verifier}
        given = {name: value for name, value in {**form, **changed}.items() if value is not None}
        return await self.app.client.post(f"{at or self.app.issuer}/mcp/token", data=given)

    async def connect(self) -> dict[str, Any]:
        """The tokens of a client that has gone the whole way."""
        tokens: dict[str, Any] = (await self.exchange((await self.decide())["code"])).json()
        return tokens

    async def refresh(self, token: str, at: str | None = None, **changed: str) -> httpx.Response:
        form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.client_id, **changed}
        return await self.app.client.post(f"{at or self.app.issuer}/mcp/token", data=form)


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "BAOBAB_ALLOWED_HOSTS": "baobab.test"}


@pytest.fixture
async def app(baobab: Baobab) -> UserApp:
    return await create_user_app(baobab)


@pytest.fixture
async def steps(app: UserApp) -> OAuthSteps:
    made = OAuthSteps(app)
    assert (await made.register()).status_code == 201
    return made


# -- The whole way -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_code", [False, True], ids=["by password", "by mailed code"])
async def test_the_official_client_signs_a_user_in_and_gets_the_tools_of_users(app: UserApp, by_code: bool) -> None:
    browser, storage = Browser(app, by_code=by_code), Storage()
    async with connect(app, browser, storage) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        # The rules of the rows are as over REST.
        user_id = await app.find_user_id()
        written = await client.call_tool("kv_put", {"key": f"user:{user_id}:note", "value": "mine"})
        assert not written.is_error, written.content
        assert "mine" in str((await client.call_tool("kv_get", {"key": f"user:{user_id}:note"})).content)
        refused = await client.call_tool("kv_get", {"key": f"user:{OTHER}:note"})
        assert refused.is_error
        assert "AUTH_INSUFFICIENT_PERMISSIONS" in str(refused.content)
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
    renewed = await steps.refresh(str(first), resource=app.resource)
    assert renewed.status_code == 200, renewed.text
    assert renewed.json()["refresh_token"] != first
    assert await app.is_accepted(renewed.json()["access_token"])


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
    assert "config_get" in await list_platform_tools(app.baobab, platform, storage)
    for came_anew in (False, True):
        platform.shown = {}
        async with connect(app, platform, storage) as client:
            assert "search_tools" in [tool.name for tool in (await client.list_tools()).tools]
            assert not (await client.call_tool("config_get", {})).is_error
        # Once its access has ended, it is led to the platform again, and not to the app's sign-in.
        assert bool(platform.shown) is came_anew
        for program in (await app.request("GET", "/oauth/programs", person.headers)).json()["programs"]:
            ended = await app.request("DELETE", f"/oauth/programs/{program['id']}", person.headers)
            assert ended.status_code == 200


async def test_what_waits_for_a_person_never_waits_for_the_user(steps: OAuthSteps) -> None:
    app = steps.app
    await give_tools(app.baobab, app.id, ["agents_run", "agents_runs_get"])
    made = await app.request("POST", f"/v1/{app.id}/agents", name="asker", graph_spec=ASK, visibility="authenticated")
    assert made.status_code == 201, made.text
    tokens = await steps.connect()
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    async with (
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=get_asgi_app(app.client)), headers=headers, base_url=ADDRESS
        ) as http,
        Client(streamable_http_client(app.resource, http_client=http)) as client,
    ):
        started: Any = (await client.call_tool("agents_run", {"name": "asker", "input": {}})).structured_content
        await run_due_jobs(app.baobab.application)
        run = {"name": "asker", "id": started["run_id"]}
        assert "paused" in str((await client.call_tool("agents_runs_get", run)).content)
        path = f"/v1/{app.id}/agents/asker/runs/{started['run_id']}"
        events = (await app.request("GET", f"{path}/events.json")).json()["events"]
        body: dict[str, Any] = {"approval_token": events[-1]["payload"]["approval_token"], "approved": True}
        decision = {**run, **body}
        for tool in ("agents_runs_resume", "approvals_approve", "call_tool"):
            with pytest.raises(MCPError):
                await client.call_tool(tool, decision)
    assert (await app.request("POST", f"{path}/resume", headers, **body)).status_code == 401
    decided = await app.request("POST", f"{path}/resume", **body)
    assert decided.status_code == 200, decided.text


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
    refused = await steps.app.request("POST", f"/auth/{steps.app.id}/refresh", {}, **body)
    assert refused.status_code == 401
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
    ("changed", "error"),
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
async def test_an_odd_request_is_refused(steps: OAuthSteps, changed: dict[str, str | None], error: str) -> None:
    answer = await steps.authorize(**changed)
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
    "changed",
    [
        {"code_verifier": None},
        {"code_verifier": "x" * 64},
        {"redirect_uri": "http://127.0.0.1:3000/other"},
        {"resource": f"{ADDRESS}/mcp"},
        {"resource": "https://evil.example/"},
    ],
)
async def test_a_code_is_not_exchanged_without_what_it_is_bound_to(
    steps: OAuthSteps, changed: dict[str, str | None]
) -> None:
    code = (await steps.decide())["code"]
    refused = await steps.exchange(code, **changed)
    assert refused.status_code == 400, refused.text
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
    refused = await other.app.request("POST", path, by, request=request, decision="approve")
    assert refused.status_code == 400
    # The code and the refresh token of one app, at the other's token endpoint.
    code = (await steps.decide())["code"]
    for client_id in (steps.client_id, other.client_id):
        refused = await steps.exchange(code, at=other.app.issuer, client_id=client_id)
        assert refused.status_code in (400, 401)
    tokens = (await steps.exchange(code)).json()
    for client_id in (steps.client_id, other.client_id):
        refused = await steps.refresh(tokens["refresh_token"], at=other.app.issuer, client_id=client_id)
        assert refused.status_code in (400, 401)
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
        refused = await app.request("POST", f"/auth/{app.id}/mcp/decision", by, request=request, decision="approve")
        assert refused.status_code == status, refused.text


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
        refused = await browser.send("password", headers, email=EMAIL, password=PASSWORD)
        assert refused.status_code == 403
        assert "ticket" not in refused.text
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
    refused = await browser.send("password", email=EMAIL, password="wrong")
    assert refused.status_code == 401
    assert "Invalid credentials" in refused.text
    assert "ticket" not in refused.text
    assert (await app.client.get(f"{app.issuer}/mcp/consent", params={"request": "v1.x.y"})).status_code == 400
