"""Turns the credentials that requests carry into callers. Verified credentials are cached for a while."""

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import bindparam, update

from baobab.storage.cancellation import run_to_completion
from baobab.storage.clock import Clock
from baobab.storage.secrets import digest_token
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.storage.sql.notices import Notices
from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser, FunctionKey, ScopedKey
from baobab.tools.core.auth.directory import Directory
from baobab.tools.core.auth.signing import PLATFORM, Signers, issuer
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.core.auth.user_sessions import USER_TOPIC, UserAddress, UserSessions, user_subject
from baobab.tools.core.errors import (
    BadRequest,
    Forbidden,
    ImpersonationForbidden,
    InvalidApiKey,
    InvalidToken,
    InvalidUserToken,
    Unauthenticated,
)

_REMEMBERED_SECONDS = 30.0
_REMEMBERED = 20_000
_MAX_TOKEN = 8192
_UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")

_Subject = tuple[str, str]
"""The topic and the subject of a notice."""
_OWN_TOPICS = ("key", "app", USER_TOPIC)

ANONYMOUS = Anonymous()
ANON_KEY = "bb_anon_"
"""The prefix of an app's public key, in the header `apikey` or in `Authorization`."""


class Credentials:
    def __init__(
        self, directory: Directory, signers: Signers, sessions: UserSessions, clock: Clock, notices: Notices
    ) -> None:
        self._directory = directory
        self._signers = signers
        self._sessions = sessions
        self._time = clock.time
        self._callers: dict[bytes, tuple[float, Caller, tuple[_Subject, ...]]] = {}
        """When the entry ends, the caller, and what it depends on, by the digest of the credential."""
        self._depending: dict[_Subject, set[bytes]] = {}
        """The digests of the cached credentials that depend on something."""
        self._used_at: dict[str, float] = {}
        self._changes = 0
        for topic in ("members", "account"):
            notices.subscribe(topic, self._forget_callers)
        # Anybody can change these at any time: that must not clear the cache of everybody else.
        for topic in _OWN_TOPICS:
            notices.subscribe(topic, partial(self._forget_depending, topic))

    def find_cached(self, authorization: bytes | None, audience: str | None = None) -> Caller | None:
        """Returns the cached caller of a credential; None if it must be verified first or is not for this audience."""
        if authorization is None:
            return None
        entry = self._callers.get(hashlib.blake2s(authorization).digest())
        if entry is None or entry[0] <= self._time():
            return None
        return entry[1] if entry[1].audience in (None, audience) else None

    async def caller(
        self,
        authorization: bytes | None,
        *,
        anon_key: bytes | None = None,
        organisation: bytes | None = None,
        as_user: bytes | None = None,
        audience: str | None = None,
    ) -> Caller:
        """Returns the caller of a request, from its headers. Raises Unauthenticated for a credential that is not valid.

        audience: the resource that is asked for. A token that is bound to a resource is good for that one only.
        """
        if authorization is None:
            caller = await self._anonymous(anon_key)
        else:
            caller = self.find_cached(authorization, audience) or await self._verify(authorization)
            if caller.audience not in (None, audience):
                raise InvalidUserToken(
                    "This token is for the MCP endpoint of its app, and not for this address.",
                    remediation="Use it at /mcp?app_id= of its app. For other calls use one of op:auth_login.",
                )
        if organisation is not None:
            caller = await self._in_organisation(caller, organisation)
        if as_user is not None:
            caller = _as_user(caller, as_user)
        return caller

    def _forget_callers(self, _subject: str) -> None:
        self._changes += 1
        self._callers.clear()
        self._depending.clear()

    def _forget_depending(self, topic: str, subject: str) -> None:
        self._changes += 1
        for digest in list(self._depending.get((topic, subject), ())):
            self._forget_digest(digest)

    async def flush(self, database: Database) -> None:
        """Stores when keys were last used, at most once for each cached credential."""
        await run_to_completion(self._flush(database))

    async def _flush(self, database: Database) -> None:
        used_keys, self._used_at = self._used_at, {}
        if not used_keys:
            return
        # In one order, or two workers that flush at once would wait for each other.
        rows = [{"key": key, "at": datetime.fromtimestamp(at, UTC)} for key, at in sorted(used_keys.items())]
        statement = update(api_keys).where(api_keys.c.id == bindparam("key")).values(last_used_at=bindparam("at"))
        try:
            async with database.writing(lock=None) as connection:
                await connection.execute(statement, rows)
        except DatabaseUnavailable:
            self._used_at = used_keys | self._used_at
            raise

    async def _verify(self, authorization: bytes) -> Caller:
        token = _bearer(authorization)
        deadline, changes = self._time() + _REMEMBERED_SECONDS, self._changes
        if _is_signed(token):
            caller, expiry = await self._token(token)
            deadline = min(deadline, expiry)
        else:
            caller, expiry = await self._key(token)
            deadline = min(deadline, expiry)
        if changes != self._changes:
            # Something was revoked during the lookup, perhaps this key: the result must not be cached.
            return caller
        while len(self._callers) >= _REMEMBERED:
            self._forget_digest(next(iter(self._callers)))
        digest = hashlib.blake2s(authorization).digest()
        if digest in self._callers:
            self._forget_digest(digest)
        subjects = _list_subjects(caller, token)
        self._callers[digest] = (deadline, caller, subjects)
        for subject in subjects:
            self._depending.setdefault(subject, set()).add(digest)
        return caller

    def _forget_digest(self, digest: bytes) -> None:
        _, _, subjects = self._callers.pop(digest)
        for subject in subjects:
            digests = self._depending[subject]
            digests.discard(digest)
            if not digests:
                del self._depending[subject]

    async def _key(self, token: str) -> tuple[Caller, float]:
        """Returns the caller of a key, and when the key's text expires, in seconds since 1970."""
        if token.startswith(ANON_KEY):
            return await self._anonymous(token.encode()), math.inf
        key = await self._directory.key(digest_token(token))
        if key is None:
            raise InvalidApiKey
        if isinstance(key, FunctionKey):
            return key, math.inf
        expiry = math.inf if key.expires_at is None else key.expires_at
        if expiry <= self._time():
            raise InvalidApiKey("This access token has expired.", remediation="Exchange the refresh token for another.")
        self._used_at[key.id] = self._time()
        if key.app_id is not None:
            gateway = "ai:gateway" in key.scopes
            return AppKey(key.app_id, key.id, key.account_id, key.limits, gateway=gateway), expiry
        if "*" in key.scopes:
            substrate = "substrate" in key.scopes
            return Account(key.account_id, key.organisation_id, key.id, key.limits, substrate), expiry
        return ScopedKey(key.account_id, key.organisation_id, key.id, key.scopes, key.limits), expiry

    async def _token(self, token: str) -> tuple[Caller, float]:
        issuer_name = _unverified_issuer(token)
        if issuer_name == issuer(PLATFORM):
            claims = await self._signers.verify(PLATFORM, token)
            organisation = claims.get("org_id")
            if not isinstance(organisation, str):
                raise InvalidToken
            return Account(claims["sub"], organisation), claims["exp"]
        owner = issuer_name.rpartition(":")[2]
        if issuer_name != issuer(owner):
            raise InvalidToken
        claims = await self._signers.verify(owner, token)
        # The token names its session. The session's row says whether it still runs, and what role the user has now.
        session_id = claims.get("sid")
        if not isinstance(session_id, str) or not isinstance(claims.get("role", "user"), str):
            raise InvalidUserToken
        role = await self._sessions.find_role(owner, claims["sub"], session_id)
        if role is None:
            raise InvalidUserToken("The session of this token has ended.")
        audience = claims.get("aud")
        if not isinstance(audience, str | None):
            raise InvalidUserToken
        return EndUser(owner, claims["sub"], role, session_id=session_id, audience=audience), claims["exp"]

    async def find_addresses(self, app_id: str, user_ids: Sequence[str]) -> Mapping[str, UserAddress]:
        """Returns the addresses that users have now, by their ids. Those whom the app does not have are left out."""
        return await self._sessions.find_addresses(app_id, user_ids)

    async def _anonymous(self, anon_key: bytes | None) -> Caller:
        if anon_key is None:
            return ANONYMOUS
        app_id = await self._directory.app_id_of_anon_key(anon_key.decode("latin-1")[:100])
        if app_id is None:
            raise InvalidApiKey("This is no app's anon key.")
        return Anonymous(app_id)

    async def _in_organisation(self, caller: Caller, organisation: bytes) -> Caller:
        if not isinstance(caller, Account):
            return caller
        organisation_id = organisation.decode("latin-1")
        if organisation_id == caller.organisation_id:
            return caller
        if caller.key_id is not None:
            raise Forbidden("An API key is pinned to its organisation.")
        if not _UUID.match(organisation_id) or await self._directory.role(organisation_id, caller.account_id) is None:
            raise Forbidden("This account is not a member of the organisation in X-Organization-Id.")
        return Account(caller.account_id, organisation_id)


def _is_signed(token: str) -> bool:
    """Returns whether a credential is a signed token, and no key."""
    return token.count(".") == 2


def _list_subjects(caller: Caller, token: str) -> tuple[_Subject, ...]:
    """Lists what a cached caller depends on: the topics and subjects of notices after which it is verified again."""
    subjects = [] if _is_signed(token) else [("key", digest_token(token))]
    if isinstance(caller, (AppKey, FunctionKey, EndUser, Anonymous)) and caller.app_id is not None:
        subjects.append(("app", caller.app_id))
    if isinstance(caller, EndUser):
        subjects.append((USER_TOPIC, user_subject(caller.app_id, caller.user_id)))
    return tuple(subjects)


def _bearer(authorization: bytes) -> str:
    scheme, _, token = authorization.partition(b" ")
    if scheme.lower() != b"bearer":
        raise Unauthenticated("The Authorization header must be `Bearer <key or token>`.")
    token = token.strip()
    if not token or len(token) > _MAX_TOKEN or not token.isascii():
        raise InvalidToken
    return token.decode()


def _unverified_issuer(token: str) -> str:
    """Returns the issuer that a token claims, unverified: it only chooses the key that must verify the token."""
    with _reject_malformed():
        claims = json.loads(_decode_segment(token.split(".")[1]))
        issuer = claims["iss"]
        if isinstance(issuer, str):
            return issuer
    raise InvalidToken


def _decode_segment(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@contextmanager
def _reject_malformed() -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as exc:
        raise InvalidToken from exc


def _as_user(caller: Caller, as_user: bytes) -> Caller:
    if not isinstance(caller, (AppKey, FunctionKey)):
        raise ImpersonationForbidden
    user_id = as_user.decode("latin-1").lower()
    if not _UUID.match(user_id):
        raise BadRequest("X-Platform-As-User must be a user's id (uuid).")
    # The limits of the key apply also when it acts for a user.
    limits = caller.for_users if isinstance(caller, FunctionKey) else caller.limits
    return EndUser(caller.app_id, user_id, key_id=caller.key_id, limits=limits)
