"""OAuth from outside: the official client goes the whole way, and others try to go another."""

import asyncio
import base64
import dataclasses
import hashlib
import json
import re
import secrets
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata
from pydantic import AnyUrl

from baobab.runtime.net.egress import EgressResponse
from baobab.tools.core.limits.plans import PLANS
from tests.conftest import ADDRESS, Baobab
from tests.installation import get_asgi_app
from tests.mcp_server.oauth_client import REDIRECT, Storage, parse_query
from tests.people import Person, create_key, create_person

pytestmark = pytest.mark.own_installation

DOCUMENT = "https://client.example/oauth/client.json"
ELSEWHERE = {"origin": "https://inspector.example"}


class Browser:
    """A person with a browser: follows the client's link to the consent page and decides there."""

    def __init__(self, baobab: Baobab, who: Person, **decision: Any) -> None:
        self._baobab = baobab
        self._who = who
        self._decision = {"decision": "approve", **decision}
        self.consent_request: dict[str, Any] = {}
        self.callback_query: dict[str, str] = {}

    async def open_link(self, link: str) -> None:
        client = self._baobab.client
        sent_on = (await client.get(link)).headers["location"]
        page = await client.get(sent_on)
        assert page.headers["content-type"].startswith("text/html")
        request = parse_query(sent_on)["request"]
        self.consent_request = (await client.get("/oauth/request", params={"request": request})).json()
        body = {"request": request, **self._decision}
        response = await client.post("/oauth/decision", json=body, headers=self._who.headers)
        assert response.status_code == 200, response.text
        self.callback_query = parse_query(response.json()["redirect_to"])

    async def read_callback(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(
            code=self.callback_query.get("code", ""),
            state=self.callback_query.get("state"),
            iss=self.callback_query.get("iss"),
        )


class FakeHttpClient:
    """The network, on which one client's document is published."""

    async def request(self, method: str, url: str, **options: Any) -> EgressResponse:
        document = {"client_id": DOCUMENT, "client_name": "Published", "redirect_uris": ["http://localhost/callback"]}
        return EgressResponse(200, {"Content-Type": "application/json"}, json.dumps(document).encode(), url)


async def list_tools(
    baobab: Baobab,
    browser: Browser,
    storage: Storage,
    redirect: str = REDIRECT,
    address: str = ADDRESS,
    **options: Any,
) -> list[str]:
    """The names of the tools that the official client sees after it has been through OAuth."""
    metadata = OAuthClientMetadata(client_name="Official", redirect_uris=[AnyUrl(redirect)])
    auth = OAuthClientProvider(f"{address}/mcp", metadata, storage, browser.open_link, browser.read_callback, **options)
    transport = httpx2.ASGITransport(app=get_asgi_app(baobab.client))
    async with (
        httpx2.AsyncClient(transport=transport, auth=auth, base_url=address) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
    ):
        return [tool.name for tool in (await client.list_tools()).tools]


class OAuthSteps:
    """The client's steps one by one, each of which a test may take wrongly."""

    def __init__(self, baobab: Baobab, who: Person) -> None:
        self.client = baobab.client
        self.who = who
        self.verifier = secrets.token_urlsafe(48)
        self.client_id = ""
        self.decision: dict[str, Any] = {"decision": "approve"}

    async def register_client(self, *uris: str, **more: Any) -> httpx.Response:
        body = {"redirect_uris": list(uris or (REDIRECT,)), "client_name": "Steps", **more}
        answer = await self.client.post("/oauth/register", json=body)
        self.client_id = answer.json().get("client_id", "")
        return answer

    async def authorize(self, **changes: str | None) -> httpx.Response:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": REDIRECT,
            "state": "some state",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **changes,
        }
        return await self.client.get("/oauth/authorize", params={k: v for k, v in query.items() if v is not None})

    async def obtain_code(self, **changes: str | None) -> str:
        sent_on = (await self.authorize(**changes)).headers["location"]
        body = {"request": parse_query(sent_on)["request"], **self.decision}
        response = await self.client.post("/oauth/decision", json=body, headers=self.who.headers)
        return parse_query(response.json()["redirect_to"])["code"]

    async def exchange_code(self, code: str, **changes: str | None) -> httpx.Response:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": REDIRECT,
            "client_id": self.client_id,
            "code_verifier": self.verifier,
            **changes,
        }
        return await self.client.post("/oauth/token", data={k: v for k, v in form.items() if v is not None})

    async def is_key_valid(self, key: str) -> bool:
        answer = await self.client.get("/platform/me", headers={"authorization": f"Bearer {key}"})
        return answer.status_code == 200


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "BAOBAB_ALLOWED_HOSTS": "baobab.test"}


@pytest.fixture
async def ada(baobab: Baobab) -> Person:
    return await create_person(baobab, "ada")


@pytest.fixture
async def steps(baobab: Baobab, ada: Person) -> OAuthSteps:
    oauth_steps = OAuthSteps(baobab, ada)
    await oauth_steps.register_client()
    return oauth_steps


@pytest.mark.parametrize("address", ["http://localhost:8000", "http://[::1]:8000", "http://baobab.test:8000"])
async def test_the_official_client_signs_in_at_every_name_of_the_server(
    baobab: Baobab, ada: Person, address: str
) -> None:
    storage = Storage()
    assert "kv_get" in await list_tools(baobab, Browser(baobab, ada), storage, address=address)
    metadata = await baobab.client.get(f"{address}/.well-known/oauth-protected-resource/mcp")
    assert metadata.json()["resource"] == f"{address}/mcp"
    # One installation: the key that was made at one name is good at the others.
    assert storage.tokens is not None
    by = {"authorization": f"Bearer {storage.tokens.access_token}"}
    assert (await baobab.client.get("/platform/me", headers=by)).status_code == 200


async def test_metadata_name_no_address_but_the_servers_own(baobab: Baobab) -> None:
    answer = await baobab.client.get("/.well-known/oauth-authorization-server", headers={"host": "evil.example"})
    assert answer.status_code == 421
    answer = await baobab.client.get("/.well-known/oauth-authorization-server")
    assert answer.json()["issuer"] == ADDRESS


async def test_the_official_client_registers_and_gets_a_key_that_its_person_can_revoke(
    baobab: Baobab, ada: Person
) -> None:
    browser, storage = Browser(baobab, ada), Storage()
    assert "kv_get" in await list_tools(baobab, browser, storage)
    assert browser.consent_request["client_name"] == "Official"
    assert browser.consent_request["redirect_host"] == "127.0.0.1:3000"
    assert storage.tokens is not None
    assert storage.tokens.access_token.startswith("bb_sk_")
    assert storage.tokens.expires_in == 3600
    assert storage.tokens.refresh_token
    assert storage.client is not None
    assert (storage.client.token_endpoint_auth_method, storage.client.client_secret) == ("none", None)

    keys = (await baobab.client.get("/api-keys", headers=ada.headers)).json()["keys"]
    assert [k["name"] for k in keys] == ["Official (OAuth)"]
    response = await baobab.client.delete(f"/api-keys/{keys[0]['id']}", headers=ada.headers)
    assert response.json() == {"revoked": True, "keys_revoked": 1}
    answer = await baobab.client.post(
        "/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        headers={
            "authorization": f"Bearer {storage.tokens.access_token}",
            "accept": "application/json, text/event-stream",
        },
    )
    assert answer.status_code == 401


async def test_the_official_client_gets_a_key_by_the_document_that_describes_it(baobab: Baobab, ada: Person) -> None:
    object.__setattr__(baobab.application.services, "http_client", FakeHttpClient())
    browser, storage = Browser(baobab, ada, read_only=True), Storage()
    # The document registers localhost with no port; this client listens on one.
    redirect = "http://localhost:4711/callback"
    names = await list_tools(baobab, browser, storage, redirect, client_metadata_url=DOCUMENT)
    assert "kv_get" in names
    assert "kv_put" not in names
    assert browser.consent_request["client_document"] is True
    assert browser.consent_request["client_id"] == DOCUMENT
    assert browser.consent_request["redirect_host"] == "localhost:4711"


async def test_the_official_client_understands_a_refusal(baobab: Baobab, ada: Person) -> None:
    browser, storage = Browser(baobab, ada, decision="deny"), Storage()
    with pytest.raises(BaseExceptionGroup) as refusal:
        await list_tools(baobab, browser, storage)
    assert "No authorization code received" in "".join(str(part) for part in _flatten_errors(refusal.value))
    assert browser.callback_query["error"] == "access_denied"
    assert storage.tokens is None


def _flatten_errors(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [part for inner in error.exceptions for part in _flatten_errors(inner)]
    return [error]


async def test_the_metadata_say_what_is_served(baobab: Baobab) -> None:
    server = (await baobab.client.get("/.well-known/oauth-authorization-server")).json()
    assert server["issuer"] == ADDRESS
    assert server["authorization_endpoint"] == f"{ADDRESS}/oauth/authorize"
    assert server["token_endpoint"] == f"{ADDRESS}/oauth/token"
    assert server["registration_endpoint"] == f"{ADDRESS}/oauth/register"
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["token_endpoint_auth_methods_supported"] == ["none"]
    assert server["grant_types_supported"] == ["authorization_code", "refresh_token"]
    assert server["revocation_endpoint"] == f"{ADDRESS}/oauth/revoke"
    assert server["client_id_metadata_document_supported"] is True
    assert server["authorization_response_iss_parameter_supported"] is True
    for path in ("", "/mcp"):
        resource = (await baobab.client.get(f"/.well-known/oauth-protected-resource{path}")).json()
        assert resource["resource"] == f"{ADDRESS}/mcp"
        assert resource["authorization_servers"] == [ADDRESS]
        assert resource["scopes_supported"] == ["mcp", "ai:gateway"]
        assert resource["bearer_methods_supported"] == ["header"]


async def test_a_client_is_registered_without_a_secret_whatever_it_asks_for(steps: OAuthSteps) -> None:
    for method in ("none", "client_secret_post", "client_secret_basic", None):
        more = {"token_endpoint_auth_method": method} if method else {}
        answer = await steps.register_client(**more, logo_uri="https://client.example/logo.png")
        assert answer.status_code == 201
        body = answer.json()
        assert body["token_endpoint_auth_method"] == "none"
        assert body["grant_types"] == ["authorization_code", "refresh_token"]
        assert body.keys() >= {"client_id", "client_id_issued_at", "redirect_uris", "client_name"}
        assert not body.keys() & {"client_secret", "client_secret_expires_at", "logo_uri"}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://evil.example/cb"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://app.example/cb#x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": []}, "invalid_client_metadata"),
        ({"redirect_uris": [REDIRECT], "client_name": "n" * 101}, "invalid_client_metadata"),
        ({"redirect_uris": [REDIRECT], "client_name": "a\x00b"}, "invalid_client_metadata"),
        ({"redirect_uris": [REDIRECT], "scope": "admin"}, "invalid_client_metadata"),
        ({"redirect_uris": [REDIRECT], "grant_types": ["password"]}, "invalid_client_metadata"),
        ({"redirect_uris": 7}, "invalid_client_metadata"),
        ([], "invalid_client_metadata"),
    ],
)
async def test_a_registration_that_cannot_be_is_refused_in_the_words_of_oauth(
    baobab: Baobab, body: Any, error: str
) -> None:
    answer = await baobab.client.post("/oauth/register", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"] == error


async def test_the_twenty_first_registration_of_an_hour_waits(baobab: Baobab) -> None:
    body = {"redirect_uris": [REDIRECT]}
    for _ in range(20):
        assert (await baobab.client.post("/oauth/register", json=body)).status_code == 201
    answer = await baobab.client.post("/oauth/register", json=body)
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 3600
    assert answer.json()["error"] == "temporarily_unavailable"
    # Another address is another client.
    transport = httpx.ASGITransport(app=get_asgi_app(baobab.client), client=("192.0.2.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as other:
        assert (await other.post("/oauth/register", json=body)).status_code == 201


async def test_a_registration_that_is_too_large_is_not_read(baobab: Baobab) -> None:
    answer = await baobab.client.post("/oauth/register", content=b"x" * 70_000)
    assert answer.status_code == 413


async def test_the_answers_of_the_token_endpoint_are_what_oauth_says(steps: OAuthSteps) -> None:
    answer = await steps.exchange_code(await steps.obtain_code(scope="mcp ai:gateway", resource=f"{ADDRESS}/mcp"))
    assert answer.status_code == 200
    body = answer.json()
    assert body.keys() == {"access_token", "token_type", "scope", "refresh_token", "expires_in"}
    assert (body["token_type"], body["scope"]) == ("Bearer", "mcp ai:gateway")
    assert answer.headers["cache-control"] == "no-store"
    assert await steps.is_key_valid(body["access_token"])


async def test_a_plan_without_room_for_a_key_is_told_in_the_words_of_oauth(
    steps: OAuthSteps, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = await steps.obtain_code()
    monkeypatch.setitem(PLANS, "enterprise", dataclasses.replace(PLANS["enterprise"], api_keys=0))
    answer = await steps.exchange_code(code)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert "room for 0 live API keys" in answer.json()["error_description"]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"scope": "admin"}, "invalid_scope"),
        ({"scope": "*"}, "invalid_scope"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"state": "s" * 2001}, "invalid_request"),
    ],
)
async def test_a_request_that_cannot_be_is_sent_back_with_the_reason(
    steps: OAuthSteps, changes: dict[str, str | None], error: str
) -> None:
    answer = await steps.authorize(**changes)
    assert answer.status_code == 302
    assert answer.headers["location"].startswith(f"{REDIRECT}?")
    sent_back = parse_query(answer.headers["location"])
    assert sent_back["error"] == error
    assert sent_back["iss"] == ADDRESS
    assert sent_back["state"] == changes.get("state", "some state")


@pytest.mark.parametrize(
    "changes",
    [
        {"redirect_uri": "https://evil.example/callback"},
        {"redirect_uri": "http://127.0.0.1:3000/other"},
        {"redirect_uri": "http://localhost:3000/callback"},
        {"redirect_uri": "http://127.0.0.1:3000/callback?more=1"},
        {"redirect_uri": "http://127.0.0.1:3000/callback#x"},
        {"redirect_uri": "http://evil.example@127.0.0.1:3000/callback"},
        {"redirect_uri": "javascript:alert(1)"},
        {"client_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"},
        {"client_id": "x" * 3000},
        {"client_id": "a\x00b"},
        {"client_id": None},
    ],
)
async def test_nobody_is_sent_to_an_address_that_is_not_the_clients(
    steps: OAuthSteps, changes: dict[str, str | None]
) -> None:
    for more in ({}, {"code_challenge": None}):
        answer = await steps.authorize(**changes, **more)
        assert answer.status_code == 400
        assert "location" not in answer.headers
        assert answer.json()["error"] == "invalid_request"


async def test_a_client_on_this_machine_may_listen_on_any_port(steps: OAuthSteps) -> None:
    elsewhere = "http://127.0.0.1:50123/callback"
    code = await steps.obtain_code(redirect_uri=elsewhere)
    assert (await steps.exchange_code(code)).json()["error"] == "invalid_grant"
    assert (await steps.exchange_code(code, redirect_uri=elsewhere)).status_code == 200


async def test_an_address_elsewhere_keeps_its_port(steps: OAuthSteps) -> None:
    await steps.register_client("https://app.example/callback")
    answer = await steps.authorize(redirect_uri="https://app.example:8443/callback")
    assert answer.status_code == 400


async def test_a_client_with_one_address_need_not_name_it(steps: OAuthSteps) -> None:
    code = await steps.obtain_code(redirect_uri=None)
    assert (await steps.exchange_code(code, redirect_uri=None)).status_code == 200


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"code_verifier": "w" * 64}, 400, "invalid_grant"),
        ({"code_verifier": None}, 400, "invalid_request"),
        ({"redirect_uri": None}, 400, "invalid_request"),
        ({"redirect_uri": "http://127.0.0.1:3000/other"}, 400, "invalid_grant"),
        ({"code": "unknown"}, 400, "invalid_grant"),
        ({"code": "c" * 500}, 400, "invalid_grant"),
        ({"grant_type": "refresh_token", "refresh_token": "r"}, 400, "invalid_grant"),
        ({"grant_type": "client_credentials"}, 400, "unsupported_grant_type"),
        ({"client_id": "unknown"}, 401, "invalid_client"),
        ({"client_id": None}, 401, "invalid_client"),
        ({"resource": "https://elsewhere.example/mcp"}, 400, "invalid_target"),
    ],
)
async def test_a_code_is_not_exchanged_by_whoever_cannot_show_all_of_it(
    steps: OAuthSteps, changes: dict[str, str | None], status: int, error: str
) -> None:
    code = await steps.obtain_code()
    refusal = await steps.exchange_code(**{"code": code, **changes})  # type: ignore[arg-type]
    assert (refusal.status_code, refusal.json()["error"]) == (status, error)
    # Nobody but the client could use the code up.
    assert (await steps.exchange_code(code)).status_code == 200


async def test_a_code_of_one_client_is_nothing_to_another(steps: OAuthSteps) -> None:
    code, first = await steps.obtain_code(), steps.client_id
    await steps.register_client()
    assert (await steps.exchange_code(code)).json()["error"] == "invalid_grant"
    steps.client_id = first
    assert (await steps.exchange_code(code)).status_code == 200


async def test_a_code_that_comes_again_takes_the_key_out_of_force(steps: OAuthSteps) -> None:
    code = await steps.obtain_code()
    access_token = (await steps.exchange_code(code)).json()["access_token"]
    # Without the verifier a code that was seen somewhere is no lever against its client.
    assert (await steps.exchange_code(code, code_verifier="w" * 64)).json()["error"] == "invalid_grant"
    assert await steps.is_key_valid(access_token)
    again = await steps.exchange_code(code)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert not await steps.is_key_valid(access_token)


async def test_two_exchanges_at_once_get_one_key_between_them(steps: OAuthSteps) -> None:
    code = await steps.obtain_code()
    answers = await asyncio.gather(steps.exchange_code(code), steps.exchange_code(code))
    assert sorted(answer.status_code for answer in answers) == [200, 400]


async def test_a_form_that_is_none_is_refused(baobab: Baobab) -> None:
    for content, kind in (
        (b"\xff\xfe", "application/x-www-form-urlencoded"),
        (b"{}", "application/json"),
        (b"x", "multipart/form-data; boundary=b"),
        (b"x", "multipart/form-data"),
    ):
        answer = await baobab.client.post("/oauth/token", content=content, headers={"content-type": kind})
        assert answer.status_code in (400, 401), kind
        assert answer.json()["error"] in ("invalid_request", "invalid_client")


async def test_a_page_of_another_site_may_read_metadata_register_and_exchange(baobab: Baobab) -> None:
    for path in ("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource/mcp"):
        answer = await baobab.client.get(path, headers=ELSEWHERE)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "*")
    response = await baobab.client.post("/oauth/register", json={"redirect_uris": [REDIRECT]}, headers=ELSEWHERE)
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (201, "*")
    preflight_headers = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    for path in ("/oauth/register", "/oauth/token"):
        preflight = await baobab.client.options(path, headers={**ELSEWHERE, **preflight_headers})
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert "content-type" in preflight.headers["access-control-allow-headers"].lower()
        assert "access-control-allow-credentials" not in preflight.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/oauth/authorize"),
        ("GET", "/oauth/consent"),
        ("GET", "/oauth/request"),
        ("POST", "/oauth/decision"),
    ],
)
async def test_a_page_of_another_site_may_do_no_more(baobab: Baobab, method: str, path: str) -> None:
    answer = await baobab.client.request(method, path, headers=ELSEWHERE)
    assert answer.status_code == 403


async def test_a_key_decides_nothing(baobab: Baobab, steps: OAuthSteps) -> None:
    request = parse_query((await steps.authorize()).headers["location"])["request"]
    body = {"request": request, "decision": "approve"}
    for headers in (baobab.owner, await create_key(baobab, steps.who.headers, scopes=["ai:gateway"])):
        assert (await baobab.client.post("/oauth/decision", json=body, headers=headers)).status_code == 403
    assert (await baobab.client.post("/oauth/decision", json=body)).status_code == 401


async def test_the_consent_page_is_locked_down(baobab: Baobab) -> None:
    for path in ("", "/consent.css", "/consent.js"):
        answer = await baobab.client.get(f"/oauth/consent{path}?request=x")
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
    page = (await baobab.client.get("/oauth/consent")).text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", page)
    for link in re.findall(r'(?:href|src)="([^"]+)"', page):
        if not link.startswith("data:"):
            # The console asks to sign in first.
            answer = await baobab.client.get(str(httpx.URL("/oauth/consent").join(link)), follow_redirects=True)
            assert answer.status_code == 200, link


async def test_the_consent_script_turns_nothing_into_markup_and_keeps_nothing(baobab: Baobab) -> None:
    script = (await baobab.client.get("/oauth/consent/consent.js")).text
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|\beval\b|new Function"
    places = r"localStorage|sessionStorage|indexedDB|document\.cookie|caches\.|window\.name"
    assert not re.search(f"{sinks}|{places}", script)
    page = (await baobab.client.get("/oauth/consent")).text
    for name in re.findall(r'(?:byId|show)\("([\w-]+)"', script):
        assert f'id="{name}"' in page, name


async def test_a_name_that_is_markup_stays_a_name(steps: OAuthSteps) -> None:
    name = "<img src=x onerror=alert(1)>\"'&"
    await steps.register_client(client_name=name)
    request = parse_query((await steps.authorize()).headers["location"])["request"]
    answer = await steps.client.get("/oauth/request", params={"request": request})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["client_name"] == name


async def test_the_official_client_refreshes_its_token_by_itself(baobab: Baobab) -> None:
    storage, browser = Storage(), Browser(baobab, await create_person(baobab, "ada"))
    metadata = OAuthClientMetadata(client_name="Official", redirect_uris=[AnyUrl(REDIRECT)])
    auth = OAuthClientProvider(f"{ADDRESS}/mcp", metadata, storage, browser.open_link, browser.read_callback)
    transport = httpx2.ASGITransport(app=get_asgi_app(baobab.client))
    async with (
        httpx2.AsyncClient(transport=transport, auth=auth, base_url=ADDRESS) as http,
        Client(streamable_http_client(f"{ADDRESS}/mcp", http_client=http)) as client,
    ):
        assert (await client.list_tools()).tools
        first, browser.callback_query = storage.tokens, {}
        # For the client its hour is over; no person is asked again.
        auth.context.token_expiry_time = 1.0
        assert not (await client.call_tool("platform_me", {})).is_error
    assert browser.callback_query == {}
    assert first is not None
    assert storage.tokens is not None
    assert storage.tokens.access_token != first.access_token
    assert storage.tokens.refresh_token != first.refresh_token
