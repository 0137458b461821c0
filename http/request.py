"""A request as the REST interface reads it: only the headers that matter, each once."""

import asyncio
import itertools
import re
import secrets
import time
from collections.abc import AsyncIterator, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from baobab.http.answer import TAKE_BODY, Headers, Reply, TakeBody
from baobab.http.trie import PathValues
from baobab.runtime.fair_thread_pool import FairThreadPool
from baobab.tools.core.call import Tool
from baobab.tools.core.context import HttpRequest
from baobab.tools.core.errors import BaobabError, BodyTooLarge, MalformedBody
from baobab.tools.core.stream import Body, ClientGone
from baobab.tools.core.types import parse_json

Scope = MutableMapping[str, Any]

LARGE = 2**20
"""The largest body, in bytes, that is parsed at once, within milliseconds, also for anonymous callers."""

_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROCESS = f"req_{secrets.token_hex(5)}"
_COUNTER = itertools.count(1)
_MOST_FIELDS = 100
_MORE_IDENTITY = frozenset((b"apikey", b"x-organization-id", b"x-platform-as-user"))
_NOSNIFF = (b"x-content-type-options", b"nosniff")


def new_request_id() -> str:
    return f"{_PROCESS}{next(_COUNTER):x}"


class Request:
    """The parts of a request that the REST interface needs; `tool` and `path_values` are set once the route is
    known.
    """

    tool: Tool | None = None
    path_values: PathValues = ()
    """The path parameters, in the order of the path, still percent-encoded."""
    refusal: BaobabError | None = None
    """Why the credential is not valid, where that does not end the request."""
    is_at_app = False
    """Whether it came to a host of an app, where pages of its site are; False until the host is known."""
    is_dispatched = False
    """Whether the call has reached the registry, which then records refusals itself."""

    def __init__(self, scope: Scope, reply: Reply) -> None:
        # Of a repeated header the last value wins; a repeated Host, where that would matter, is refused before this.
        self._scope_headers = scope["headers"]
        headers = self._headers = dict(self._scope_headers)
        self.reply = reply
        self.method: str = scope.get("method", "GET")
        self.path: str = scope["raw_path"].decode("latin-1")
        self.query: bytes = scope["query_string"]
        client = scope.get("client")
        self.ip: str = client[0] if client else "unknown"
        self.host: bytes = headers.get(b"host", b"")
        self.authorization: bytes | None = headers.get(b"authorization")
        self.origin: bytes | None = headers.get(b"origin")
        # Popped, because it refers back to the scope, and only the garbage collector could free that cycle.
        self.take_body: TakeBody | None = scope.pop(TAKE_BODY, None)
        self.plain = headers.keys().isdisjoint(_MORE_IDENTITY)
        """Whether `authorization` alone identifies the caller."""
        self.id = self._given_id() if b"x-request-id" in headers else new_request_id()
        self.headers: Headers = [(b"x-request-id", self.id.encode()), _NOSNIFF]
        """The headers of the answer that are known so far."""

    def describe(self) -> HttpRequest:
        """Returns the request as tools get it that pass it on. Of a repeated header, it has every value."""
        pairs = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._scope_headers)
        authorization = None if self.authorization is None else self.authorization.decode("latin-1")
        return HttpRequest(self.query.decode("latin-1"), pairs, None if self.refusal else authorization, self.refusal)

    def header(self, name: bytes) -> bytes | None:
        """Returns any other header, by its name in lower case."""
        return self._headers.get(name)

    @property
    def anon_key(self) -> bytes | None:
        return self._headers.get(b"apikey")

    @property
    def organisation(self) -> bytes | None:
        return self._headers.get(b"x-organization-id")

    @property
    def as_user(self) -> bytes | None:
        return self._headers.get(b"x-platform-as-user")

    @property
    def user_agent(self) -> str:
        agent: bytes = self._headers.get(b"user-agent", b"")
        return agent.decode("latin-1")

    @property
    def trace(self) -> str:
        """The W3C `traceparent` header as it was sent; empty if there is none."""
        parent: bytes = self._headers.get(b"traceparent", b"")
        return parent.decode("latin-1")

    @property
    def profile(self) -> str:
        """The schema of a database that a client of PostgREST names, to read or to write; empty if it names none."""
        profile: bytes = self._headers.get(b"accept-profile") or self._headers.get(b"content-profile", b"")
        return profile.decode("latin-1")

    @property
    def content_length(self) -> int:
        """The length that the client declares; -1 if it declares none."""
        return int(self._headers.get(b"content-length", -1))

    @property
    def is_preflight(self) -> bool:
        return b"access-control-request-method" in self._headers

    @property
    def has_plain_path(self) -> bool:
        """Whether nothing in the path is percent-encoded."""
        return "%" not in self.path and self.path.isascii()

    def _given_id(self) -> str:
        sent_id: bytes = self._headers[b"x-request-id"]
        return sent_id.decode() if _GIVEN_ID.fullmatch(sent_id) else new_request_id()

    def get_captured(self, name: str | None) -> str | None:
        """Returns a path parameter by name, still percent-encoded; None if the path has none of that name."""
        names = self.tool.rest.path_parameters if self.tool and self.tool.rest else ()
        return self.path_values[names.index(name)] if name in names else None


class LargeBodyParser:
    """Parses large bodies one at a time, in turns among callers, with a pause after each that is as long as its parsing
    took.

    The parser holds the GIL even in a thread, for up to a second with millions of small values. The pauses leave half
    of the time to all other requests.
    """

    def __init__(self) -> None:
        self._queue = FairThreadPool("large-bodies")
        self._next = 0.0

    async def parse(self, raw: bytes, *, any_value: bool) -> Any:
        return await self._queue.run_work(partial(self._parse, raw, any_value=any_value))

    def _parse(self, raw: bytes, *, any_value: bool) -> Any:
        started_at = time.monotonic()
        if started_at < self._next:
            time.sleep(self._next - started_at)
            started_at = time.monotonic()
        try:
            return parse_body(raw) if any_value else parse_object(raw)
        finally:
            ended_at = time.monotonic()
            self._next = ended_at + (ended_at - started_at)


def stream_body(receive: Any, request: Request) -> Body:
    """Returns the body of a request, of which nothing has been read yet."""
    content_type = request.header(b"content-type") or b""
    size = request.content_length
    return Body(_iterate_body(receive), None if size < 0 else size, content_type.decode("latin-1"))


class SharedBody:
    """The body of a request that is still read while the answer is sent. `receive` is for whoever waits for the client
    to leave: it waits until the body has been read, or nobody wants it any more.
    """

    def __init__(self, receive: Any, request: Request) -> None:
        self._receive = receive
        self._pieces = _iterate_body(receive)
        self._is_over = asyncio.Event()
        self._request = request

    def describe(self) -> Body:
        """Returns the body as tools get it."""
        size = self._request.content_length
        content_type = self._request.header(b"content-type") or b""
        return Body(self, None if size < 0 else size, content_type.decode("latin-1"))

    def __aiter__(self) -> "SharedBody":
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._pieces)
        except BaseException:
            self._is_over.set()
            raise

    async def aclose(self) -> None:
        """Says that nobody reads the rest of it."""
        self._is_over.set()

    async def receive(self) -> Any:
        await self._is_over.wait()
        return await self._receive()


async def _iterate_body(receive: Any) -> AsyncIterator[bytes]:
    is_complete = False
    while not is_complete:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        is_complete = not message.get("more_body", False)
        if chunk := message.get("body", b""):
            yield chunk


async def read_json(
    receive: Any, request: Request, max_bytes: int, parser: LargeBodyParser, *, any_value: bool = False
) -> Any:
    """Returns the JSON object of a body, or any JSON; an empty body is an empty object. Raises BodyTooLarge,
    MalformedBody and ClientGone.
    """
    raw = await _read_raw(receive, request, max_bytes)
    if len(raw) > LARGE:
        return await parser.parse(raw, any_value=any_value)
    return parse_small_body(raw, any_value=any_value)


async def read_form(receive: Any, request: Request, max_bytes: int) -> dict[str, Any]:
    """Reads a form that a browser has posted; of a repeated field the last one counts. Raises BodyTooLarge,
    MalformedBody, ClientGone.
    """
    raw = await _read_raw(receive, request, min(max_bytes, LARGE))
    try:
        return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"))
    except ValueError as exc:
        raise MalformedBody("The body is not a valid form.") from exc


async def _read_raw(receive: Any, request: Request, max_bytes: int) -> bytes:
    if request.content_length > max_bytes:
        raise _build_too_large(max_bytes)
    message = await receive()
    raw = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [raw], len(raw)
        while message.get("more_body"):
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > max_bytes:
                raise _build_too_large(max_bytes)
        raw = b"".join(parts)
    if message["type"] == "http.disconnect":
        raise ClientGone
    if len(raw) > max_bytes:
        raise _build_too_large(max_bytes)
    return bytes(raw)


def parse_small_body(raw: bytes, *, any_value: bool) -> Any:
    """Returns the JSON object of a body, or any JSON; an empty body is an empty object. Raises MalformedBody."""
    if not raw:
        return {}
    return parse_body(raw) if any_value else parse_object(raw)


def parse_body(raw: bytes) -> Any:
    try:
        return parse_json(raw)
    except ValueError as exc:
        # The parser's message names the position and never repeats the input.
        raise MalformedBody(f"The body is not valid JSON: {exc}.") from exc


def parse_object(raw: bytes) -> dict[str, Any]:
    value = parse_body(raw)
    if not isinstance(value, dict):
        raise MalformedBody(f"The body must be a JSON object, not {_json_type(value)}.")
    return value


def _json_type(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _build_too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body is larger than {max_bytes} bytes.", details={"max_bytes": max_bytes}, headers={"connection": "close"}
    )
