"""What MCP clients ask users of an app for: sealed for the app, and carried by the browser until the user decides."""

import json
import re
from dataclasses import asdict, dataclass

from baobab.runtime.oauth.documents import is_address
from baobab.runtime.oauth.errors import InvalidTarget, OAuthError, RequestGone
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core.auth.user_tools import build_resource
from baobab.tools.core.services import Services

LONGEST = 20_000
_LIFETIME_SECONDS = 600
_MOST_STATE = 2000
_CONTEXT = "mcp request:"
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class AskedAccess:
    """The authorization request of a client, whose redirect address has been checked."""

    client_id: str
    client_name: str
    redirect_uri: str
    redirect_given: bool
    """Whether the client sent the address, and must send it again with the code."""
    state: str | None
    code_challenge: str
    issuer: str
    expires_at: float = 0.0

    @property
    def document(self) -> bool:
        """Whether the client has a metadata document."""
        return is_address(self.client_id)


def build_issuer(base_url: str, app_id: str) -> str:
    """Returns the issuer of an app's authorization server. base_url: the server's address, as the client uses it."""
    return f"{base_url}/auth/{app_id}"


def seal_request(services: Services, app_id: str, base_url: str, asked: AskedAccess, resource: str | None) -> str:
    """Returns the sealed text of a request, valid for ten minutes.

    Raises InvalidTarget for the resource of another app or of the platform, and OAuthError.
    """
    if resource not in (None, build_resource(base_url, app_id)):
        raise InvalidTarget("This authorization server gives access to the MCP endpoint of its own app only.")
    if not _CHALLENGE.fullmatch(asked.code_challenge):
        raise OAuthError("`code_challenge` must be an S256 challenge of 43 characters.")
    if len(asked.state or "") > _MOST_STATE:
        raise OAuthError(f"`state` is longer than {_MOST_STATE} characters.")
    fields = asdict(asked) | {"expires_at": services.clock.time() + _LIFETIME_SECONDS}
    return services.vault.seal(json.dumps(fields).encode(), _CONTEXT + app_id)


def open_request(services: Services, app_id: str, text: str) -> AskedAccess:
    """Opens the sealed text of a request. Raises RequestGone if it is damaged, of another app or expired."""
    try:
        asked = AskedAccess(**json.loads(services.vault.open(text, _CONTEXT + app_id)))
    except (SecretUnreadable, ValueError, TypeError) as exc:
        raise RequestGone from exc
    if asked.expires_at <= services.clock.time():
        raise RequestGone
    return asked
