"""The one client for outgoing requests: webhooks, image URLs, OAuth, remote MCP and model servers.

The URLs come from users, so each URL is parsed, its host resolved and every address checked here; the connection then
goes to exactly those addresses. Proxies and netrc of the environment and cookies of earlier answers are not used.
aiohttp is imported with the first request, because that is too slow for the start of the server.

    egress = Egress(allow=["10.1.0.0/16"])
    response = await egress.request("POST", url, headers={"content-type": "application/json"}, body=b"{}")
    async with egress.stream("GET", url, max_bytes=2**30, timeout=600) as answer:
        async for chunk in answer: ...
    await egress.close()
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urljoin

from baobab.runtime.jobs.job_slots import network_wait
from baobab.runtime.net.addresses import (
    Address,
    AddressPolicy,
    AddressRefused,
    CredentialInClear,
    EgressError,
    EgressUnavailable,
    Network,
    Target,
    UrlRefused,
)
from baobab.runtime.net.body_decoders import PIECE_BYTES, build_decoder
from baobab.runtime.net.host_resolver import get_host_resolver
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.tools.core.tenancy import current_tenant

if TYPE_CHECKING:
    import aiohttp
    from aiohttp.abc import AbstractResolver, ResolveResult

# (host, port) -> addresses as text, best first. Raises OSError if the name does not resolve.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

__all__ = [
    "AddressRefused",
    "Egress",
    "EgressError",
    "EgressResponse",
    "EgressStream",
    "EgressTimeout",
    "EgressTooLarge",
    "EgressUnavailable",
    "RequestRefused",
    "Resolver",
    "UrlRefused",
    "system_resolver",
]

USER_AGENT = "Baobab"
_MAX_REQUESTS_PER_HOST = 64
"""Requests of one tenant to one host at the same time; more wait."""
_REDIRECTS = frozenset([301, 302, 303, 307, 308])
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
# The client sets framing and routing itself: a Host header of the caller's could reach virtual hosts that the URL does
# not name.
_OUR_HEADERS = frozenset(
    [
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_BODY_HEADERS = frozenset(["content-type", "content-encoding", "content-language"])
_CREDENTIALS = frozenset(["authorization", "proxy-authorization", "cookie", "x-api-key", "api-key"])
# Headers that are sent on after a redirect to another origin. Keys travel in headers of many names, so this lists the
# harmless ones and not the secrets.
_HARMLESS_HEADERS = frozenset(["accept", "accept-language", "user-agent"]) | _BODY_HEADERS


def always_open() -> None:
    """Forbids nothing."""


def allow_host(host: str) -> None:
    """Forbids no host."""


class RequestRefused(EgressError):
    code = "EGRESS_REQUEST_REFUSED"
    status = 400
    summary = "The method or a header of the outgoing request is not allowed."
    remediation = "Leave out headers that the connection sets itself, and control characters."


class EgressTimeout(EgressError):
    code = "EGRESS_TIMEOUT"
    status = 504
    summary = "The service did not answer in time."
    remediation = "Try again later, or ask the service for less."


class EgressTooLarge(EgressError):
    code = "EGRESS_TOO_LARGE"
    summary = "The answer of the service is larger than allowed."
    remediation = "Ask the service for less; details.max_bytes is the limit."

    def __init__(self, max_bytes: int) -> None:
        super().__init__(details={"max_bytes": max_bytes})


@dataclass(frozen=True, slots=True)
class EgressResponse:
    """A whole answer. `headers` ignore case, `body` is decompressed, `url` is that of the last redirect."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class EgressStream:
    """An answer whose body is still to be read: iterate once for decompressed pieces of at most 64 KiB.

    Iterating raises EgressTooLarge, EgressTimeout or EgressUnavailable.
    """

    def __init__(self, response: "aiohttp.ClientResponse", url: str, max_bytes: int, deadline: float) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.url = url
        self._response = response
        self._max_bytes = max_bytes
        self._deadline = deadline

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = build_decoder(self.headers.get("Content-Encoding", ""))
        received_size = decoded_size = 0
        while data := await self._read_chunk():
            # Both are counted: endless empty compressed blocks decode to nothing.
            received_size = self._add_size(received_size, data)
            for piece in decoder.feed(data):
                decoded_size = self._add_size(decoded_size, piece)
                yield piece
        decoder.finish()

    def _add_size(self, size: int, data: bytes) -> int:
        if size + len(data) > self._max_bytes:
            raise EgressTooLarge(self._max_bytes)
        return size + len(data)

    async def _read_chunk(self) -> bytes:
        async with network_wait(), _translate_errors(self._deadline):
            return await self._response.content.read(PIECE_BYTES)


class Egress:
    """The HTTP client for requests to URLs of users; one per process, used on one event loop.

    `allow`: networks that may be reached although they are not public. `max_bytes`: limit of an answer's body, both as
    sent and decompressed. `timeout`: seconds for the whole request, from resolving the host to reading the body.
    `resolver`: used in place of the system's. `tls`: used in place of the default context, for a private authority.
    `require_open`: called before each request; raises what forbids all of them, as in a copy of an installation.
    """

    def __init__(
        self,
        allow: Iterable[str | Network] = (),
        *,
        max_bytes: int = 10 * 2**20,
        timeout: float = 15.0,
        https_only: bool = False,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        require_open: Callable[[], None] = always_open,
    ) -> None:
        self.require_open = require_open
        """Raises what forbids all outgoing requests now."""
        self._policy = AddressPolicy(allow)
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._https_only = https_only
        self._uses_system_resolver = resolver is None
        self._resolver = _VettingResolver(resolver or system_resolver, self._policy)
        self._tls = tls
        self._client_session: aiohttp.ClientSession | None = None
        self._host_slots = KeyedSemaphore(_MAX_REQUESTS_PER_HOST)

    async def request(self, method: str, url: str, **options: Any) -> EgressResponse:
        """Sends a request and reads the whole answer, whatever its status. The options are those of `stream`."""
        async with network_wait(), self.stream(method, url, **options) as answer:
            body = b"".join([piece async for piece in answer])
            return EgressResponse(answer.status, answer.headers, body, answer.url)

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it covers the reading too, which is the caller's loop
        follow: int = 0,
        cross_host: bool = False,
        https_only: bool | None = None,
        require_host: Callable[[str], None] = allow_host,
    ) -> AsyncGenerator[EgressStream, None]:
        """Sends a request and yields the answer as soon as its headers have arrived.

        `follow`: how many redirects to follow, each checked like the first URL; with 0 the redirect is the answer. They
        may not lead from https to http, nor to another host without `cross_host`. Only harmless headers are sent to
        another origin. The body is sent again on 307 and 308. `require_host` is called with the host of each of these
        requests, and raises what forbids it. Raises EgressError.
        """
        self.require_open()
        secure = self._https_only if https_only is None else https_only
        limit = self._max_bytes if max_bytes is None else max_bytes
        deadline = asyncio.get_running_loop().time() + (self._timeout if timeout is None else timeout)
        outgoing = _OutgoingRequest.build(method, Target.parse(url, secure), headers or {}, body)
        redirects = _Redirects(follow, cross_host, secure)
        while True:
            require_host(outgoing.target.host)
            async with self._reserve_host_slot(outgoing.target, deadline):
                response = await self._send_request(outgoing, deadline)
                try:
                    onward = redirects.next_request(outgoing, response.status, response.headers.get("Location"))
                    if onward is None:
                        _check_length(response, limit)
                        yield EgressStream(response, outgoing.target.url, limit, deadline)
                        return
                finally:
                    # Closes the connection, unless the body was read to its end: then it is already back in the pool.
                    response.close()
            outgoing = onward

    @asynccontextmanager
    async def _reserve_host_slot(self, target: Target, deadline: float) -> AsyncGenerator[None, None]:
        """Waits until the tenant may make another request to this host. Raises EgressTimeout at the deadline."""
        async with AsyncExitStack() as stack:
            try:
                async with network_wait(), asyncio.timeout_at(deadline):
                    await stack.enter_async_context(self._host_slots.acquire_slot((current_tenant(), target.origin)))
            except TimeoutError as exc:
                raise EgressTimeout from exc
            yield

    def check_url(self, url: str) -> Target:
        """Parses a URL for a protocol that is not sent by this client. Raises UrlRefused and AddressRefused.

        `dial` resolves and checks its host when it connects.
        """
        target = Target.parse(url, self._https_only)
        self._check_address(target)
        return target

    async def dial(self, host: str, port: int) -> socket.socket:
        """Connects to the host of a URL that `check_url` has parsed. Raises AddressRefused and OSError."""
        from aiohappyeyeballs import start_connection

        self.require_open()
        results = await self._resolver.resolve(host, port)
        endpoints = [
            (result["family"], socket.SOCK_STREAM, 0, "", (result["host"], result["port"])) for result in results
        ]
        return await start_connection(endpoints)

    @property
    def tls(self) -> ssl.SSLContext | None:
        return self._tls

    async def close(self) -> None:
        session, self._client_session = self._client_session, None
        if session is not None:
            await session.close()
        if self._uses_system_resolver:
            await get_host_resolver().close()

    async def _send_request(self, outgoing: "_OutgoingRequest", deadline: float) -> "aiohttp.ClientResponse":
        from yarl import URL

        self._check_address(outgoing.target)
        session = self._get_session()
        async with network_wait(), _translate_errors(deadline):
            if outgoing.target.scheme == "http" and not _CREDENTIALS.isdisjoint(map(str.lower, outgoing.headers)):
                await self._require_privacy(outgoing.target)
            return await session.request(
                outgoing.method,
                URL(outgoing.target.url, encoded=True),
                headers=outgoing.headers,
                data=outgoing.body,
                allow_redirects=False,
            )

    async def _require_privacy(self, target: "Target") -> None:
        """Raises CredentialInClear where others could read what is sent over plain http."""
        results = [] if target.address is not None else await self._resolver.resolve(target.host, target.port)
        addresses = (
            [target.address] if target.address is not None else [ip_address(result["host"]) for result in results]
        )
        if any(self._policy.is_read_by_others(address) for address in addresses):
            raise CredentialInClear

    def _check_address(self, target: "Target") -> None:
        # aiohttp does not pass addresses to the resolver, so they are checked here.
        if target.address is not None and not self._policy.is_permitted(target.address):
            raise AddressRefused

    def _get_session(self) -> "aiohttp.ClientSession":
        if self._client_session is None:
            import aiohttp

            self._client_session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=cast("AbstractResolver", self._resolver),
                    use_dns_cache=False,
                    ssl=self._tls or True,
                    limit=0,  # the requests of each tenant to each host are limited before they get here
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"},
                skip_auto_headers=["Content-Type"],
            )
        return self._client_session


async def system_resolver(host: str, port: int) -> list[str]:
    return await get_host_resolver().resolve(host, port)


class _VettingResolver:
    """The resolver that aiohttp uses. aiohttp connects only to addresses that are returned here, so what is checked is
    what is connected to, whatever the name resolves to a moment later."""

    def __init__(self, resolver: Resolver, policy: AddressPolicy) -> None:
        self._resolver = resolver
        self._policy = policy

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> "list[ResolveResult]":
        addresses = [ip_address(text) for text in await self._resolver(host, port)]
        if not all(self._policy.is_permitted(address) for address in addresses):
            raise AddressRefused
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        return [self._build_result(host, address, port) for address in addresses]

    def _build_result(self, host: str, address: Address, port: int) -> "ResolveResult":
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return {"hostname": host, "host": str(address), "port": port, "family": family, "proto": 0, "flags": flags}

    async def close(self) -> None:
        """Does nothing: aiohttp closes its resolver, and this one has nothing to close."""


@dataclass(frozen=True, slots=True)
class _OutgoingRequest:
    method: str
    target: Target
    headers: dict[str, str]
    body: bytes | None

    @classmethod
    def build(cls, method: str, target: Target, headers: Mapping[str, str], body: bytes | None) -> Self:
        if method.upper() not in _METHODS:
            raise RequestRefused("The method of the request is not allowed.")
        for name, value in headers.items():
            if not _TOKEN.fullmatch(name) or not _HEADER_VALUE.fullmatch(value) or _is_ours(name):
                raise RequestRefused
        return cls(method.upper(), target, dict(headers), body)

    def without_body(self) -> Self:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _BODY_HEADERS}
        return replace(self, method="HEAD" if self.method == "HEAD" else "GET", headers=headers, body=None)

    def with_target(self, target: Target) -> Self:
        headers = self.headers
        if target.origin != self.target.origin:
            headers = {name: value for name, value in headers.items() if name.lower() in _HARMLESS_HEADERS}
        return replace(self, target=target, headers=headers)


def _is_ours(name: str) -> bool:
    return name.lower() in _OUR_HEADERS or name.lower().startswith("proxy-")


class _Redirects:
    """Follows the redirects of one request, and counts how many are left."""

    def __init__(self, follow: int, cross_host: bool, https_only: bool) -> None:
        self._follow = self._remaining = follow
        self._cross_host = cross_host
        self._https_only = https_only

    def next_request(self, outgoing: _OutgoingRequest, status: int, location: str | None) -> _OutgoingRequest | None:
        """Returns the request to send next, or None if this answer is the final one."""
        if not self._follow or status not in _REDIRECTS or location is None:
            return None
        if not self._remaining:
            raise UrlRefused(f"The service redirects more than {self._follow} times.")
        self._remaining -= 1
        target = self._resolve_location(outgoing.target, location)
        repeats = status in (307, 308) or outgoing.method in ("GET", "HEAD")
        return (outgoing if repeats else outgoing.without_body()).with_target(target)

    def _resolve_location(self, current_target: Target, location: str) -> Target:
        try:
            target = Target.parse(
                urljoin(current_target.url, location), self._https_only or current_target.scheme == "https"
            )
        except ValueError as exc:
            raise UrlRefused from exc
        if target.host != current_target.host and not self._cross_host:
            raise UrlRefused("The service redirects to another host.")
        return target


@asynccontextmanager
async def _translate_errors(deadline: float) -> AsyncGenerator[None, None]:
    """Translates errors of aiohttp, sockets and timeouts to ours, without their texts, which name addresses."""
    import aiohttp

    try:
        async with asyncio.timeout_at(deadline):
            yield
    except TimeoutError as exc:
        raise EgressTimeout from exc
    except aiohttp.ClientConnectorDNSError as exc:
        raise EgressUnavailable("The host name does not resolve.") from exc
    except (aiohttp.ClientSSLError, ssl.SSLError) as exc:
        raise EgressUnavailable("The TLS connection to the service failed; check its certificate.") from exc
    except (aiohttp.ClientError, OSError) as exc:
        raise EgressUnavailable from exc


def _check_length(response: "aiohttp.ClientResponse", limit: int) -> None:
    if response.method != "HEAD" and (response.content_length or 0) > limit:
        raise EgressTooLarge(limit)
