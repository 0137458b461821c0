"""Sign-in with OAuth providers: whole flows against a provider on this machine, and what a forger may try."""

import base64
import contextlib
import hashlib
import hmac
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from sqlalchemy import select

from baobab.tools.users import oauth_flow
from baobab.tools.users.tables import user_providers
from tests.conftest import ADDRESS, Baobab
from tests.jobs import run_due_jobs

APP_SITE = "https://shop.example.com"
CLIENT = {"client_id": "client", "client_secret": "a secret", "redirect_uris": []}
EC_KEY = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
RSA_KEY = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})


def encode_part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@dataclass
class Provider:
    """An OAuth provider that gives a code to whoever comes, and says of each user what a test tells it to."""

    url: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    profile: Any = field(default_factory=dict)
    emails: Any = field(default_factory=list)
    key: Any = field(default_factory=lambda: EC_KEY)
    header: dict[str, Any] = field(default_factory=dict)
    keys: list[Any] = field(default_factory=lambda: [RSA_KEY, EC_KEY])
    queries_by_code: dict[str, dict[str, str]] = field(default_factory=dict)
    token_requests: list[dict[str, Any]] = field(default_factory=list)
    jwks_requests: int = 0

    def authorize(self, address: str) -> dict[str, str]:
        """Signs in at an address, and returns the parameters that the browser brings back."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        code = f"code-{len(self.queries_by_code)}"
        self.queries_by_code[code] = query
        return {"code": code, "state": query["state"]}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/token", self.answer_token),
            web.get("/userinfo", self.answer_profile),
            web.get("/userinfo/emails", self.answer_emails),
            web.get("/jwks", self.answer_keys),
        ]

    async def answer_token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.token_requests.append({**form, "basic": request.headers.get("authorization")})
        query = self.queries_by_code.pop(form["code"], None)
        if query is None or form["redirect_uri"] != query["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if "code_challenge" in query:
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            assert base64.urlsafe_b64encode(digest).decode().rstrip("=") == query["code_challenge"]
        now = int(time.time())
        claims = {"iss": self.url, "aud": "client", "iat": now, "exp": now + 60, "sub": "u1", **self.claims}
        if "nonce" in query:
            claims = {"nonce": query["nonce"], **claims}
        return web.json_response({"access_token": "provider's", "id_token": self.sign(claims)})

    def sign(self, claims: dict[str, Any]) -> str:
        algorithm = self.header.get("alg") or ("RS256" if self.key is RSA_KEY else "ES256")
        if algorithm in ("none", "HS256"):
            signing_input = f"{encode_part(self.header)}.{encode_part(claims)}"
            # With the public key as the secret: a verifier that trusts the header takes it.
            mac = hmac.digest(RSA_KEY.as_pem(private=False), signing_input.encode(), "sha256")
            return f"{signing_input}." + (
                "" if algorithm == "none" else base64.urlsafe_b64encode(mac).decode().rstrip("=")
            )
        header = {"alg": algorithm, "kid": self.key.kid, **self.header}
        return jwt.encode(header, claims, self.key, algorithms=[algorithm])

    async def answer_profile(self, request: web.Request) -> web.Response:
        assert request.headers["authorization"] == "Bearer provider's"
        return web.json_response(self.profile)

    async def answer_emails(self, request: web.Request) -> web.Response:
        return web.json_response(self.emails)

    async def answer_keys(self, request: web.Request) -> web.Response:
        self.jwks_requests += 1
        keys = [key.as_dict(private=False) for key in self.keys]
        return web.json_response({"keys": [{"kty": "EC", "crv": "P-1", "kid": "odd"}, {"kty": "new"}, *keys]})


@contextlib.asynccontextmanager
async def open_provider() -> AsyncIterator[Provider]:
    provider, application = Provider(), web.Application()
    application.add_routes(provider.routes())
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with open_provider() as opened_provider:
        yield opened_provider


@dataclass
class Site:
    """An app whose users sign in with a provider, and a browser."""

    baobab: Baobab
    provider: Provider
    app: str

    async def configure(self, slug: str = "google", *, id_token: bool = True, **further: Any) -> Any:
        urls = {name: f"{self.provider.url}/{path}" for name, path in (
            ("authorization_url", "authorize"), ("token_url", "token"), ("userinfo_url", "userinfo")
        )}  # fmt: skip
        metadata = {"issuer": self.provider.url, "jwks_url": f"{self.provider.url}/jwks"} if id_token else {}
        body = {
            "provider": slug,
            **CLIENT,
            **urls,
            "provider_metadata": metadata | further.pop("metadata", {}),
            **further,
        }
        response = await self.baobab.client.post(self.config, json=body, headers=self.baobab.owner)
        assert response.status_code == 201, response.text
        return response.json()["config"]

    @property
    def config(self) -> str:
        return f"/v1/{self.app}/auth/oauth-config"

    async def start(self, slug: str = "google", **query: str) -> Any:
        return await self.baobab.client.get(f"/auth/{self.app}/oauth/{slug}", params=query)

    async def come_back(
        self, slug: str, callback_query: dict[str, str], started_response: Any, *, post: bool = False
    ) -> Any:
        path, cookie = (
            f"/auth/{self.app}/oauth/{slug}/callback",
            started_response.headers["set-cookie"].partition(";")[0],
        )
        # The cookie is sent by hand: a client that keeps cookies would bring those of other tests.
        self.baobab.client.cookies.clear()
        if post:
            headers = {"cookie": cookie, "origin": "https://appleid.apple.com"}
            return await self.baobab.client.post(path, data={**callback_query, "more": "1"}, headers=headers)
        query = {**callback_query, "authuser": "0"}
        cookie = f'settings={{"theme": "dark"}}; a b; {cookie}'
        return await self.baobab.client.get(path, params=query, headers={"cookie": cookie})

    async def sign_in(self, slug: str = "google", **query: str) -> Any:
        response = await self.start(slug, **query)
        assert response.status_code == 302, response.text
        callback_query = self.provider.authorize(response.headers["location"])
        return await self.come_back(slug, callback_query, response)


@pytest.fixture
async def site(baobab: Baobab, provider: Provider) -> Site:
    return Site(baobab, provider, await baobab.create_app())


@pytest.mark.parametrize("key", [EC_KEY, RSA_KEY], ids=["ES256", "RS256"])
async def test_a_user_comes_back_signed_in_with_tokens_in_the_query(site: Site, key: Any) -> None:
    await site.configure()
    body = {"allowed_origins": [APP_SITE]}
    await site.baobab.client.patch(f"/v1/{site.app}/config/cors", json=body, headers=site.baobab.owner)
    site.provider.key = key
    site.provider.claims = {"email": "Ada@example.com", "email_verified": True, "name": "Ada"}
    back = await site.sign_in(redirect_to=f"{APP_SITE}/welcome?page=1")
    assert back.status_code == 302, back.text
    address = urlsplit(back.headers["location"])
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    assert (f"{address.scheme}://{address.netloc}{address.path}", query["page"]) == (f"{APP_SITE}/welcome", "1")
    assert (query["expires_in"], query["token_type"]) == ("3600", "Bearer")
    assert back.headers["referrer-policy"] == "no-referrer"
    me = await site.baobab.client.get(
        f"/auth/{site.app}/me", headers={"authorization": f"Bearer {query['access_token']}"}
    )
    assert me.json()["email"] == "ada@example.com"
    assert (me.json()["email_verified"], me.json()["provider"], me.json()["display_name"]) == (True, "google", "Ada")
    again = (await site.sign_in()).json()
    assert again["user"]["id"] == me.json()["id"]
    response = await site.baobab.client.post(
        f"/auth/{site.app}/refresh", json={"refresh_token": query["refresh_token"]}
    )
    assert response.status_code == 200


async def test_a_secret_is_sealed_and_never_answered(site: Site) -> None:
    created_config = await site.configure("apple", metadata={"teamId": "T", "keyId": "K", "privateKey": "private text"})
    configs = (await site.baobab.client.get(site.config, headers=site.baobab.owner)).json()["configs"]
    one = (await site.baobab.client.get(f"{site.config}/apple", headers=site.baobab.owner)).json()["config"]
    assert created_config == one == configs[0]
    assert created_config["scopes"] == ["name", "email"]
    assert created_config["callback_url"] == f"http://127.0.0.1:8000/auth/{site.app}/oauth/apple/callback"
    assert created_config["provider_metadata"] == {
        **created_config["provider_metadata"],
        "teamId": "T",
        "privateKey": "(hidden)",
    }
    async with site.baobab.application.services.regions["local"].database.reading() as connection:
        (row,) = (await connection.execute(select(user_providers).where(user_providers.c.app_id == site.app))).all()
    for text in ("a secret", "private text"):
        assert text not in json.dumps(created_config)
        assert text not in row.client_secret + row.provider_metadata


async def test_apple_answers_with_a_form_and_tells_the_name_once(site: Site) -> None:
    key = ECKey.generate_key("P-256")
    metadata = {"teamId": "TEAM", "keyId": "KEY", "privateKey": key.as_pem(private=True).decode()}
    await site.configure("apple", metadata=metadata)
    site.provider.claims = {"email": "ada@example.com", "email_verified": "true"}
    started_response = await site.start("apple")
    query = parse_qs(urlsplit(started_response.headers["location"]).query)
    assert query["response_mode"] == ["form_post"]
    callback_query = site.provider.authorize(started_response.headers["location"])
    form = {**callback_query, "user": json.dumps({"name": {"firstName": "Ada", "lastName": "Lovelace"}})}
    back = await site.come_back("apple", form, started_response, post=True)
    assert back.status_code == 200, back.text
    assert back.json()["user"]["display_name"] == "Ada Lovelace"
    secret = jwt.decode(site.provider.token_requests[0]["client_secret"], key, algorithms=["ES256"])
    assert (secret.header["kid"], secret.claims["iss"], secret.claims["sub"]) == ("KEY", "TEAM", "client")


async def test_github_tells_the_address_in_a_list_of_its_own(site: Site) -> None:
    await site.configure("github", id_token=False)
    site.provider.profile = {"id": 7, "login": "ada", "email": "typed@example.com"}
    site.provider.emails = [
        {"email": "old@example.com", "primary": False, "verified": True},
        {"email": "ada@example.com", "primary": True, "verified": True},
    ]
    user = (await site.sign_in("github")).json()["user"]
    assert (user["email"], user["email_verified"], user["display_name"]) == ("ada@example.com", True, "ada")


async def test_x_gets_the_secret_in_a_header_and_its_users_an_address_of_ours(site: Site) -> None:
    await site.configure("x", id_token=False)
    site.provider.profile = {"data": {"id": "9", "username": "ada", "name": "Ada"}}
    user = (await site.sign_in("x")).json()["user"]
    assert (user["email"], user["email_verified"]) == ("ada@users.noreply.x.local", False)
    assert site.provider.token_requests[0]["basic"] == "Basic " + base64.b64encode(b"client:a secret").decode()
    assert "client_secret" not in site.provider.token_requests[0]


@pytest.mark.parametrize(
    ("slug", "profile", "is_verified"),
    [
        ("discord", {"id": "1", "username": "a", "email": "a@example.com", "verified": True}, True),
        ("facebook", {"id": "1", "name": "a", "email": "a@example.com"}, False),
        ("microsoft", {"id": "1", "displayName": "a", "mail": "a@example.com"}, False),
        ("company", {"sub": "1", "name": "a", "email": "a@example.com", "email_verified": True}, True),
    ],
)
async def test_each_provider_vouches_for_what_it_can(site: Site, slug: str, profile: Any, is_verified: bool) -> None:
    await site.configure(slug, id_token=False)
    site.provider.profile = profile
    user = (await site.sign_in(slug)).json()["user"]
    assert (user["email"], user["email_verified"], user["display_name"]) == ("a@example.com", is_verified, "a")


@pytest.mark.parametrize(
    "email",
    [
        "NEW@X.example\r\nBcc: a@b",
        "<ada@example.com>",
        "ada@example.com, eve@example.com",
        "ada",
        7,
        None,
        "a" * 250 + "@b.c",
    ],
)
async def test_what_is_no_address_at_a_provider_is_not_taken_for_one(site: Site, email: Any) -> None:
    await site.configure("company", id_token=False)
    site.provider.profile = {"sub": "1", "name": "a", "email": email, "email_verified": True}
    user = (await site.sign_in("company")).json()["user"]
    assert (user["email"], user["email_verified"]) == ("1@users.noreply.company.local", False)


async def test_an_address_of_a_provider_is_spelled_as_everywhere_else(site: Site) -> None:
    await site.configure("company", id_token=False)
    site.provider.profile = {"sub": "1", "email": " ANDRE\u0301@Example.COM ", "email_verified": True}
    assert (await site.sign_in("company")).json()["user"]["email"] == "andr\u00e9@example.com"


@pytest.mark.parametrize(
    "forgery",
    [
        {"claims": {"aud": "another client"}},
        {"claims": {"iss": "https://evil.example"}},
        {"claims": {"exp": 1}},
        {"claims": {"nonce": "of another flow"}},
        {"claims": {"sub": ""}},
        {"header": {"alg": "none"}},
        {"key": ECKey.generate_key("P-256", {"kid": "ec"})},
        {"header": {"alg": "HS256", "kid": "rsa"}},
    ],
    ids=["audience", "issuer", "expired", "nonce", "nobody", "unsigned", "another key", "public key as secret"],
)
async def test_a_forged_id_token_signs_nobody_in(site: Site, forgery: dict[str, Any]) -> None:
    await site.configure()
    for name, value in forgery.items():
        setattr(site.provider, name, value)
    back = await site.sign_in()
    assert back.status_code == 400, back.text
    assert back.json()["error"].startswith("OAuth error: the provider")
    users = await site.baobab.client.get(f"/v1/{site.app}/admin/auth/users", headers=site.baobab.owner)
    assert users.json()["users"] == []


async def test_new_keys_of_a_provider_are_asked_for_at_most_twice_a_minute(site: Site) -> None:
    await site.configure()
    site.provider.key = ECKey.generate_key("P-256", {"kid": "unknown"})
    for _ in range(4):
        assert (await site.sign_in()).status_code == 400
    assert site.provider.jwks_requests == 1


async def test_only_the_browser_that_began_comes_back_and_only_once(site: Site) -> None:
    await site.configure()
    site.provider.claims = {"email": "ada@example.com"}
    mine, others = await site.start(), await site.start()
    callback_query = site.provider.authorize(mine.headers["location"])
    callback = f"/auth/{site.app}/oauth/google/callback"
    cookie = mine.headers["set-cookie"].partition(";")[0]
    site.baobab.client.cookies.clear()
    for query, headers in (
        (callback_query, {}),
        ({**callback_query, "cookies": cookie}, {}),
        (callback_query, {"cookie": others.headers["set-cookie"].partition(";")[0]}),
        ({"code": callback_query["code"]}, {"cookie": cookie}),
        ({**callback_query, "state": callback_query["state"][:-1] + "_"}, {"cookie": cookie}),
        ({"state": callback_query["state"]}, {"cookie": cookie}),
        ({"state": callback_query["state"], "error": "access_denied"}, {"cookie": cookie}),
    ):
        refusal = await site.baobab.client.get(callback, params=query, headers=headers)
        assert (refusal.status_code, refusal.json()["error"][:12]) == (400, "OAuth error:"), query
    assert site.provider.token_requests == []
    back = await site.come_back("google", callback_query, mine)
    assert back.status_code == 200
    assert "Max-Age=0" in back.headers["set-cookie"]
    assert (await site.come_back("google", callback_query, mine)).status_code == 400


async def test_who_comes_back_too_late_begins_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.configure()
    monkeypatch.setattr(oauth_flow, "_MINUTES", 0)
    started_response = await site.start()
    monkeypatch.undo()
    back = await site.come_back(
        "google", site.provider.authorize(started_response.headers["location"]), started_response
    )
    assert (back.status_code, back.json()["error"]) == (400, "OAuth error: invalid or expired state")
    assert site.provider.token_requests == []
    site.provider.claims = {"email": "ada@example.com"}
    assert (await site.sign_in()).status_code == 200


async def test_a_flow_of_one_app_does_not_end_in_another(site: Site) -> None:
    await site.configure()
    other = Site(site.baobab, site.provider, await site.baobab.create_app())
    await other.configure()
    started_response = await site.start()
    callback_query = site.provider.authorize(started_response.headers["location"])
    back = await other.come_back("google", callback_query, started_response)
    assert (back.status_code, back.json()["error"]) == (400, "OAuth error: state mismatch")


@pytest.mark.parametrize(
    "redirect_to",
    [
        "https://evil.example/",
        f"{APP_SITE}.evil.example/",
        "https://shop.example.com@evil.example/",
        "javascript:alert(1)",
        "//evil.example",
        "https://evil.example\\@shop.example.com/",
        "http://shop.example.com/",
        f"{APP_SITE}/#a",
    ],
)
async def test_tokens_go_to_allowed_origins_only(site: Site, redirect_to: str) -> None:
    await site.configure()
    body = {"allowed_origins": [APP_SITE]}
    await site.baobab.client.patch(f"/v1/{site.app}/config/cors", json=body, headers=site.baobab.owner)
    refusal = await site.start(redirect_to=redirect_to)
    assert (refusal.status_code, refusal.json()["code"]) == (400, "AUTH_REDIRECT_REFUSED")
    for address in ("http://localhost:3000/x", f"{APP_SITE}/x"):
        assert (await site.start(redirect_to=address)).status_code == 302


@pytest.mark.parametrize("url", ["http://id.example.com/token", "ftp://id.example.com/", "http://[1/", "nothing"])
async def test_a_secret_is_sent_over_https_only(site: Site, url: str) -> None:
    body = {"provider": "google", **CLIENT, "token_url": url}
    refusal = await site.baobab.client.post(site.config, json=body, headers=site.baobab.owner)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")
    assert "`token_url`" in refusal.json()["error"]["message"]


async def test_an_identity_joins_a_user_only_if_both_sides_have_verified_the_address(site: Site) -> None:
    await site.configure()
    ada = {"email": "ada@example.com", "password": "correct Horse 7!"}
    await site.baobab.client.post(f"/auth/{site.app}/signup", json=ada)
    site.provider.claims = {"email": ada["email"], "email_verified": True}
    refusal = await site.sign_in()
    assert (refusal.status_code, refusal.json()["code"]) == (409, "oauth_identity_already_linked")
    outbox = (await site.baobab.client.get(f"/v1/{site.app}/auth/outbox", headers=site.baobab.owner)).json()
    code = outbox["mails"][0]["text"].split("\n\n")[1].strip()
    body = {"email": ada["email"], "code": code}
    assert (await site.baobab.client.post(f"/auth/{site.app}/verify-email", json=body)).status_code == 200
    site.provider.claims = {"email": ada["email"], "email_verified": False}
    assert (await site.sign_in()).status_code == 409
    site.provider.claims = {"email": ada["email"], "email_verified": True}
    user = (await site.sign_in()).json()["user"]
    signed_in = await site.baobab.client.post(f"/auth/{site.app}/login", json=ada)
    assert signed_in.json()["user"]["id"] == user["id"]


async def test_an_identity_that_came_before_the_address_was_verified_goes_when_it_is(site: Site) -> None:
    await site.configure("facebook", id_token=False)
    site.provider.profile = {"id": "1", "name": "Eve", "email": "ada@example.com"}
    eves = (await site.sign_in("facebook")).json()
    await site.baobab.client.post(f"/auth/{site.app}/magic-link", json={"email": "ada@example.com"})
    await run_due_jobs(site.baobab.application)
    outbox = (await site.baobab.client.get(f"/v1/{site.app}/auth/outbox", headers=site.baobab.owner)).json()
    code = outbox["mails"][0]["text"].split("\n\n")[1].strip()
    body = {"email": "ada@example.com", "code": code}
    adas = await site.baobab.client.post(f"/auth/{site.app}/magic-link/verify", json=body)
    assert adas.json()["user"]["id"] == eves["user"]["id"]
    # Who had only claimed the address is out, and does not come back in.
    headers = {"authorization": f"Bearer {eves['access_token']}"}
    assert (await site.baobab.client.get(f"/auth/{site.app}/me", headers=headers)).status_code == 401
    assert (await site.sign_in("facebook")).status_code == 409


async def test_a_provider_that_is_switched_off_or_unknown_is_not_found(site: Site) -> None:
    await site.configure()
    response = await site.baobab.client.patch(
        f"{site.config}/google", json={"enabled": False}, headers=site.baobab.owner
    )
    assert response.json()["config"]["enabled"] is False
    assert (await site.start()).status_code == 404
    assert (await site.start("github")).status_code == 404
    deleted_response = await site.baobab.client.delete(f"{site.config}/google", headers=site.baobab.owner)
    assert deleted_response.json() == {"message": "OAuth provider removed", "provider": "google"}
    incomplete = {"provider": "mine", **CLIENT}
    refusal = await site.baobab.client.post(site.config, json=incomplete, headers=site.baobab.owner)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_MISSING_FIELD")


async def come_anonymously(site: Site) -> Any:
    await site.baobab.client.patch(f"/v1/{site.app}/auth/settings", json={"anonymous": True}, headers=site.baobab.owner)
    return (await site.baobab.client.post(f"/auth/{site.app}/anonymous")).json()


async def ask_for_ticket(site: Site, tokens: Any) -> str:
    headers = {"authorization": f"Bearer {tokens['access_token']}"}
    answer = await site.baobab.client.post(f"/auth/{site.app}/upgrade/oauth", headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["upgrade"])


async def test_an_anonymous_user_keeps_the_id_with_an_identity_and_earlier_sessions_end(site: Site) -> None:
    await site.configure()
    site.provider.claims = {"email": "ada@example.com", "email_verified": True, "name": "Ada"}
    tokens = await come_anonymously(site)
    ticket = await ask_for_ticket(site, tokens)
    user = (await site.sign_in(upgrade=ticket)).json()["user"]
    assert (user["id"], user["email"], user["email_verified"]) == (tokens["user"]["id"], "ada@example.com", True)
    # Whoever made the ticket may be somebody else than who came back from the provider.
    body = {"refresh_token": tokens["refresh_token"]}
    assert (await site.baobab.client.post(f"/auth/{site.app}/refresh", json=body)).status_code == 401
    assert (await site.start(upgrade=ticket)).status_code == 409
    assert (await site.sign_in()).json()["user"]["id"] == tokens["user"]["id"]


async def test_an_identity_or_address_of_another_user_is_not_given_to_an_anonymous_one(site: Site) -> None:
    await site.configure()
    site.provider.claims = {"email": "ada@example.com", "email_verified": True}
    await site.sign_in()
    ticket = await ask_for_ticket(site, await come_anonymously(site))
    assert (await site.sign_in(upgrade=ticket)).status_code == 409
    site.provider.claims |= {"sub": "u2"}
    assert (await site.sign_in(upgrade=ticket)).status_code == 409


async def test_a_ticket_of_another_app_or_a_forged_one_begins_no_flow(site: Site) -> None:
    await site.configure()
    ticket = await ask_for_ticket(site, await come_anonymously(site))
    other = Site(site.baobab, site.provider, await site.baobab.create_app())
    await other.configure()
    assert (await other.start(upgrade=ticket)).status_code == 409
    assert (await site.start(upgrade="v1.forged.x")).status_code == 409


async def test_a_flow_that_begins_on_the_apps_own_host_begins_where_it_ends(site: Site) -> None:
    await site.configure()
    client = site.baobab.client
    app = (await client.get(f"/v1/{site.app}/config", headers=site.baobab.owner)).json()
    headers = {"host": f"{app['subdomain']}.localhost:8000"}
    query = {"redirect_to": "http://localhost:3000/welcome?page=1"}
    response = await client.get("/auth/oauth/google", params=query, headers=headers)
    assert response.status_code == 302, response.text
    # A cookie of the app's own host would not come along to the callback, which is on the server's.
    assert "set-cookie" not in response.headers
    address = urlsplit(response.headers["location"])
    assert f"{address.scheme}://{address.netloc}{address.path}" == f"{ADDRESS}/auth/{site.app}/oauth/google"
    started_response = await client.get(response.headers["location"])
    callback_query = site.provider.authorize(started_response.headers["location"])
    back = await site.come_back("google", callback_query, started_response)
    assert back.headers["location"].startswith(query["redirect_to"] + "&access_token=")


async def test_a_second_factor_after_a_provider_is_asked_for_on_our_page(site: Site) -> None:
    await site.configure()
    path = f"/v1/{site.app}/auth/settings"
    await site.baobab.client.patch(path, json={"second_factor": "required"}, headers=site.baobab.owner)
    site.provider.claims = {"email": "ada@example.com", "email_verified": True}
    response = await site.sign_in()
    assert (response.status_code, response.json()["enrol"]) == (200, True)
    back = await site.sign_in(redirect_to="http://localhost:3000/welcome")
    address = urlsplit(back.headers["location"])
    assert f"{address.scheme}://{address.netloc}{address.path}" == f"{ADDRESS}/auth/{site.app}/login-page"
    page = await site.baobab.client.get(back.headers["location"])
    assert (page.status_code, "Set up a second factor" in page.text) == (200, True)


async def test_staff_of_an_app_come_to_the_page_of_approvals_by_a_provider_and_nobody_by_a_link(site: Site) -> None:
    await site.configure()
    site.provider.claims = {"email": "sam@example.com", "email_verified": True, "name": "Sam"}
    page = await site.baobab.client.get(f"/auth/{site.app}/login-page", params={"wish": "approvals"})
    (link,) = re.findall(r'<a class="provider" href="[^"?]+\?redirect_to=([^"]+)">Continue with Google', page.text)
    flow_cookie = page.headers["set-cookie"].partition(";")[0]
    back = await site.sign_in(redirect_to=unquote(link))
    assert back.status_code == 302, back.text
    address = urlsplit(back.headers["location"])
    assert address.path == f"/auth/{site.app}/approvals"
    site.baobab.client.cookies.clear()
    # In a browser that has not begun the sign-in, the same address signs nobody in.
    stranger = await site.baobab.client.get(f"{address.path}?{address.query}")
    assert (stranger.status_code, stranger.headers["location"]) == (303, "login-page?wish=approvals")
    arrival = await site.baobab.client.get(f"{address.path}?{address.query}", headers={"cookie": flow_cookie})
    assert (arrival.status_code, arrival.headers["location"]) == (303, "approvals")
    site.baobab.client.cookies.clear()
    session = next(
        text.partition(";")[0] for text in arrival.headers.get_list("set-cookie") if text.startswith("baobab_user_")
    )
    calls = await site.baobab.client.get(address.path, headers={"cookie": session})
    assert (calls.status_code, "Requests that wait for you" in calls.text) == (200, True)


async def test_a_provider_leads_back_to_the_host_where_the_page_of_approvals_was_opened(site: Site) -> None:
    await site.configure()
    client, base = site.baobab.client, urlsplit(ADDRESS)
    for host in ("localhost:8000", "127.0.0.1:8000"):
        path = f"/auth/{site.app}"
        page = await client.get(f"{path}/login-page", params={"wish": "approvals"}, headers={"host": host})
        (link,) = re.findall(r'<a class="provider" href="[^"?]+\?redirect_to=([^"]+)">Continue with Google', page.text)
        assert unquote(link).partition("?")[0] == f"{base.scheme}://{host}{path}/approvals"
