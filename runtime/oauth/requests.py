"""Authorization requests that wait for a person's decision. They are sealed, and the browser carries them.

Nothing is stored before a person has agreed. Every worker of this server can open a sealed request.
"""

import json
import re
from dataclasses import asdict, dataclass, field, replace

from baobab.runtime.oauth.documents import is_address
from baobab.runtime.oauth.errors import OAuthError, RequestGone
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core.services import Services

LIFETIME_SECONDS = 600
LONGEST = 20_000
_MOST_STATE = 2000
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A client's request for access. Its redirect address has been checked."""

    client_id: str
    client_name: str
    redirect_uri: str
    redirect_given: bool
    """Whether the client sent the address, and must send it again to the token endpoint."""
    state: str | None
    code_challenge: str
    issuer: str
    """The authorization server, with the host name that the client used."""
    scopes: list[str] = field(default_factory=list)
    resource: str | None = None
    expires_at: float = 0.0

    @property
    def document(self) -> bool:
        """Whether the client has a metadata document."""
        return is_address(self.client_id)


def seal_request(services: Services, context: str, request: AuthorizationRequest) -> str:
    """Seals a request, which is then valid for ten minutes. context: the authorization server that it is for.

    Raises OAuthError for a parameter that is not valid.
    """
    if not _CHALLENGE.fullmatch(request.code_challenge):
        raise OAuthError("`code_challenge` must be an S256 challenge of 43 characters.")
    if len(request.state or "") > _MOST_STATE:
        raise OAuthError(f"`state` is longer than {_MOST_STATE} characters.")
    dated_request = replace(request, expires_at=services.clock.time() + LIFETIME_SECONDS)
    return services.vault.seal(json.dumps(asdict(dated_request)).encode(), context)


def open_request(services: Services, context: str, text: str) -> AuthorizationRequest:
    """Opens a sealed request. Raises RequestGone if it is damaged, expired or for another authorization server."""
    try:
        request = AuthorizationRequest(**json.loads(services.vault.open(text, context)))
    except (SecretUnreadable, ValueError, TypeError) as exc:
        raise RequestGone from exc
    if request.expires_at <= services.clock.time():
        raise RequestGone
    return request
