"""The requests of MCP clients for access to a user of an app, while the user decides."""

from baobab.runtime.oauth import requests
from baobab.runtime.oauth.errors import InvalidTarget
from baobab.runtime.oauth.requests import AuthorizationRequest
from baobab.tools.core import Services
from baobab.tools.core.auth.user_tools import build_resource

_CONTEXT = "mcp request:"


def build_issuer(base_url: str, app_id: str) -> str:
    """Returns the issuer of an app's authorization server. base_url: the server's address, as the client uses it."""
    return f"{base_url}/auth/{app_id}"


def seal_request(services: Services, app_id: str, base_url: str, request: AuthorizationRequest) -> str:
    """Returns the sealed text of a request, valid for ten minutes and for this app.

    Raises InvalidTarget for the resource of another app or of the platform, and OAuthError.
    """
    if request.resource not in (None, build_resource(base_url, app_id)):
        raise InvalidTarget("This authorization server gives access to the MCP endpoint of its own app only.")
    return requests.seal_request(services, _CONTEXT + app_id, request)


def open_request(services: Services, app_id: str, text: str) -> AuthorizationRequest:
    """Opens the sealed text of a request. Raises RequestGone if it is damaged, of another app or expired."""
    return requests.open_request(services, _CONTEXT + app_id, text)
