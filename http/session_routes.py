"""The session of the server's own pages: a cookie that only these three routes read.

The cookie holds a sealed refresh token, or a pasted API key. A page asks here for an access token, keeps it in memory
and sends it as any client does: no operation of REST or MCP ever looks at a cookie, so that none can be forged.
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

from baobab.http.answer import reply_to
from baobab.http.request import Request as FrontRequest
from baobab.storage.secrets import SecretUnreadable
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import Door
from baobab.tools.core.envelopes import STRUCTURED
from baobab.tools.core.errors import BadRequest, BaobabError, Forbidden, Unauthenticated
from baobab.tools.core.registry import Registry

COOKIE = "baobab_session"
PAGE_HEADER = "x-baobab-page"
"""What only a script of the same origin can send without being asked for leave first."""
_CONTEXT = "page session"
_LIFETIME_SECONDS = 7 * 24 * 3600
_OF_KEY_SECONDS = 12 * 3600
_LARGEST = 4096
_UNCACHED = {"Cache-Control": "no-store", "Pragma": "no-cache", "X-Content-Type-Options": "nosniff"}

Answer = Callable[["Sessions", Request, Door], Awaitable[Response]]


class ForeignPage(Forbidden):
    code = "SESSION_FOREIGN_PAGE"
    summary = "Only pages of this server have a session here."
    remediation = "Other programs send an access token or an API key in the Authorization header."


class Sessions:
    def __init__(self, registry: Registry) -> None:
        options = registry.services.options
        address = urlsplit(options.base_url)
        self._registry = registry
        self._secure = address.scheme == "https"
        self._path = f"{address.path.rstrip('/')}/session"
        self.base_url = options.base_url

    def routes(self) -> list[Route]:
        return [
            Route("/session", self._endpoint(Sessions.begin), methods=["POST"], include_in_schema=False),
            Route("/session", self._endpoint(Sessions.end), methods=["DELETE"], include_in_schema=False),
            Route("/session/token", self._endpoint(Sessions.token), methods=["POST"], include_in_schema=False),
        ]

    def _endpoint(self, answer: Answer) -> Any:
        return _Endpoint(self, answer)

    async def begin(self, request: Request, door: Door) -> Response:
        """Sign in with `{email, password}`, or with `{key}`."""
        given = await _json(request)
        if isinstance(key := given.get("key"), str):
            caller = await self._registry.services.credentials.caller(f"Bearer {key}".encode())
            if not isinstance(caller, Account):
                raise Unauthenticated("This is no key of an account.")
            kept, token, lives = {"key": key}, key, _OF_KEY_SECONDS
        else:
            credentials = {name: given.get(name) for name in ("email", "password")}
            made = await self._registry.call("platform_login", credentials, ANONYMOUS, door)
            kept, token, lives = {"refresh_token": made["refresh_token"]}, made["token"], _LIFETIME_SECONDS
        return self._signed_in(kept, token, time.time() + lives)

    async def token(self, request: Request, door: Door) -> Response:
        """An access token for the page that asks."""
        kept = self._kept(request)
        if "key" in kept:
            return self._signed_in({"key": kept["key"]}, kept["key"], kept["until"])
        made = await self._registry.call("platform_refresh", kept["credential"], ANONYMOUS, door)
        renewed = {"refresh_token": made["refresh_token"]}
        return self._signed_in(renewed, made["token"], time.time() + _LIFETIME_SECONDS)

    async def end(self, request: Request, door: Door) -> Response:
        """Sign out: the refresh token is spent, and its successor is nobody's."""
        kept = self._kept(request)
        if "credential" in kept:
            await self._registry.call("platform_refresh", kept["credential"], ANONYMOUS, door)
        answer = JSONResponse({"message": "Signed out."}, headers=_UNCACHED)
        self.clear(answer)
        return answer

    def _kept(self, request: Request) -> dict[str, Any]:
        try:
            sealed = request.cookies.get(COOKIE, "")
            kept: dict[str, Any] = json.loads(self._registry.services.vault.open(sealed, _CONTEXT))
        except (SecretUnreadable, ValueError) as exc:
            raise Unauthenticated("Nobody is signed in here.") from exc
        if kept["until"] <= time.time():
            raise Unauthenticated("The session has ended.")
        if "refresh_token" in kept:
            kept["credential"] = {"refresh_token": kept["refresh_token"]}
        return kept

    def _signed_in(self, kept: dict[str, str], token: str, until: float) -> Response:
        answer = JSONResponse({"token": token}, headers=_UNCACHED)
        sealed = self._registry.services.vault.seal(json.dumps({**kept, "until": until}).encode(), _CONTEXT)
        answer.set_cookie(
            COOKIE,
            sealed,
            max_age=round(until - time.time()),
            path=self._path,
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    def clear(self, answer: Response) -> None:
        answer.delete_cookie(COOKIE, path=self._path, secure=self._secure, httponly=True, samesite="strict")


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """One route as an ASGI application."""

    sessions: Sessions
    answer: Answer

    async def __call__(self, scope: Any, receive: Any, respond: Any) -> None:
        came, request = FrontRequest(scope, reply_to(scope, respond)), Request(scope, receive)
        base_url = self.sessions.base_url
        door = Door("rest", came.id, came.ip, came.user_agent, base_url, came.path)
        try:
            _require_own_page(request)
            response = await self.answer(self.sessions, request, door)
        except BaobabError as error:
            body = STRUCTURED.render(error, f"{base_url}/docs")
            response = JSONResponse(body, error.status, {**_UNCACHED, **error.headers})
            if isinstance(error, Unauthenticated):
                self.sessions.clear(response)
        await response(scope, receive, respond)


def session_routes(registry: Registry) -> list[Route]:
    return Sessions(registry).routes()


def _require_own_page(request: Request) -> None:
    headers = request.headers
    foreign = headers.get("sec-fetch-site", "same-origin") != "same-origin"
    origin = headers.get("origin")
    elsewhere = origin is not None and urlsplit(origin).netloc != headers.get("host")
    if PAGE_HEADER not in headers or foreign or elsewhere:
        raise ForeignPage


async def _json(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST:
            raise BadRequest("The body is too large.")
    try:
        given = json.loads(body)
    except ValueError as exc:
        raise BadRequest("The body is no JSON.") from exc
    if not isinstance(given, dict):
        raise BadRequest("The body must be an object.")
    return given
