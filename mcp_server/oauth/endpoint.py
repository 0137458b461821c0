"""An OAuth endpoint: one of the SDK's handlers, with a provider for each request, and errors in OAuth's format."""

import json
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from typing import Any

from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.settings import ClientRegistrationOptions
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from baobab.http.answer import error_headers, reply_to
from baobab.http.hosts import Addresses
from baobab.http.html_page import accepts, render_page
from baobab.http.request import Request as RestRequest
from baobab.mcp_server.oauth.provider import Provider
from baobab.runtime.oauth import redirects
from baobab.tools.core.auth.oauth_endpoints import INTERFACE_NAME
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError, RateLimited
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.registry import Registry

Answer = Callable[[Provider, Request], Awaitable[Response]]
BuildProvider = Callable[[RequestContext, Mapping[str, str]], Awaitable[Provider]]

_UNCACHED = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class OAuthEndpoint:
    """The ASGI endpoint of one OAuth route.

    build_provider: makes the provider of a request, from the parameters of its path.
    """

    def __init__(self, registry: Registry, answer: Answer, build_provider: BuildProvider) -> None:
        self._build_provider = build_provider
        self._answer = answer
        options = registry.services.options
        self._addresses = Addresses(options.base_url, options.allowed_hosts)

    async def __call__(self, scope: Any, receive: Any, respond: Any) -> None:
        rest_request = RestRequest(scope, reply_to(scope, respond))
        context = RequestContext(
            INTERFACE_NAME,
            rest_request.id,
            rest_request.ip,
            rest_request.user_agent,
            self._addresses.find(rest_request.host),
            rest_request.path,
        )
        try:
            provider = await self._build_provider(context, scope.get("path_params", {}))
            response = await self._answer(provider, Request(scope, receive))
        except BaobabError as error:
            response = _render_error(error)
        except STORE_OUTAGES as exc:
            response = _render_error(translate_outage(exc, rest_request.id))
        except HTTPException as error:
            # Starlette raises this for a form that it cannot read.
            response = _build_error_response(error.status_code, "invalid_request", "The form cannot be read.")
        await response(scope, receive, respond)


async def authorize(provider: Provider, request: Request) -> Response:
    response: Response = await AuthorizationHandler(provider).handle(request)
    location = response.headers.get("location")
    issuer = provider.issuer
    if location is not None and not location.startswith(f"{provider.consent_url}?"):
        # The SDK leaves the issuer out of refusals, but our metadata promises it in every answer (RFC 9207).
        response.headers["location"] = redirects.answer(location, iss=issuer)
    if location is None and accepts(request, "text/html"):
        # There is no address to send the browser back to, so a person reads this.
        return render_refusal_page(response)
    return response


async def token(provider: Provider, request: Request) -> Response:
    # The SDK does not check the resource (RFC 8707, 2.2).
    form = await request.form()
    resource = form.get("resource")
    if resource not in (None, provider.resource):
        return _build_error_response(400, "invalid_target", "This server gives no access to that resource.")
    response: Response = await TokenHandler(provider, ClientAuthenticator(provider)).handle(request)
    error_body = from_json(bytes(response.body)) if response.status_code == 400 else {}
    if error_body.get("error") != "invalid_request":
        return response
    # The SDK uses one error code for all cases; RFC 6749, 5.2, has specific codes for these.
    if form.get("grant_type") not in (None, "authorization_code", "refresh_token"):
        return _build_error_response(400, "unsupported_grant_type", "Send `authorization_code` or `refresh_token`.")
    if "redirect_uri" in form and "redirect_uri did not match" in error_body["error_description"]:
        return _build_error_response(400, "invalid_grant", error_body["error_description"])
    return response


async def revoke(provider: Provider, request: Request) -> Response:
    """Answers 200 for every token, even an unknown one, as RFC 7009 requires."""
    form = await request.form()
    token, client_id = form.get("token"), form.get("client_id")
    if not isinstance(token, str) or not token:
        return _build_error_response(400, "invalid_request", "`token` is missing.")
    await provider.revoke(token, client_id if isinstance(client_id, str) else None)
    return Response(status_code=200, headers=_UNCACHED)


async def register(provider: Provider, request: Request) -> Response:
    options = ClientRegistrationOptions(enabled=True, valid_scopes=list(provider.scopes))
    return await RegistrationHandler(provider, options).handle(request)


def render_refusal_page(response: Response) -> Response:
    """Renders the refusal of a request as a page."""
    error_body = json.loads(bytes(response.body))
    reason = escape(str(error_body.get("error_description") or error_body.get("error") or ""))
    body = f"""<h1>This program cannot be connected</h1>
<p>The program that sent you here made a request that this server refuses. It has no access:</p>
<p><strong>{reason}</strong></p>
<p>Close this page and start again in the program. If it happens again, its settings are wrong: remove this
server there and add it again.</p>
<p><a href="../">Baobab</a> · <a href="../console/programs">Connected programs</a></p>"""
    return render_page("Not connected", body, root="../", status=response.status_code)


def _render_error(error: BaobabError) -> Response:
    kind = "temporarily_unavailable" if isinstance(error, RateLimited) or error.status >= 500 else "invalid_request"
    return _build_error_response(error.status, kind, f"{error.message} {error.remedy}", error_headers(error))


def _build_error_response(status: int, error: str, description: str, headers: dict[str, str] | None = None) -> Response:
    content = {"error": error, "error_description": description}
    return JSONResponse(content, status, {**_UNCACHED, **(headers or {})})
