"""Authorization requests that wait for a person's decision: sealed, and carried by the browser.

Nothing of a request is stored until a person has agreed to it. Every worker of this server can open its text.
"""

import json
import re
from dataclasses import asdict, dataclass

from baobab.runtime.oauth.documents import is_address
from baobab.runtime.oauth.errors import InvalidTarget, OAuthError, RequestGone
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core.services import Services
from baobab.tools.oauth.errors import InvalidScope

SCOPES = ("mcp", "ai:gateway")
LIFETIME_SECONDS = 600
LONGEST = 20_000
_MOST_STATE = 2000
_CONTEXT = "oauth.request"
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Request:
    """An authorization request of a client."""

    client_id: str
    client_name: str
    redirect_uri: str
    redirect_given: bool
    """Whether the client sent the address, and must send it again to the token endpoint."""
    state: str | None
    code_challenge: str
    scopes: list[str]
    resource: str | None
    expires_at: float
    issuer: str
    """The address of this server, with the host name that the client used."""

    @property
    def document(self) -> bool:
        """Whether the client has a metadata document."""
        return is_address(self.client_id)


def resource_of(issuer: str) -> str:
    """Returns the one resource of this server, which keys are for."""
    return f"{issuer}/mcp"


def seal(
    services: Services,
    *,
    client_id: str,
    client_name: str,
    redirect_uri: str,
    redirect_given: bool,
    state: str | None,
    code_challenge: str,
    scopes: list[str] | None,
    resource: str | None,
    issuer: str,
) -> str:
    """Returns the sealed text of a request, valid for ten minutes. The caller has checked the redirect address.

    Raises InvalidScope, InvalidTarget, or OAuthError for another parameter that is not valid.
    """
    if not set(scopes or ()) <= set(SCOPES):
        raise InvalidScope
    if resource not in (None, resource_of(issuer)):
        raise InvalidTarget
    if not _CHALLENGE.fullmatch(code_challenge):
        raise OAuthError("`code_challenge` must be an S256 challenge of 43 characters.")
    if len(state or "") > _MOST_STATE:
        raise OAuthError(f"`state` is longer than {_MOST_STATE} characters.")
    request = Request(
        client_id=client_id,
        client_name=client_name,
        redirect_uri=redirect_uri,
        redirect_given=redirect_given,
        state=state,
        code_challenge=code_challenge,
        scopes=[scope for scope in SCOPES if scope in (scopes or ["mcp"])],
        resource=resource,
        expires_at=services.clock.time() + LIFETIME_SECONDS,
        issuer=issuer,
    )
    return services.vault.seal(json.dumps(asdict(request)).encode(), _CONTEXT)


def open_request(services: Services, text: str) -> Request:
    """Opens the sealed text of a request. Raises RequestGone if it is damaged, foreign or expired."""
    try:
        request = Request(**json.loads(services.vault.open(text, _CONTEXT)))
    except (SecretUnreadable, TypeError) as exc:
        raise RequestGone from exc
    if request.expires_at <= services.clock.time():
        raise RequestGone
    return request
