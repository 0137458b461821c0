"""The session of the server's own pages: a cookie that only these three routes read.

The cookie holds a sealed refresh token, or an API key that was pasted. A page gets an access token here, holds it in
memory and sends it as any client does. No REST or MCP operation reads a cookie, so that cross-site request forgery is
not possible.
"""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from baobab.http.answer import error_headers, reply_to
from baobab.http.request import Request as RestRequest
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from baobab.tools.core.cookies import name_cookie
from baobab.tools.core.envelopes import STRUCTURED
from baobab.tools.core.errors import BadRequest, BaobabError, Forbidden, Unauthenticated
from baobab.tools.core.registry import Registry

COOKIE = "baobab_session"
PAGE_HEADER = "x-baobab-page"
"""A header that only a script of the same origin can send without a preflight."""
_CONTEXT = "page session"
_LIFETIME_SECONDS = 7 * 24 * 3600
_OF_KEY_SECONDS = 12 * 3600
_LARGEST = 4096
_UNCACHED = {"Cache-Control": "no-store", "Pragma": "no-cache", "X-Content-Type-Options": "nosniff"}

Answer = Callable[["Sessions", Request, RequestContext], Awaitable[Response]]


class ForeignPage(Forbidden):
    code = "SESSION_FOREIGN_PAGE"
    summary = "Only the pages of this server can use this session."
    remediation = "From another program, send an access token or an API key in the Authorization header."


class Sessions:
    def __init__(self, registry: Registry) -> None:
        options = registry.services.options
        address = urlsplit(options.base_url)
        self._registry = registry
        self._secure = address.scheme == "https"
        self._name = name_cookie(options.base_url, COOKIE)
        self._path = "/" if self._secure else f"{address.path.rstrip('/')}/session"
        self.base_url = options.base_url

    def routes(self) -> list[Route]:
        return [
            Route("/session", self._endpoint(Sessions.sign_in), methods=["POST"], include_in_schema=False),
            Route("/session", self._endpoint(Sessions.sign_out), methods=["DELETE"], include_in_schema=False),
            Route("/session/token", self._endpoint(Sessions.issue_token), methods=["POST"], include_in_schema=False),
        ]

    def _endpoint(self, answer: Answer) -> Any:
        return _Endpoint(self, answer)

    async def sign_in(self, request: Request, context: RequestContext) -> Response:
        """Signs in with `{email, password}`, or with `{key}`."""
        body = await _read_json(request)
        if isinstance(key := body.get("key"), str):
            caller = await self._registry.services.credentials.caller(f"Bearer {key}".encode())
            if not isinstance(caller, Account):
                raise Unauthenticated("This is not the API key of an account.")
            session_data, token, lifetime = {"key": key}, key, _OF_KEY_SECONDS
        else:
            credentials = {name: body.get(name) for name in ("email", "password")}
            tokens = await self._registry.call("platform_login", credentials, ANONYMOUS, context)
            session_data, token, lifetime = (
                {"refresh_token": tokens["refresh_token"]},
                tokens["token"],
                _LIFETIME_SECONDS,
            )
        return self._set_cookie(session_data, token, time.time() + lifetime)

    async def issue_token(self, request: Request, context: RequestContext) -> Response:
        """Returns an access token for the page that asks."""
        session_data = self._read_cookie(request)
        if "key" in session_data:
            return self._set_cookie({"key": session_data["key"]}, session_data["key"], session_data["until"])
        tokens = await self._registry.call("platform_refresh", session_data["credential"], ANONYMOUS, context)
        renewed_token = {"refresh_token": tokens["refresh_token"]}
        return self._set_cookie(renewed_token, tokens["token"], time.time() + _LIFETIME_SECONDS)

    async def sign_out(self, request: Request, context: RequestContext) -> Response:
        """Signs out. It uses the refresh token up and discards the next one."""
        session_data = self._read_cookie(request)
        if "credential" in session_data:
            await self._registry.call("platform_refresh", session_data["credential"], ANONYMOUS, context)
        answer = JSONResponse({"message": "Signed out."}, headers=_UNCACHED)
        self.clear_cookie(answer)
        return answer

    def _read_cookie(self, request: Request) -> dict[str, Any]:
        try:
            cookie = request.cookies.get(self._name, "")
            session_data: dict[str, Any] = json.loads(self._registry.services.vault.open(cookie, _CONTEXT))
        except (SecretUnreadable, ValueError) as exc:
            raise Unauthenticated("Nobody is signed in.") from exc
        if session_data["until"] <= time.time():
            raise Unauthenticated("The session has ended.")
        if "refresh_token" in session_data:
            session_data["credential"] = {"refresh_token": session_data["refresh_token"]}
        return session_data

    def _set_cookie(self, session_data: dict[str, str], token: str, until: float) -> Response:
        answer = JSONResponse({"token": token}, headers=_UNCACHED)
        cookie = self._registry.services.vault.seal(json.dumps({**session_data, "until": until}).encode(), _CONTEXT)
        answer.set_cookie(
            self._name,
            cookie,
            max_age=round(until - time.time()),
            path=self._path,
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    def clear_cookie(self, answer: Response) -> None:
        answer.delete_cookie(self._name, path=self._path, secure=self._secure, httponly=True, samesite="strict")


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One route as an ASGI application."""

    sessions: Sessions
    answer: Answer

    async def __call__(self, scope: Any, receive: Any, respond: Any) -> None:
        rest_request, request = RestRequest(scope, reply_to(scope, respond)), Request(scope, receive)
        base_url = self.sessions.base_url
        context = RequestContext(
            "rest", rest_request.id, rest_request.ip, rest_request.user_agent, base_url, rest_request.path
        )
        try:
            _require_own_page(request)
            response = await self.answer(self.sessions, request, context)
        except BaobabError as error:
            body = STRUCTURED.render(error, f"{base_url}/docs")
            response = JSONResponse(body, error.status, {**_UNCACHED, **error_headers(error)})
            if isinstance(error, Unauthenticated):
                self.sessions.clear_cookie(response)
        await response(scope, receive, respond)


def session_routes(registry: Registry) -> list[Route]:
    return Sessions(registry).routes()


def _require_own_page(request: Request) -> None:
    headers = request.headers
    is_cross_site = headers.get("sec-fetch-site", "same-origin") != "same-origin"
    origin = headers.get("origin")
    is_foreign_origin = origin is not None and urlsplit(origin).netloc != headers.get("host")
    if PAGE_HEADER not in headers or is_cross_site or is_foreign_origin:
        raise ForeignPage


async def _read_json(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST:
            raise BadRequest("The body is too large.")
    try:
        value = json.loads(body)
    except ValueError as exc:
        raise BadRequest("The body is not valid JSON.") from exc
    if not isinstance(value, dict):
        raise BadRequest("The body must be an object.")
    return value
