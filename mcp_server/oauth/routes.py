"""The routes of OAuth: metadata, the endpoints, and the consent page.

The revocation endpoint is our own, because the SDK's requires a client secret.
"""

from collections.abc import Mapping

from mcp.server.auth.handlers.metadata import MetadataHandler, ProtectedResourceMetadataHandler
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.hosts import Addresses
from baobab.http.static_page import CSS, HTML, SCRIPT, build_page_route
from baobab.mcp_server.oauth.endpoint import Answer, OAuthEndpoint, authorize, register, revoke, token
from baobab.mcp_server.oauth.provider import Provider
from baobab.mcp_server.oauth.user_routes import answer_app_resource, user_routes
from baobab.tools.core.context import RequestContext
from baobab.tools.core.registry import Registry
from baobab.tools.oauth.requests import SCOPES

_MAX_BODY = 64 * 1024
_SERVER = "/.well-known/oauth-authorization-server"
_RESOURCE = "/.well-known/oauth-protected-resource"


def oauth_routes(registry: Registry, base_url: str) -> list[Route]:
    """Builds the routes of the authorization server.

    base_url: the address of this installation, without a trailing slash.

    It is the issuer. A client that uses another name of the server sees that name as the issuer.
    """
    addresses = Addresses(base_url, registry.services.options.allowed_hosts)

    async def server(request: Request) -> Response:
        return await MetadataHandler(_server_metadata(issuer_of(request))).handle(request)

    async def resource(request: Request) -> Response:
        address = issuer_of(request)
        if "app_id" in request.query_params:
            answer = await answer_app_resource(registry, address, request)
            if answer is not None:
                return answer
        return await ProtectedResourceMetadataHandler(_resource_metadata(address)).handle(request)

    async def build_provider(context: RequestContext, _path: Mapping[str, str]) -> Provider:
        return Provider(registry, context)

    def issuer_of(request: Request) -> str:
        return addresses.find(request.headers.get("host", "").encode("latin-1"))

    def endpoint(path: str, answer: Answer, *methods: str) -> Route:
        limited_endpoint = RequestBodyLimitMiddleware(OAuthEndpoint(registry, answer, build_provider), _MAX_BODY)
        return Route(path, limited_endpoint, methods=list(methods))

    return [
        Route(_SERVER, server),
        Route(_RESOURCE, resource),
        # RFC 9728, 3.1, puts the metadata of the resource `/mcp` here.
        Route(f"{_RESOURCE}/mcp", resource),
        endpoint("/oauth/authorize", authorize, "GET"),
        endpoint("/oauth/token", token, "POST"),
        endpoint("/oauth/revoke", revoke, "POST"),
        endpoint("/oauth/register", register, "POST"),
        *_consent_routes(),
        *user_routes(registry, base_url),
    ]


def _consent_routes() -> list[Route]:
    """Builds the routes of the page on which a person allows an MCP client a key; its script calls the REST API."""
    return [
        build_page_route("/oauth/consent", "consent.html", HTML),
        build_page_route("/oauth/consent/consent.css", "consent.css", CSS),
        build_page_route("/oauth/consent/consent.js", "consent.js", SCRIPT),
        build_page_route("/oauth/consent/signin.js", "signin.js", SCRIPT),
    ]


def _server_metadata(base_url: str) -> OAuthMetadata:
    return OAuthMetadata.model_validate(
        {
            "issuer": base_url,
            "authorization_endpoint": f"{base_url}/oauth/authorize",
            "token_endpoint": f"{base_url}/oauth/token",
            "registration_endpoint": f"{base_url}/oauth/register",
            "scopes_supported": list(SCOPES),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "revocation_endpoint": f"{base_url}/oauth/revoke",
            "revocation_endpoint_auth_methods_supported": ["none"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "client_id_metadata_document_supported": True,
            "authorization_response_iss_parameter_supported": True,
            "service_documentation": f"{base_url}/docs",
        }
    )


def _resource_metadata(base_url: str) -> ProtectedResourceMetadata:
    return ProtectedResourceMetadata.model_validate(
        {
            "resource": f"{base_url}/mcp",
            "authorization_servers": [base_url],
            "scopes_supported": list(SCOPES),
            "resource_name": "Baobab",
        }
    )
