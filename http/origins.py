"""Web origins: which pages may call, for each app (CORS), and which headers tell the browser so."""

import re

from baobab.http.hosts import Hosts, read_origin
from baobab.http.request import Request
from baobab.tools.core.auth.directory import App, Directory
from baobab.tools.core.errors import AppNotFound, OriginRefused

Headers = list[tuple[bytes, bytes]]

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_ALLOWED = (
    b"Content-Type, Authorization, X-Organization-Id, X-Platform-As-User, X-Request-Id, apikey, "
    b"MCP-Protocol-Version, Mcp-Method, Mcp-Name, Last-Event-ID, Range, If-Range, If-None-Match, If-Modified-Since, "
    b"Tus-Resumable, Upload-Length, Upload-Offset, Upload-Metadata, Upload-Defer-Length, "
    b"X-HTTP-Method-Override"
)
_NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]{1,100}")
_MOST_NAMED = 4096
"""The most bytes of the names of headers that a preflight is answered with."""
_EXPOSED = (
    b"X-Request-Id, RateLimit, RateLimit-Policy, Retry-After, Retry-After-Ms, X-Should-Retry, WWW-Authenticate, "
    b"Location, ETag, Last-Modified, Content-Range, Content-Disposition, Accept-Ranges, X-Action-Id, X-Total-Count, "
    b"Tus-Resumable, Tus-Version, Tus-Extension, Tus-Max-Size, Upload-Length, Upload-Defer-Length, Upload-Offset, "
    b"Upload-Expires, Upload-Metadata, Preference-Applied, X-Baobab-Model, X-Baobab-Cost-Usd, X-Baobab-Cache, "
    b"X-Baobab-Dropped, X-Baobab-Warnings, X-Baobab-Simulated, X-People-Provider, X-People-Credits-Consumed, "
    b"X-People-Usd-Charged, X-People-Cached"
)
_PREFLIGHT_SECONDS = b"600"
# Paths that an MCP client in a browser needs before it has a key. Their answers do not depend on the caller.
_PUBLIC = frozenset(
    [
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/oauth/register",
        "/oauth/token",
    ]
)
_TO_EVERYBODY = [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _EXPOSED)]
_PREFLIGHT_TO_EVERYBODY = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"Content-Type, Authorization, MCP-Protocol-Version"),
    (b"access-control-max-age", _PREFLIGHT_SECONDS),
]
_NOT_OF_AN_APP = (
    "Call this path from a program, or from a page of this server; "
    "the allowed origins of an app apply only to the paths of that app."
)


class Origins:
    def __init__(self, hosts: Hosts, directory: Directory, base_url: str) -> None:
        """base_url: of this server. The pages of its apps have the same scheme: others may be forged on their way."""
        self._hosts = hosts
        self._directory = directory
        self._scheme = base_url.partition("://")[0]

    async def cors_headers(self, request: Request, app_id: str | None) -> Headers:
        """Returns the CORS headers of the answer. Raises OriginRefused. A request without an origin comes from no page
        and is allowed.
        """
        origin = request.origin
        if origin is None:
            return []
        if request.path in _PUBLIC:
            return _TO_EVERYBODY + (_PREFLIGHT_TO_EVERYBODY if request.is_preflight else [])
        if not await self._is_allowed(origin.decode("latin-1").lower(), app_id):
            raise OriginRefused if app_id is not None else OriginRefused(remediation=_NOT_OF_AN_APP)
        headers = [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        ]
        if request.is_preflight and request.method == "OPTIONS":
            headers += [
                (b"access-control-allow-methods", _METHODS),
                (b"access-control-allow-headers", _allowed_headers(request.header(b"access-control-request-headers"))),
                (b"access-control-max-age", _PREFLIGHT_SECONDS),
            ]
        return headers

    async def _is_allowed(self, origin: str, app_id: str | None) -> bool:
        if self._hosts.is_platform(origin):
            return True
        if app_id is None:
            return False
        try:
            app = await self._directory.app(app_id)
        except AppNotFound:
            return False
        return origin in app.allowed_origins or self._is_page_of(origin, app)

    def _is_page_of(self, origin: str, app: App) -> bool:
        """Returns whether an origin is one of the app's own hosts. A page next door is a stranger's."""
        if origin.partition("://")[0] != self._scheme:
            return False
        host = self._hosts.find_page(origin)
        if host is None:
            return read_origin(origin) in app.domains
        return host.subdomain == app.subdomain.lower() or (host.preview_of or ("",))[0] == app.id


def _allowed_headers(requested_headers: bytes | None) -> bytes:
    """Returns the headers that a page may send: those of this API, and any that it asks for, because clients send
    headers of their own and new versions add more. The page's origin decides who may call; a header does not.
    """
    names = (requested_headers or b"")[:_MOST_NAMED].lower().replace(b" ", b"").split(b",")
    return b", ".join((_ALLOWED, *filter(_NAME.fullmatch, names)))
