"""Signing keys and tokens: one pair for the platform, one for each app; algorithm, issuer and app are pinned."""

import asyncio
import base64
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from sqlalchemy import ColumnElement, delete, func, insert, or_, select, update

from baobab.storage.cache import Cache
from baobab.storage.clock import Clock, Ids
from baobab.storage.secrets import SecretUnreadable, Vault
from baobab.storage.sql.database import Database, Unit
from baobab.storage.sql.notices import Notices
from baobab.tools.core.auth.signed_tokens import BadToken, read_claims
from baobab.tools.core.auth.tables import signing_keys
from baobab.tools.core.errors import InvalidToken, InvalidUserToken, UserTokenExpired

PLATFORM = "platform"
_ISSUER = "baobab"
_CONTEXT = "signing_keys.private_jwk:"

# RS256 for apps is the contract's; the platform's own tokens take the shorter and faster ES256.
_ALGORITHMS = {PLATFORM: "ES256"}
_APP_ALGORITHM = "RS256"
_LEEWAY_SECONDS = 0
_RETIRED = timedelta(days=1)
"""How long a retired pair still verifies, and is published."""


@dataclass(frozen=True, slots=True)
class _Pair:
    algorithm: str
    current: RSAKey | ECKey
    public: KeySet


class Signers:
    """Mints and verifies tokens. A pair is made when it is first needed."""

    def __init__(self, database: Database, clock: Clock, ids: Ids, vault: Vault, notices: Notices) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._vault = vault
        self._pairs: Cache[str, _Pair] = Cache(self._load, clock, keep=300.0)
        notices.subscribe("app", self._pairs.forget)

    async def mint(self, owner: str, claims: dict[str, Any], lifetime: int) -> str:
        """Returns a signed token of `lifetime` seconds for `platform` or for an app's user."""
        pair = await self._pairs.get(owner) or await self._create(owner)
        issued_at = int(self._clock.time())
        body = {**claims, "iss": issuer(owner), "iat": issued_at, "exp": issued_at + lifetime}
        if owner != PLATFORM:
            body["app_id"] = owner
        header = {"alg": pair.algorithm, "kid": str(pair.current.kid), "typ": "JWT"}
        return jwt.encode(header, body, pair.current, algorithms=[pair.algorithm])

    async def verify(self, owner: str, token: str) -> dict[str, Any]:
        """Returns the claims of a token that this owner's key signed and that has not expired."""
        error_kind = InvalidToken if owner == PLATFORM else InvalidUserToken
        pair = await self._pairs.get(owner)
        if pair is None:
            raise error_kind
        try:
            claims = read_claims(token, pair.public, [pair.algorithm])
        except BadToken as exc:
            raise error_kind from exc
        # The signature is good; the rest is pinned here.
        if claims.get("iss") != issuer(owner) or not isinstance(claims.get("sub"), str):
            raise error_kind
        if owner != PLATFORM and claims.get("app_id") != owner:
            raise error_kind
        expiry = claims.get("exp")
        if not isinstance(expiry, int) or isinstance(expiry, bool):
            raise error_kind
        if expiry + _LEEWAY_SECONDS <= self._clock.time():
            raise (InvalidToken("The token has expired.") if owner == PLATFORM else UserTokenExpired())
        not_before = claims.get("nbf", 0)
        if isinstance(not_before, bool) or not isinstance(not_before, int | float):
            raise error_kind
        if not not_before <= self._clock.time():
            raise error_kind
        return claims

    async def rotate(self, unit: Unit, owner: str) -> dict[str, Any]:
        """Makes a new pair that signs from now on, in the unit, and returns its public half.

        The pairs before it verify and are published for another day: as long as the longest access token lives.
        """
        await self.public_keys(owner)
        # Before the lock is held: it takes tens of milliseconds.
        row = await self._make_row(owner)
        await unit.hold(owner)
        now, columns = self._clock.now(), signing_keys.c
        generation_query = select(func.max(columns.generation)).where(columns.owner == owner)
        generation = (await unit.execute(generation_query)).scalar_one()
        is_live = (columns.owner == owner, columns.retired_at.is_(None))
        await unit.execute(update(signing_keys).where(*is_live).values(retired_at=now))
        await unit.execute(delete(signing_keys).where(columns.owner == owner, columns.retired_at < now - _RETIRED))
        await unit.execute(insert(signing_keys), {**row, "generation": generation + 1})
        unit.after_commit(lambda: self._pairs.forget(owner))
        public: dict[str, Any] = row["public_jwk"]
        return public

    async def public_keys(self, owner: str) -> list[dict[str, Any]]:
        """Returns the public halves of the keys as JWKs, newest first."""
        pair = await self._pairs.get(owner) or await self._create(owner)
        return [dict(key.as_dict(private=False)) for key in pair.public.keys]

    async def _load(self, owner: str) -> _Pair | None:
        query = (
            select(signing_keys)
            .where(signing_keys.c.owner == owner, self._is_published())
            .order_by(signing_keys.c.generation.desc())
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return None
        try:
            current = json.loads(self._vault.open(rows[0].private_jwk, _CONTEXT + rows[0].id))
        except SecretUnreadable as exc:
            raise SecretUnreadable(f"{exc}: restore DATA/secret.key, or set BAOBAB_SECRET_KEY as it was") from exc
        kind = ECKey if rows[0].algorithm == "ES256" else RSAKey
        public = KeySet([kind.import_key(row.public_jwk) for row in rows])
        private = ECKey.import_key(current) if kind is ECKey else _read_rsa_key(current)
        return _Pair(rows[0].algorithm, private, public)

    def _is_published(self) -> ColumnElement[bool]:
        retired_at = signing_keys.c.retired_at
        return or_(retired_at.is_(None), retired_at > self._clock.now() - _RETIRED)

    async def _create(self, owner: str) -> _Pair:
        row = await self._make_row(owner)
        async with self._database.writing(lock=owner) as connection:
            # Two workers may get here at once; all use the pair of the first one.
            pair_count = await connection.scalar(
                select(func.count()).select_from(signing_keys).where(signing_keys.c.owner == owner)
            )
            if not pair_count:
                await connection.execute(insert(signing_keys), row)
        self._pairs.forget(owner)
        pair = await self._pairs.get(owner)
        assert pair is not None
        return pair

    async def _make_row(self, owner: str) -> dict[str, Any]:
        algorithm = _ALGORITHMS.get(owner, _APP_ALGORITHM)
        key_id = self._ids.uuid()
        parameters: Any = {"kid": key_id, "use": "sig", "alg": algorithm}
        if algorithm == "ES256":
            key: RSAKey | ECKey = ECKey.generate_key("P-256", parameters)
        else:
            # Tens of milliseconds of arithmetic: not on the event loop.
            key = RSAKey.import_key(await asyncio.to_thread(make_rsa_key), parameters)
        return {
            "id": key_id,
            "owner": owner,
            "generation": 1,
            "algorithm": algorithm,
            "public_jwk": key.as_dict(private=False),
            "private_jwk": self._vault.seal(json.dumps(key.as_dict(private=True)).encode(), _CONTEXT + key_id),
            "created_at": self._clock.now(),
        }


def make_rsa_key() -> rsa.RSAPrivateKey:
    """Makes the key of an app, from numbers that nobody has had before."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _read_rsa_key(jwk: dict[str, Any]) -> RSAKey:
    """Reads a private key without proving again that its numbers are primes, which blocks the event loop for 50 ms.

    The vault has shown that these are the bytes of a key that was made here.
    """

    def number(name: str) -> int:
        digits: str = jwk[name]
        return int.from_bytes(base64.urlsafe_b64decode(digits + "=="))

    numbers = rsa.RSAPrivateNumbers(
        p=number("p"),
        q=number("q"),
        d=number("d"),
        dmp1=number("dp"),
        dmq1=number("dq"),
        iqmp=number("qi"),
        public_numbers=rsa.RSAPublicNumbers(e=number("e"), n=number("n")),
    )
    parameters: Any = {name: jwk[name] for name in ("kid", "use", "alg")}
    return RSAKey.import_key(numbers.private_key(unsafe_skip_rsa_key_validation=True), parameters)


def issuer(owner: str) -> str:
    return f"{_ISSUER}:{PLATFORM}" if owner == PLATFORM else f"{_ISSUER}:app:{owner}"
