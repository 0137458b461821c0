"""The OAuth flow with a provider: where the browser is sent, and who has come back.

What a flow must remember until the browser is back stands sealed in a cookie of that browser, so that nobody can hand
somebody else a sign-in that they have begun themselves, and strangers who begin flows fill no table.
"""

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet
from joserfc.jwt import JWTClaimsRegistry

from baobab.runtime.net.addresses import EgressError
from baobab.storage.cache import Cache
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core import Call, Services
from baobab.tools.core.auth.signed_tokens import BadToken, UnknownKey, read_claims, read_keys
from baobab.tools.core.cookies import name_cookie
from baobab.tools.users.errors import OAuthFailed
from baobab.tools.users.provider_kinds import ProviderUser, read_profile
from baobab.tools.users.providers import ProviderAccount, build_callback

_MINUTES = 10
_COOKIE = "baobab_oauth_"
_CONTEXT = "oauth flow"
_ALGORITHMS = ["RS256", "ES256"]
_LEEWAY_SECONDS = 60
_TIMEOUT_SECONDS = 15.0
_LARGEST_ANSWER = 2**20
_REFETCH_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Flow:
    """The state of a flow that has begun, kept until the provider answers."""

    app_id: str
    provider: str
    state: str
    verifier: str
    nonce: str
    redirect_to: str | None
    expires_at: float
    upgrade: str | None = None
    """The anonymous user who is given the identity."""


def begin_flow(call: Call, account: ProviderAccount, redirect_to: str | None, upgrade: str | None) -> tuple[str, str]:
    """Returns the address that the browser is sent to, and the cookie that it keeps.

    upgrade: the id of the anonymous user who is given the identity.
    """
    app, kind, now = call.require_app(), account.kind, call.services.clock.time()
    state, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(3))
    flow = Flow(app.id, kind.slug, state, verifier, nonce, redirect_to, now + _MINUTES * 60, upgrade)
    parameters = {
        "client_id": account.client_id,
        "redirect_uri": build_callback(call, kind.slug),
        "response_type": "code",
    }
    parameters |= {"scope": " ".join(account.scopes), "state": state}
    if kind.pkce:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        parameters |= {"code_challenge": challenge, "code_challenge_method": "S256"}
    if kind.jwks_url is not None:
        parameters["nonce"] = nonce
    if kind.form_post:
        parameters["response_mode"] = "form_post"
    joint = "&" if "?" in kind.authorization_url else "?"
    sealed_flow = call.services.vault.seal(json.dumps(asdict(flow)).encode(), _CONTEXT)
    cookie = _build_cookie(call, state, sealed_flow, _MINUTES * 60, cross_site=kind.form_post)
    return f"{kind.authorization_url}{joint}{urlencode(parameters)}", cookie


def resume_flow(call: Call, provider: str, state: str | None, cookies: str) -> tuple[Flow, str]:
    """Returns the flow that this browser has begun, and the cookie that makes it forget the flow.

    Raises OAuthFailed.
    """
    if not state:
        raise OAuthFailed("OAuth error: missing state")
    # Read by hand: the library's parser drops all cookies after one that it does not like.
    pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
    sealed_flow = next((value for name, _, value in pairs if name == _name_cookie(call, state)), "")
    try:
        flow = Flow(**json.loads(call.services.vault.open(sealed_flow, _CONTEXT)))
    except (SecretUnreadable, ValueError, TypeError) as exc:
        raise OAuthFailed("OAuth error: invalid or expired state") from exc
    is_this = (flow.app_id, flow.provider) == (call.require_app().id, provider)
    if not is_this or not hmac.compare_digest(flow.state.encode(), state.encode()):
        raise OAuthFailed("OAuth error: state mismatch")
    if flow.expires_at <= call.services.clock.time():
        raise OAuthFailed("OAuth error: invalid or expired state")
    return flow, _build_cookie(call, state, "", 0, cross_site=False)


def _name_cookie(call: Call, state: str) -> str:
    # Several flows may be under way in one browser.
    name = _COOKIE + hashlib.sha256(state.encode()).hexdigest()[:12]
    return name_cookie(call.services.options.base_url, name)


def _build_cookie(call: Call, state: str, value: str, seconds: int, *, cross_site: bool) -> str:
    secure = call.services.options.base_url.startswith("https:")
    # A form that another site posts brings only a cookie that says it may, and such a cookie must be secure.
    same_site = "None" if cross_site and secure else "Lax"
    parts = [
        f"{_name_cookie(call, state)}={value}",
        "Path=/",
        f"Max-Age={seconds}",
        "HttpOnly",
        f"SameSite={same_site}",
    ]
    return "; ".join([*parts, "Secure"] if secure else parts)


class ProviderClient:
    """Speaks to providers, through the guarded client, and keeps their public keys for a while."""

    def __init__(self, services: Services) -> None:
        self._http = services.http_client
        self._time = services.clock.time
        self._keys: Cache[str, KeySet] = Cache(self._load_keys, services.clock, keep=300.0, keep_absent=1.0)
        self._fetched_at: dict[str, float] = {}

    async def identify(
        self, account: ProviderAccount, flow: Flow, code: str, callback: str, posted_user: str | None
    ) -> ProviderUser:
        """Exchanges a code and returns who has signed in. Raises OAuthFailed.

        posted_user: what Apple tells about the user's name, at the first sign-in only.
        """
        tokens = await self._exchange(account, flow, code, callback)
        if account.kind.jwks_url is not None:
            claims = await self._verify(account, flow, tokens.get("id_token"))
            if isinstance(posted_user, str):
                claims = {**claims, "name": _read_posted_name(posted_user)}
            return _read(account, claims)
        access_token = tokens.get("access_token")
        if not isinstance(access_token, str) or account.kind.userinfo_url is None:
            raise OAuthFailed("OAuth error: the provider returned no access token")
        headers = {"authorization": f"Bearer {access_token}"}
        user = _read(account, await self._ask("GET", account.kind.userinfo_url, headers))
        if account.kind.profile != "github":
            return user
        # The address of the profile is what its owner typed; that of this list is verified.
        answer = await self._ask("GET", f"{account.kind.userinfo_url}/emails", headers)
        mails = [each for each in answer if isinstance(each, dict)] if isinstance(answer, list) else []
        primary = next((each for each in mails if each.get("primary") is True and each.get("verified") is True), None)
        if primary is None or not isinstance(primary.get("email"), str):
            return user
        return _read(account, {"id": user.uid, "email": primary["email"], "name": user.name}, is_verified=True)

    async def _exchange(self, account: ProviderAccount, flow: Flow, code: str, callback: str) -> dict[str, Any]:
        kind = account.kind
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": callback}
        headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
        if kind.pkce:
            form["code_verifier"] = flow.verifier
        secret = self._build_secret(account)
        if kind.basic:
            pair = f"{account.client_id}:{secret}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": account.client_id, "client_secret": secret}
        tokens = await self._ask("POST", kind.token_url, headers, urlencode(form).encode())
        if not isinstance(tokens, dict) or "error" in tokens:
            raise OAuthFailed("OAuth error: the provider refused the code")
        return tokens

    def _build_secret(self, account: ProviderAccount) -> str:
        """Returns the client's secret; Apple's is a token that is signed anew each time."""
        if account.kind.slug != "apple":
            return account.client_secret
        now = int(self._time())
        claims = {"iss": account.metadata["teamId"], "iat": now, "exp": now + 300, "sub": account.client_id}
        claims["aud"] = account.kind.issuers[0]
        try:
            key = ECKey.import_key(str(account.metadata["privateKey"]))
            return jwt.encode({"alg": "ES256", "kid": account.metadata["keyId"]}, claims, key, algorithms=["ES256"])
        except (JoseError, ValueError, TypeError) as exc:
            raise OAuthFailed("OAuth error: the private key of this provider cannot be read") from exc

    async def _verify(self, account: ProviderAccount, flow: Flow, token: Any) -> dict[str, Any]:
        """Returns the claims of an ID token that the provider has signed for this client and this flow."""
        if not isinstance(token, str):
            raise OAuthFailed("OAuth error: the provider returned no ID token")
        url = str(account.kind.jwks_url)
        try:
            claims = await self._decode(url, token)
            rules: dict[str, Any] = {"exp": {"essential": True}, "aud": {"essential": True, "value": account.client_id}}
            rules["iss"] = {"essential": True, "values": list(account.kind.issuers)}
            registry = JWTClaimsRegistry(now=int(self._time()), leeway=_LEEWAY_SECONDS, **rules)
            registry.validate(claims)
        except (BadToken, JoseError, ValueError, TypeError, KeyError) as exc:
            raise OAuthFailed("OAuth error: the provider's ID token is not valid") from exc
        # A provider that knows no nonce leaves it out; one that says another has answered another flow.
        if "nonce" in claims and claims["nonce"] != flow.nonce:
            raise OAuthFailed("OAuth error: the provider's ID token is of another sign-in")
        return claims

    async def _decode(self, url: str, token: str) -> dict[str, Any]:
        keys = await self._keys.get(url)
        try:
            return read_claims(token, keys or KeySet([]), _ALGORITHMS)
        except UnknownKey:
            # The provider may have new keys; they are asked for at most twice a minute.
            if self._time() - self._fetched_at.get(url, 0.0) < _REFETCH_SECONDS:
                raise
            self._keys.forget(url)
            return read_claims(token, await self._keys.get(url) or KeySet([]), _ALGORITHMS)

    async def _load_keys(self, url: str) -> KeySet | None:
        self._fetched_at[url] = self._time()
        return read_keys(await self._ask("GET", url, {"accept": "application/json"}))

    async def _ask(self, method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> Any:
        try:
            answer = await self._http.request(
                method, url, headers=headers, body=body, timeout=_TIMEOUT_SECONDS, max_bytes=_LARGEST_ANSWER
            )
            content = json.loads(answer.body) if answer.status < 400 else None
        except EgressError as exc:
            raise OAuthFailed(f"OAuth error: the provider cannot be asked: {exc.message}") from exc
        except (ValueError, RecursionError) as exc:
            raise OAuthFailed("OAuth error: the provider's answer is not JSON") from exc
        if content is None:
            raise OAuthFailed(f"OAuth error: the provider answered {answer.status}")
        return content


def _read(account: ProviderAccount, data: Any, *, is_verified: bool = False) -> ProviderUser:
    try:
        user = read_profile(account.kind.profile, data if isinstance(data, dict) else {})
    except ValueError as exc:
        raise OAuthFailed(f"OAuth error: {exc}") from exc
    if not is_verified:
        return user
    return ProviderUser(user.uid, user.email, user.email is not None, user.name, user.avatar_url)


def _read_posted_name(text: str) -> str:
    """Returns the name in the field `user` of Apple's form: `{"name": {"firstName": ..., "lastName": ...}}`."""
    try:
        name = json.loads(text)["name"]
        return " ".join(part for part in (name.get("firstName"), name.get("lastName")) if isinstance(part, str))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
