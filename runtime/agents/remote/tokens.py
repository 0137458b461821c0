"""The credential for a tool server: a stored header or token, or a token fetched with client credentials."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

from pydantic_core import from_json

from baobab.runtime.agents.remote.errors import ToolServerDenied
from baobab.runtime.net.egress import Egress
from baobab.storage.clock import Clock

_TIMEOUT_SECONDS = 10.0
_LARGEST = 64 * 1024
_LONGEST_TOKEN = 16 * 1024
_MOST_HELD = 1000
# A token without a stated lifetime is cached for a short time. Each is dropped a little before it expires.
_DEFAULT_SECONDS = 300.0
_LONGEST_SECONDS = 86_400.0
_MARGIN_SECONDS = 30.0


class TokenCache:
    """Caches fetched tokens in memory until they expire. One for each process."""

    def __init__(self, egress: Egress, clock: Clock) -> None:
        self._egress = egress
        self._clock = clock
        self._tokens: dict[str, tuple[float, str]] = {}

    def forget_token(self, server_id: str) -> bool:
        """Drops the cached token of a server. Returns whether there was one."""
        return self._tokens.pop(server_id, None) is not None

    async def get_authorization(self, server_id: str, resource: str, auth: Mapping[str, Any] | None) -> str | None:
        """Returns the value of `Authorization` for a server, or None. Raises ToolServerDenied and EgressError."""
        match auth:
            case {"type": "header", "value": str(value)}:
                return value
            case {"type": "bearer", "token": str(token)}:
                return f"Bearer {token}"
        if auth is None:
            return None
        return f"Bearer {await self._get_token(server_id, resource, auth)}"

    async def _get_token(self, server_id: str, resource: str, auth: Mapping[str, Any]) -> str:
        cached_token = self._tokens.get(server_id)
        if cached_token is not None and cached_token[0] > self._clock.time():
            return cached_token[1]
        token, seconds = await self._fetch_token(resource, auth)
        while len(self._tokens) >= _MOST_HELD:
            del self._tokens[next(iter(self._tokens))]
        self._tokens[server_id] = (self._clock.time() + seconds - _MARGIN_SECONDS, token)
        return token

    async def _fetch_token(self, resource: str, auth: Mapping[str, Any]) -> tuple[str, float]:
        """Fetches a token by the client credentials grant (RFC 6749, 4.4), for this server only (RFC 8707)."""
        # Each part is encoded as in a form before they are joined (RFC 6749, 2.3.1).
        pair = f"{quote_plus(auth['client_id'])}:{quote_plus(auth['client_secret'])}"
        form = {"grant_type": "client_credentials", "resource": resource}
        if auth.get("scope"):
            form["scope"] = auth["scope"]
        answer = await self._egress.request(
            "POST",
            auth["token_url"],
            headers={
                "authorization": f"Basic {b64encode(pair.encode()).decode()}",
                "content-type": "application/x-www-form-urlencoded",
                "accept": "application/json",
            },
            body=urlencode(form).encode(),
            max_bytes=_LARGEST,
            timeout=_TIMEOUT_SECONDS,
        )
        if answer.status != 200:
            raise ToolServerDenied(f"The token URL answered {answer.status}.")
        return _parse_token(answer.body)


def _parse_token(body: bytes) -> tuple[str, float]:
    try:
        answer = from_json(body, allow_inf_nan=False)
    except ValueError as exc:
        raise ToolServerDenied("The answer of the token URL is not JSON.") from exc
    match answer:
        case {"access_token": str(token), "token_type": str(kind)} if kind.lower() == "bearer":
            seconds = answer.get("expires_in")
            lifetime = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else _DEFAULT_SECONDS
            # The token becomes part of a header.
            if 0 < len(token) <= _LONGEST_TOKEN and token.isascii() and token.isprintable():
                return token, min(lifetime, _LONGEST_SECONDS)
    raise ToolServerDenied("The answer of the token URL has no bearer token.")
