"""The provider behind the SDK's OAuth handlers: it translates their questions into calls of the registry."""

import logging
from collections.abc import Sequence
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
)
from mcp.shared.auth import InvalidRedirectUriError, OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl

from baobab.runtime.oauth import redirects
from baobab.runtime.oauth.clients import Client
from baobab.runtime.oauth.errors import OAuthError, RedirectRefused
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BadRequest, BaobabError, Conflict
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.core.registry import Registry
from baobab.tools.oauth import requests

CONSENT = "/oauth/consent"

_log = logging.getLogger(__name__)


class PublicClient(OAuthClientInformationFull):
    """A client as the SDK's handlers see it: without a secret, and with any port in a redirect to loopback."""

    @classmethod
    def of(cls, client: Client, scopes: Sequence[str]) -> "PublicClient":
        return cls(
            client_id=client["client_id"],
            client_name=client["name"],
            redirect_uris=[AnyUrl(uri) for uri in client["redirect_uris"]],
            token_endpoint_auth_method="none",  # noqa: S106 - that there is none
            grant_types=["authorization_code", "refresh_token"],
            scope=" ".join(scopes),
        )

    def validate_redirect_uri(self, redirect_uri: AnyUrl | None) -> AnyUrl:
        registered_uris = self.redirect_uris or []
        if redirect_uri is not None and any(
            redirects.is_same_redirect(str(uri), str(redirect_uri)) for uri in registered_uris
        ):
            return redirect_uri
        if redirect_uri is None and len(registered_uris) == 1:
            return registered_uris[0]
        raise InvalidRedirectUriError("redirect_uri is not one of the client's")


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The provider for accounts. Each request has its own, because each call carries the request's context."""

    scopes: Sequence[str] = requests.SCOPES
    client_tool, register_tool, revoke_tool = "oauth_client", "oauth_register", "oauth_revoke"
    code_tool, exchange_tool, refresh_tool = "oauth_code", "oauth_exchange", "oauth_refresh"
    refusals: tuple[type[BaobabError], ...] = (BadRequest, Conflict, PlanLimitReached)
    """The errors that the client is told as `invalid_grant`."""

    def __init__(self, registry: Registry, context: RequestContext) -> None:
        self._registry = registry
        self._context = context
        self.issuer = context.base_url
        self.resource = requests.resource_of(self.issuer)
        self.consent_url = f"{self.issuer}{CONSENT}"

    async def get_client(self, client_id: str) -> PublicClient | None:
        try:
            return PublicClient.of(await self._call(self.client_tool, client_id=client_id), self.scopes)
        except BadRequest as error:
            # The handler tells the client only that it is unknown.
            _log.info("client refused", extra={"client": client_id[:200], "reason": error.message})
            return None

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        uris = [str(uri) for uri in client_info.redirect_uris or []]
        try:
            client = await self._call(self.register_tool, redirect_uris=uris, client_name=client_info.client_name)
        except RedirectRefused as error:
            raise RegistrationError("invalid_redirect_uri", error.message) from error
        except BadRequest as error:
            raise RegistrationError("invalid_client_metadata", error.message) from error
        # The handler answers with this object, which must confirm only what was stored (RFC 7591, 3.2.1).
        issued_at = client_info.client_id_issued_at
        for name, value in PublicClient.of(client, self.scopes):
            setattr(client_info, name, value)
        client_info.client_id_issued_at = issued_at

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        try:
            sealed_request = self._seal(client, params)
        except OAuthError as error:
            raise AuthorizeError(error.oauth, error.message) from error  # type: ignore[arg-type]  # `_seal` raises none but those
        return redirects.answer(self.consent_url, request=sealed_request)

    def _seal(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        return requests.seal(
            self._registry.services,
            client_id=client.client_id,
            client_name=client.client_name or client.client_id,
            redirect_uri=str(params.redirect_uri),
            redirect_given=params.redirect_uri_provided_explicitly,
            state=params.state,
            code_challenge=params.code_challenge,
            scopes=params.scopes,
            resource=params.resource,
            issuer=self.issuer,
        )

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        try:
            code = await self._call(self.code_tool, client_id=client.client_id, code=authorization_code)
        except BadRequest:
            return None
        return AuthorizationCode(
            code=authorization_code,
            scopes=code["scopes"],
            expires_at=code["expires_at"].timestamp(),
            client_id=client.client_id,
            code_challenge=code["code_challenge"],
            redirect_uri=AnyUrl(code["redirect_uri"]),
            redirect_uri_provided_explicitly=code["redirect_given"],
            resource=code["resource"],
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        code = authorization_code.code
        try:
            tokens = await self._call(self.exchange_tool, client_id=client.client_id, code=code)
        except self.refusals as error:
            raise TokenError("invalid_grant", error.message) from error
        if tokens["access_token"] is None:
            raise TokenError("invalid_grant", "The code was used before; what was created with it has ended.")
        return OAuthToken(**tokens)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        arguments = {"client_id": client.client_id, "refresh_token": refresh_token}
        try:
            token_row = await self._call("oauth_refresh_token", **arguments)
        except BadRequest:
            return None
        until = int(token_row["expires_at"].timestamp())
        return RefreshToken(
            token=refresh_token, client_id=client.client_id or "", scopes=token_row["scope"].split(), expires_at=until
        )

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        arguments = {"client_id": client.client_id, "refresh_token": refresh_token.token}
        try:
            tokens = await self._call(self.refresh_tool, **arguments)
        except self.refusals as error:
            raise TokenError("invalid_grant", error.message) from error
        if tokens["access_token"] is None:
            raise TokenError("invalid_grant", "The refresh token was used before; access is revoked.")
        return OAuthToken(**tokens)

    async def load_access_token(self, token: str) -> None:
        """Does nothing: `Credentials` looks up keys."""

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """Does nothing, and is never called: the SDK's endpoint requires a client secret, so endpoint.py has one of
        ours.
        """

    async def revoke(self, token: str, client_id: str | None) -> None:
        try:
            await self._call(self.revoke_tool, token=token, client_id=client_id)
        except BadRequest:
            # A text that cannot be one of our tokens counts as revoked.
            return

    async def _call(self, tool: str, **arguments: Any) -> Any:
        return await self._registry.call(tool, arguments, ANONYMOUS, self._context)
