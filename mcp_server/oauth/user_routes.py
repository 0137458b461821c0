"""The routes of an app's own authorization server: metadata, endpoints, and the consent page of its users."""

from collections.abc import Mapping

from mcp.server.auth.handlers.metadata import MetadataHandler, ProtectedResourceMetadataHandler
from mcp.server.transport_security import RequestBodyLimitMiddleware
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from baobab.http.hosts import Addresses
from baobab.mcp_server.oauth.endpoint import Answer, OAuthEndpoint, authorize, register, revoke, token
from baobab.mcp_server.oauth.user_consent import consent
from baobab.mcp_server.oauth.user_provider import UserProvider
from baobab.tools.core.auth.user_tools import SCOPE, build_resource, get_open_app
from baobab.tools.core.context import RequestContext
from baobab.tools.core.envelopes import STRUCTURED
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.registry import Registry
from baobab.tools.users.mcp_requests import build_issuer

_MAX_BODY = 64 * 1024
_SERVER = "/.well-known/oauth-authorization-server"


def user_routes(registry: Registry, base_url: str) -> list[Route]:
    addresses = Addresses(base_url, registry.services.options.allowed_hosts)

    async def server(request: Request) -> Response:
        try:
            app = await get_open_app(registry.services.directory, request.path_params["app_id"])
        except BaobabError as error:
            body = to_json(STRUCTURED.render(error, f"{base_url}/docs"))
            return Response(body, error.status, media_type="application/json")
        address = addresses.find(request.headers.get("host", "").encode("latin-1"))
        return await MetadataHandler(_server_metadata(address, app.id)).handle(request)

    async def build_provider(context: RequestContext, path: Mapping[str, str]) -> UserProvider:
        app = await get_open_app(registry.services.directory, path["app_id"])
        return UserProvider(registry, context, app.id)

    def endpoint(name: str, answer: Answer, *methods: str) -> Route:
        limited_endpoint = RequestBodyLimitMiddleware(OAuthEndpoint(registry, answer, build_provider), _MAX_BODY)
        return Route(f"/auth/{{app_id}}/mcp/{name}", limited_endpoint, methods=list(methods))

    return [
        # RFC 8414, 3.1, puts the metadata of an issuer with a path at the first; some clients look at the second.
        Route(f"{_SERVER}/auth/{{app_id}}", server),
        Route(f"/auth/{{app_id}}{_SERVER}", server),
        endpoint("authorize", authorize, "GET"),
        endpoint("token", token, "POST"),
        endpoint("revoke", revoke, "POST"),
        endpoint("register", register, "POST"),
        endpoint("consent", consent, "GET", "POST"),
    ]


async def answer_app_resource(registry: Registry, address: str, request: Request) -> Response | None:
    """Returns the metadata of an app's MCP endpoint (RFC 9728), if the app lets its users in.

    It names the platform's authorization server too, because keys and programs of the app's owners also work here.
    """
    try:
        app = await get_open_app(registry.services.directory, request.query_params.get("app_id"))
    except BaobabError:
        return None
    metadata = ProtectedResourceMetadata.model_validate(
        {
            "resource": build_resource(address, app.id),
            "authorization_servers": [build_issuer(address, app.id), address],
            "scopes_supported": [SCOPE],
            "resource_name": app.title,
        }
    )
    return await ProtectedResourceMetadataHandler(metadata).handle(request)


def _server_metadata(address: str, app_id: str) -> OAuthMetadata:
    issuer = build_issuer(address, app_id)
    return OAuthMetadata.model_validate(
        {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/mcp/authorize",
            "token_endpoint": f"{issuer}/mcp/token",
            "registration_endpoint": f"{issuer}/mcp/register",
            "scopes_supported": [SCOPE],
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "revocation_endpoint": f"{issuer}/mcp/revoke",
            "revocation_endpoint_auth_methods_supported": ["none"],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "client_id_metadata_document_supported": True,
            "authorization_response_iss_parameter_supported": True,
        }
    )
