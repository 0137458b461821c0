"""An app whose users sign in from MCP clients: a browser, the steps of the protocol, and the official client."""

import base64
import contextlib
import hashlib
import html
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
from pydantic import AnyUrl

from tests.conftest import ADDRESS, Baobab
from tests.installation import get_asgi_app, reset_rate_limits
from tests.jobs import run_due_jobs
from tests.mcp_server.mcp_requests import give_tools
from tests.mcp_server.oauth_client import REDIRECT, Storage, parse_query

EMAIL, PASSWORD = "ada@example.com", "correct Horse 7!"
TOOLS = ["kv_get", "kv_put"]
OTHER = "22222222-2222-4222-8222-222222222222"
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
        match = re.search(r"^    (\d{6})$", outbox["mails"][0]["text"], re.MULTILINE)
        assert match
        return match[1]

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
    response = await app.request("PUT", f"/v1/{app.id}/kv/_expose/{own}", read="owner", write="owner")
    assert response.status_code == 204, response.text
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
        matches = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', self.pages[-1].text)
        form = {name: html.unescape(value) for name, value in matches} | fields | {"step": step}
        same_site = {"origin": self.app.address, "sec-fetch-site": "same-origin"}
        return await self.app.client.post(
            f"{self.app.issuer}/mcp/consent", data=form, headers=same_site if headers is None else headers
        )

    async def read_callback(self) -> AuthorizationCodeResult:
        callback_query = self.callback_query
        return AuthorizationCodeResult(
            code=callback_query.get("code", ""), state=callback_query.get("state"), iss=callback_query.get("iss")
        )


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

    async def authorize(self, at: str | None = None, **changes: str | None) -> httpx.Response:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")
        query = {"response_type": "code", "client_id": self.client_id, "redirect_uri": REDIRECT, "state": "a state"}
        query |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        present_query = {name: value for name, value in {**query, **changes}.items() if value is not None}
        return await self.app.client.get(f"{at or self.app.issuer}/mcp/authorize", params=present_query)

    async def decide(self, token: str | None = None, **changes: str | None) -> dict[str, str]:
        """What the browser brings back to the client once Ada has agreed, by a page of the app's own."""
        by = {"authorization": f"Bearer {token or (await self.app.log_in())['access_token']}"}
        request = parse_query((await self.authorize(**changes)).headers["location"])["request"]
        path = f"/auth/{self.app.id}/mcp/decision"
        response = await self.app.request("POST", path, by, request=request, decision="approve")
        assert response.status_code == 200, response.text
        return parse_query(response.json()["redirect_to"])

    async def exchange(self, code: str, at: str | None = None, **changes: str | None) -> httpx.Response:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT}
        form |= {"client_id": self.client_id, "code_verifier": self.verifier}
        present_form = {name: value for name, value in {**form, **changes}.items() if value is not None}
        return await self.app.client.post(f"{at or self.app.issuer}/mcp/token", data=present_form)

    async def connect(self) -> dict[str, Any]:
        """The tokens of a client that has gone the whole way."""
        tokens: dict[str, Any] = (await self.exchange((await self.decide())["code"])).json()
        return tokens

    async def refresh(self, token: str, at: str | None = None, **changes: str) -> httpx.Response:
        form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.client_id, **changes}
        return await self.app.client.post(f"{at or self.app.issuer}/mcp/token", data=form)


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "BAOBAB_ALLOWED_HOSTS": "baobab.test"}


@pytest.fixture
async def app(baobab: Baobab) -> UserApp:
    return await create_user_app(baobab)


@pytest.fixture
async def steps(app: UserApp) -> OAuthSteps:
    oauth_steps = OAuthSteps(app)
    assert (await oauth_steps.register()).status_code == 201
    return oauth_steps


# -- The whole way -----------------------------------------------------------------------------------------------------
