"""The provider of an app's own authorization server, where the app's users sign in."""

from typing import Any

from mcp.server.auth.provider import AuthorizationParams, RefreshToken
from mcp.shared.auth import OAuthClientInformationFull

from baobab.mcp_server.oauth.provider import Provider
from baobab.runtime.oauth.requests import AuthorizationRequest
from baobab.storage.secrets import Vault
from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.auth.user_tools import SCOPE, build_resource
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BadRequest, Forbidden, NotFound, Unauthenticated
from baobab.tools.core.registry import Registry
from baobab.tools.users.mcp_requests import build_issuer, seal_request


class UserProvider(Provider):
    scopes = (SCOPE,)
    client_tool, register_tool, revoke_tool = "auth_mcp_client", "auth_mcp_register", "auth_mcp_revoke"
    code_tool, exchange_tool, refresh_tool = "auth_mcp_code", "auth_mcp_exchange", "auth_mcp_refresh"
    refusals = (BadRequest, Unauthenticated, Forbidden, NotFound)

    def __init__(self, registry: Registry, context: RequestContext, app_id: str) -> None:
        super().__init__(registry, context)
        self.app_id = app_id
        self.issuer = build_issuer(context.base_url, app_id)
        self.resource = build_resource(context.base_url, app_id)
        self.consent_url = f"{self.issuer}/mcp/consent"

    def _seal(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        request = AuthorizationRequest(
            client_id=client.client_id or "",
            client_name=client.client_name or client.client_id or "",
            redirect_uri=str(params.redirect_uri),
            redirect_given=params.redirect_uri_provided_explicitly,
            state=params.state,
            code_challenge=params.code_challenge,
            issuer=self.issuer,
            resource=params.resource,
        )
        return seal_request(self._registry.services, self.app_id, self._context.base_url, request)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken:
        """Returns the token unchecked. The exchange checks whether it is valid and belongs to this client."""
        return RefreshToken(token=refresh_token, client_id=client.client_id or "", scopes=[SCOPE])

    @property
    def vault(self) -> Vault:
        return self._registry.services.vault

    async def call(self, tool: str, access_token: str | None = None, **arguments: Any) -> Any:
        """Calls a tool of the app's sign-in. access_token: that of the user, if one has signed in."""
        caller: Caller = ANONYMOUS
        if access_token is not None:
            caller = await self._registry.services.credentials.caller(f"Bearer {access_token}".encode())
        return await self._registry.call(tool, {"app_id": self.app_id, **arguments}, caller, self._context)

    async def _call(self, tool: str, **arguments: Any) -> Any:
        return await self.call(tool, **arguments)
