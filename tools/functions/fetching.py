"""`fetch` of functions: to the app's own API in this process, to everything else through the guarded client."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from baobab.runtime.functions.host import FetchRequest, FetchResponse
from baobab.runtime.net.egress import Egress, EgressStream
from baobab.tools.core import Forbidden, Services
from baobab.tools.core.errors import BodyTooLarge
from baobab.tools.core.own_door import OwnDoor
from baobab.tools.functions.errors import HostNotAllowed, OwnServerRefused, ReadOnlyRefused

if TYPE_CHECKING:
    from baobab.tools.functions.host import FunctionHost

MOST_SENT, MOST_RECEIVED = 32 * 2**20, 256 * 2**20
"""Bytes of one request's body, and of one answer's."""
_REDIRECTS = 10
_REDIRECT_STATUSES = frozenset((301, 302, 303, 307, 308))
_OF_APP = ("v1", "auth", "storage")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_DECODED = frozenset({"content-encoding", "content-length", "transfer-encoding", "connection"})


async def fetch(host: "FunctionHost", request: FetchRequest) -> FetchResponse:
    """Makes a request of a function. Raises BaobabError."""
    if host.invocation.read_only and request.method.upper() not in ("GET", "HEAD"):
        raise ReadOnlyRefused("fetch sends only GET and HEAD, because agent_tool_mode is read_only.")
    if _is_own(host.invocation.services, request.url):
        return await _fetch_own(host, request)
    return await _fetch_outside(host, request)


def _is_own(services: Services, url: str) -> bool:
    """Returns whether a URL names this server, by any of its names."""
    options = services.options
    try:
        target, base = urlsplit(url), urlsplit(options.base_url)
        name, port = (target.hostname or "").rstrip(".").lower(), target.port or _DEFAULT_PORTS.get(target.scheme)
    except ValueError:
        return False
    if name in _LOOPBACK and (base.hostname or "") in _LOOPBACK:
        # Other servers of a developer's machine have other ports.
        return port == (base.port or _DEFAULT_PORTS.get(base.scheme))
    own_names = {(urlsplit(options.base_url).hostname or "").lower(), *(each.lower() for each in options.allowed_hosts)}
    domains = [domain for domain in (options.base_domain, options.files_domain) if domain]
    return name in own_names or any(name.endswith(f".{domain.lower()}") for domain in domains)


async def _fetch_own(host: "FunctionHost", request: FetchRequest) -> FetchResponse:
    invocation = host.invocation
    services, app = invocation.services, invocation.app
    url, base = urlsplit(request.url), urlsplit(services.options.base_url)
    own_origin = (base.scheme, base.hostname, base.port or _DEFAULT_PORTS.get(base.scheme))
    if (url.scheme, url.hostname, url.port or _DEFAULT_PORTS.get(url.scheme)) != own_origin:
        raise OwnServerRefused
    segments = [unquote(segment) for segment in url.path.split("/")]
    is_of_app = len(segments) > 3 and segments[1] in _OF_APP and segments[2] == app.id
    if not is_of_app or ".." in segments or "." in segments or not url.path.isascii():
        raise OwnServerRefused
    if invocation.read_only and segments[1:2] == ["v1"] and segments[3] in ("fn", "webhook"):
        raise ReadOnlyRefused("A function with agent_tool_mode read_only calls others with ctx.invoke.")
    headers = [(name, value) for name, value in request.headers if name.lower() not in ("host", "cookie", "origin")]
    names = {name.lower() for name, _ in headers}
    identity = invocation.identity
    if not names & {"authorization", "apikey"} and identity.authorization is not None:
        # The request of whoever called goes on with their own right.
        headers.append(("authorization", identity.authorization))
        if identity.as_user is not None:
            headers.append(("x-platform-as-user", identity.as_user))
    body = None if request.body is None else _bound_body(request.body, MOST_SENT)
    answer = await services.part(OwnDoor).request(
        request.method.upper(),
        url.path,
        url.query,
        headers,
        body,
        host=base.netloc,
        ip=invocation.ip,
        hops=invocation.hops + 1,
    )
    return build_response(
        answer.status, answer.headers, _bound_body(answer.body, MOST_RECEIVED), request.url, redirected=False
    )


async def _fetch_outside(host: "FunctionHost", request: FetchRequest) -> FetchResponse:
    services = host.invocation.services
    client: Any = services.http_client
    assert isinstance(client, Egress)
    body = None
    if request.body is not None:
        body = b"".join([piece async for piece in _bound_body(request.body, MOST_SENT)])
    headers: dict[str, str] = {}
    for name, value in request.headers:
        lower_name = name.lower()
        headers[lower_name] = f"{headers[lower_name]}, {value}" if lower_name in headers else value
    for name in ("accept-encoding", "connection", "content-length", "host", "transfer-encoding", "te", "expect"):
        headers.pop(name, None)
    follow = _REDIRECTS if request.redirect == "follow" else 0
    stack = AsyncExitStack()
    try:
        answer = await stack.enter_async_context(
            client.stream(
                request.method.upper(),
                request.url,
                headers=headers,
                body=body,
                max_bytes=MOST_RECEIVED,
                timeout=host.row.timeout_ms / 1000,
                follow=follow,
                cross_host=True,
                require_host=partial(require_host, host.row),
            )
        )
    except BaseException:
        await stack.aclose()
        raise
    if request.redirect == "error" and answer.status in _REDIRECT_STATUSES:
        await stack.aclose()
        raise Forbidden("The address redirects, and the request says `redirect: error`.")
    pairs = [(name.lower(), value) for name, value in answer.headers.items() if name.lower() not in _DECODED]
    body_outside = _read_outside(answer, stack)
    return build_response(answer.status, pairs, body_outside, answer.url, redirected=answer.url != request.url)


def require_host(row: Any, host: str) -> None:
    """Raises HostNotAllowed for a host that a function does not name."""
    if row.allowed_hosts is None:
        return
    name = host.rstrip(".").lower()
    for allowed in row.allowed_hosts:
        # `*.example.com` is what stands below the name, and not the name itself.
        if name == allowed or (allowed.startswith("*.") and name.endswith(allowed[1:])):
            return
    raise HostNotAllowed(f"The function {row.name} does not name {name[:100]} in allowed_hosts.")


async def _read_outside(answer: EgressStream, stack: AsyncExitStack) -> AsyncGenerator[bytes, None]:
    async with stack:
        async for piece in answer:
            yield piece


async def _bound_body(body: AsyncIterator[bytes], most: int) -> AsyncGenerator[bytes, None]:
    size = 0
    try:
        async for piece in body:
            size += len(piece)
            if size > most:
                raise BodyTooLarge(f"The body is larger than {most} bytes.", details={"max_bytes": most})
            yield piece
    finally:
        close = getattr(body, "aclose", None)
        if close is not None:
            await close()


def build_response(
    status: int, headers: Sequence[tuple[str, str]], body: AsyncGenerator[bytes, None], url: str, *, redirected: bool
) -> FetchResponse:
    """Returns an answer as the engine takes it."""
    pairs = tuple((name, value) for name, value in headers if name.lower() != "set-cookie")
    return FetchResponse(status, pairs, body, url, redirected)
