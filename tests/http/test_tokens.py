"""Tokens: what a forger can make of the public halves of our keys, and of other apps' tokens.

Threat: JWT algorithm confusion, ignored `crit`, wrong issuer. Vectors in the manner of Wycheproof.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from joserfc.jwk import RSAKey
from sqlalchemy import select

from baobab.tools.core.auth.tables import signing_keys
from tests.http.installation import Answer, App, Installation, bearer_headers
from tests.users import session_id_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADA = "aaaaaaaa-0000-4000-8000-000000000001"


def encode_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def encode_part(value: Any) -> str:
    return encode_base64(value if isinstance(value, bytes) else json.dumps(value).encode())


@dataclass
class Forge:
    """An app's own key in a test's hands: whatever else is wrong with a token, its signature is right."""

    app: App
    kid: str
    key: rsa.RSAPrivateKey

    @property
    def header(self) -> dict[str, Any]:
        return {"alg": "RS256", "kid": self.kid, "typ": "JWT"}

    @property
    def claims(self) -> dict[str, Any]:
        now = int(time.time())
        whose = {"sub": ADA, "sid": session_id_of(ADA), "iss": f"baobab:app:{self.app.id}", "app_id": self.app.id}
        return {**whose, "iat": now, "exp": now + 600}

    def sign(self, header: Any, claims: Any) -> str:
        signing_input = f"{encode_part(header)}.{encode_part(claims)}"
        signature = self.key.sign(signing_input.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signing_input}.{encode_base64(signature)}"

    def token(self, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token that differs from a good one in what is given; None takes a claim or a field out."""
        return self.sign(_drop_none(self.header | (header or {})), _drop_none(self.claims | claims))

    def public_pem(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, form)


def _drop_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


async def build_forge(world: Installation, app: App) -> Forge:
    services = world.application.services
    await world.user_headers(app, ADA)
    async with services.database.reading() as connection:
        row = (await connection.execute(select(signing_keys).where(signing_keys.c.owner == app.id))).one()
    private = json.loads(services.vault.open(row.private_jwk, f"signing_keys.private_jwk:{row.id}"))
    key = RSAKey.import_key(private).private_key
    assert isinstance(key, rsa.RSAPrivateKey)
    return Forge(app, row.id, key)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forge(world: Installation, app: App) -> Forge:
    await world.expose(app, ("public", "public", "deny"), ("authed", "authed", "deny"))
    await world.put(app, "authed")
    await world.put(app, "public")
    return await build_forge(world, app)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stranger(world: Installation) -> Forge:
    return await build_forge(world, await world.create_app())


async def use_token(world: Installation, app: App, token: str) -> Answer:
    return await world.ask("GET", app.kv + "/authed", bearer_headers(token))


async def check_rejected(world: Installation, app: App, token: str) -> None:
    """Refused everywhere, what is public included: a bad credential does not become none."""
    for path in ("/authed", "/public"):
        answer = await world.ask("GET", app.kv + path, bearer_headers(token))
        assert (answer.status, answer.json["error"]) == (401, "invalid_jwt"), token
    for path in ("/apps", f"/v1/{app.id}/config"):
        assert (await world.ask("GET", path, bearer_headers(token))).status == 401, token


async def test_a_token_of_the_apps_own_key_is_taken(world: Installation, forge: Forge) -> None:
    assert (await use_token(world, forge.app, forge.token())).json == {"value": 1}
    assert (await use_token(world, forge.app, forge.token(nbf=int(time.time()) - 1))).status == 200
    assert (await use_token(world, forge.app, forge.token({"typ": None}))).status == 200


def sign_symmetric(secret: Callable[[Forge], bytes]) -> Callable[[Forge], str]:
    def make(forge: Forge) -> str:
        signing_input = f"{encode_part(forge.header | {'alg': 'HS256'})}.{encode_part(forge.claims)}"
        return (
            f"{signing_input}.{encode_base64(hmac.new(secret(forge), signing_input.encode(), hashlib.sha256).digest())}"
        )

    return make


def sign_with_other_key(forge: Forge, header: dict[str, Any] | None = None) -> str:
    return Forge(forge.app, forge.kid, rsa.generate_private_key(65537, 2048)).token(header)


def sign_elliptic(forge: Forge) -> str:
    signing_input = f"{encode_part(forge.header | {'alg': 'ES256'})}.{encode_part(forge.claims)}"
    signature = ec.generate_private_key(ec.SECP256R1()).sign(signing_input.encode(), ec.ECDSA(hashes.SHA256()))
    return f"{signing_input}.{encode_base64(signature)}"


def sign_probabilistic(forge: Forge) -> str:
    signing_input = f"{encode_part(forge.header | {'alg': 'PS256'})}.{encode_part(forge.claims)}"
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    return f"{signing_input}.{encode_base64(forge.key.sign(signing_input.encode(), pss, hashes.SHA256()))}"


def build_unsigned(algorithm: Any) -> Callable[[Forge], str]:
    return lambda forge: f"{encode_part(forge.header | {'alg': algorithm})}.{encode_part(forge.claims)}."


def embed_own_key(forge: Forge) -> str:
    mine = rsa.generate_private_key(65537, 2048)
    jwk = RSAKey.import_key(mine).as_dict(private=False)
    return Forge(forge.app, forge.kid, mine).token({"jwk": jwk})


def change_parts(change: Callable[[list[str]], list[str]]) -> Callable[[Forge], str]:
    return lambda forge: ".".join(change(forge.token().split(".")))


def flip_character(text: str, at: int = 10) -> str:
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


FORGERIES: dict[str, Callable[[Forge], str]] = {
    **{
        f"alg {name!r}": build_unsigned(name)
        for name in ("none", "None", "NONE", "nOnE", "", None, 0, True, [], ["RS256"], "RS256")
    },
    "HS256 with the public key as PEM": sign_symmetric(Forge.public_pem),
    "HS256 with the public key as PEM, stripped": sign_symmetric(lambda forge: forge.public_pem().strip()),
    "HS256 with the public key as DER": sign_symmetric(
        lambda forge: forge.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    ),
    "HS256 with the modulus": sign_symmetric(lambda forge: forge.key.public_key().public_numbers().n.to_bytes(256)),
    "HS256 with the key's id": sign_symmetric(lambda forge: forge.kid.encode()),
    "HS256 with nothing": sign_symmetric(lambda forge: b""),
    "ES256 of another key": sign_elliptic,
    "PS256 of the right key": sign_probabilistic,
    "RS512 named for an RS256 signature": lambda forge: forge.token({"alg": "RS512"}),
    "no alg": lambda forge: forge.token({"alg": None}),
    "another RSA key": sign_with_other_key,
    "another RSA key without its id": lambda forge: sign_with_other_key(forge, {"kid": None}),
    "a key of the forger's in the header": embed_own_key,
    "a key to be fetched": lambda forge: sign_with_other_key(forge, {"jku": "https://evil.example/jwks.json"}),
    "a certificate to be fetched": lambda forge: sign_with_other_key(forge, {"x5u": "https://evil.example/cert"}),
    "an unknown kid": lambda forge: forge.token({"kid": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"}),
    "a kid that is a path": lambda forge: forge.token({"kid": "../../../dev/null"}),
    "a kid that is SQL": lambda forge: forge.token({"kid": "' OR 1=1 --"}),
    "a kid that is no text": lambda forge: forge.token({"kid": 1}),
    "a kid that is a list": lambda forge: forge.token({"kid": [forge.kid]}),
    "crit that nobody knows": lambda forge: forge.token({"crit": ["exp"], "exp": 1}),
    "crit of an extension": lambda forge: forge.token({"crit": ["http://evil.example"], "http://evil.example": True}),
    "crit that is no list": lambda forge: forge.token({"crit": "alg"}),
    "crit of a header that is not there": lambda forge: forge.token({"crit": ["absent"]}),
    "b64 false": lambda forge: forge.token({"crit": ["b64"], "b64": False}),
    "another header": change_parts(lambda p: [encode_part({"alg": "RS256"}), *p[1:]]),
    "other claims": change_parts(lambda p: [p[0], encode_part({"sub": "admin"}), p[2]]),
    "a flipped bit in the claims": change_parts(lambda p: [p[0], flip_character(p[1]), p[2]]),
    "a flipped bit in the signature": change_parts(lambda p: [p[0], p[1], flip_character(p[2])]),
    "half a signature": change_parts(lambda p: [p[0], p[1], p[2][: len(p[2]) // 2]]),
    "no signature": change_parts(lambda p: [p[0], p[1], ""]),
    "a longer signature": change_parts(lambda p: [p[0], p[1], p[2] + "AAAA"]),
    "a signature of zeros": change_parts(lambda p: [p[0], p[1], encode_base64(bytes(256))]),
    "a signature of ones": change_parts(lambda p: [p[0], p[1], encode_base64(b"\xff" * 256)]),
    "the signature of another token": lambda forge: ".".join(
        [*forge.token(sub="x").split(".")[:2], forge.token().split(".")[2]]
    ),
    "claims that are no object": lambda forge: forge.sign(forge.header, [1]),
    "claims that are no JSON": lambda forge: forge.sign(forge.header, b"{"),
    "claims that are deep": lambda forge: forge.sign(forge.header, b"[" * 4000),
    "a header that is no object": lambda forge: forge.sign(["RS256"], forge.claims),
    "a header that is no JSON": lambda forge: forge.sign(b"\xff", forge.claims),
    "a header that is null": lambda forge: forge.sign(None, forge.claims),
    "no issuer": lambda forge: forge.token(iss=None),
    "another issuer": lambda forge: forge.token(iss="https://evil.example"),
    "the platform as issuer": lambda forge: forge.token(iss="baobab:platform"),
    "an issuer list": lambda forge: forge.token(iss=[f"baobab:app:{forge.app.id}"]),
    "an issuer with more behind it": lambda forge: forge.token(iss=f"baobab:app:{forge.app.id} "),
    "no app": lambda forge: forge.token(app_id=None),
    "another app": lambda forge: forge.token(app_id="app_other000000"),
    "no subject": lambda forge: forge.token(sub=None),
    "a subject that is no text": lambda forge: forge.token(sub=1),
    "a role that is no text": lambda forge: forge.token(role=["admin"]),
    "no expiry": lambda forge: forge.token(exp=None),
    "an expiry that is text": lambda forge: forge.token(exp=str(2**40)),
    "an expiry that is true": lambda forge: forge.token(exp=True),
    "an expiry that is infinite": lambda forge: forge.sign(
        forge.header, json.dumps(forge.claims | {"exp": float("inf")}).encode()
    ),
    "expired": lambda forge: forge.token(exp=int(time.time()) - 1),
    "expired long ago": lambda forge: forge.token(exp=-(10**12)),
    "not yet": lambda forge: forge.token(nbf=int(time.time()) + 3600),
    "a beginning that is text": lambda forge: forge.token(nbf="0"),
    "two dots": lambda forge: "..",
    "no base64": lambda forge: "!.!.!",
    "JSON instead of a compact token": lambda forge: '{"payload":"a.b.c"}',
}


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_token_opens_nothing(world: Installation, forge: Forge, forgery: str) -> None:
    await check_rejected(world, forge.app, FORGERIES[forgery](forge))


async def test_an_expired_token_says_that_it_has_expired(world: Installation, forge: Forge) -> None:
    answer = await use_token(world, forge.app, forge.token(exp=int(time.time()) - 1))
    assert answer.json["code"] == "AUTH_END_USER_JWT_EXPIRED"


@pytest.mark.parametrize("spelling", ["{0}.{1}.{2}=", "{0}=.{1}.{2}", "{0}.{1}=.{2}", "{0}. {1}.{2}", "{0}.{1}.\t{2}"])
async def test_a_token_has_one_spelling(world: Installation, forge: Forge, spelling: str) -> None:
    await check_rejected(world, forge.app, spelling.format(*forge.token().split(".")))


async def test_tokens_of_one_app_are_strangers_in_every_other(
    world: Installation, forge: Forge, stranger: Forge
) -> None:
    assert (await use_token(world, stranger.app, stranger.token())).status == 403
    await check_rejected_by_store(world, forge.app, stranger.token())
    # Its key and its name for the key do not speak for this app either.
    claims: dict[str, Any] = {"iss": f"baobab:app:{forge.app.id}", "app_id": forge.app.id}
    await check_rejected(world, forge.app, stranger.token(**claims))
    await check_rejected(world, forge.app, stranger.token({"kid": forge.kid}, **claims))
    await check_rejected(world, forge.app, forge.token({"kid": stranger.kid}))
    await check_rejected(world, forge.app, forge.token(iss=f"baobab:app:{stranger.app.id}"))


async def check_rejected_by_store(world: Installation, app: App, token: str) -> None:
    for path in ("/authed", "/public", "/_stats", "/_audit_recent"):
        answer = await world.ask("GET", app.kv + path, bearer_headers(token))
        assert (answer.status, answer.json["error"]) == (401, "invalid_jwt")


async def test_an_app_cannot_speak_for_the_platform(world: Installation, forge: Forge) -> None:
    me = (await world.ask("GET", "/platform/me", world.owner)).json
    account = {"sub": me["user"]["id"], "org_id": me["organizations"][0]["id"]}
    platform = await world.create_token(account["sub"], account["org_id"])
    kid = json.loads(base64.urlsafe_b64decode(platform["authorization"].split()[1].split(".")[0] + "=="))["kid"]
    for token in (
        forge.token(iss="baobab:platform", app_id=None, **account),
        forge.token({"kid": kid}, iss="baobab:platform", **account),
        forge.token({"kid": kid, "alg": "ES256"}, iss="baobab:platform", **account),
        forge.token(iss="baobab:app:platform", app_id="platform", **account),
    ):
        await check_rejected(world, forge.app, token)
    assert (await world.ask("GET", "/apps", platform)).status == 200


async def test_a_user_is_no_account_whatever_the_token_claims(world: Installation, forge: Forge) -> None:
    me = (await world.ask("GET", "/platform/me", world.owner)).json
    as_owner = {"org_id": me["organizations"][0]["id"], "role": "owner", "scopes": ["*"]}
    token, nobodys = forge.token(**as_owner), forge.token(sub=me["user"]["id"], **as_owner)
    for path in ("/apps", "/platform/me", "/api-keys", f"/v1/{forge.app.id}/config", "/v1/organizations"):
        assert (await world.ask("GET", path, bearer_headers(token))).status == 403
        # The app has no user with the account's id.
        assert (await world.ask("GET", path, bearer_headers(nobodys))).status == 401
    assert (await world.ask("GET", forge.app.kv + "/_stats", bearer_headers(token))).status == 403


async def test_a_token_that_was_taken_once_is_refused_once_it_expires(world: Installation, forge: Forge) -> None:
    expiry = int(time.time()) + 2
    token = forge.token(exp=expiry)
    assert (await use_token(world, forge.app, token)).status == 200
    await asyncio.sleep(expiry - time.time() + 0.05)
    assert (await use_token(world, forge.app, token)).status == 401


async def test_the_tokens_of_a_deleted_app_open_nothing(world: Installation) -> None:
    forge = await build_forge(world, await world.create_app())
    assert (await use_token(world, forge.app, forge.token())).status == 403
    assert (await world.ask("DELETE", f"/apps/{forge.app.id}", world.owner)).status == 200
    assert (await use_token(world, forge.app, forge.token())).status in {401, 404}
    assert (await world.ask("GET", "/apps", bearer_headers(forge.token()))).status == 401
