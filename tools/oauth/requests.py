"""The requests of programs for access to an account, while they wait for a person's decision."""

from baobab.runtime.oauth import requests
from baobab.runtime.oauth.errors import InvalidTarget
from baobab.runtime.oauth.requests import AuthorizationRequest
from baobab.tools.core import Services
from baobab.tools.oauth.errors import InvalidScope

SCOPES = ("mcp", "ai:gateway")
_CONTEXT = "oauth.request"


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
    request = AuthorizationRequest(
        client_id=client_id,
        client_name=client_name,
        redirect_uri=redirect_uri,
        redirect_given=redirect_given,
        state=state,
        code_challenge=code_challenge,
        issuer=issuer,
        scopes=[scope for scope in SCOPES if scope in (scopes or ["mcp"])],
        resource=resource,
    )
    return requests.seal_request(services, _CONTEXT, request)


def open_request(services: Services, text: str) -> AuthorizationRequest:
    """Opens the sealed text of a request. Raises RequestGone if it is damaged, foreign or expired."""
    return requests.open_request(services, _CONTEXT, text)
