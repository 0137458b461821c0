"""An endpoint: one tool, bound to its REST route. It translates between HTTP and `Registry.run`, which holds every
rule.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from baobab.http import further_names, query
from baobab.http.answer import Send, allowance_headers, cost_header, warnings_header
from baobab.http.bodies import BODIES, FREE
from baobab.http.open_streams import OpenStreams
from baobab.http.public_document import PublicDocument
from baobab.http.request import (
    LARGE,
    LargeBodyParser,
    Request,
    SharedBody,
    parse_small_body,
    read_form,
    read_json,
    stream_body,
)
from baobab.http.streaming import send_stream, wait_until_left
from baobab.http.trie import decode_parameter
from baobab.tools.core.auth.callers import Anonymous, Caller
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.call import Call, Tool
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BadRequest, Forbidden, Unauthenticated, UnknownField, UpgradeRequired
from baobab.tools.core.limits.rate_limits import network
from baobab.tools.core.registry import Registry
from baobab.tools.core.stream import Stream

_FORM = b"application/x-www-form-urlencoded"
_RAW = "raw"
_OPEN = "_"
"""The value in a path that leaves a parameter to the body."""


class Endpoint:
    __slots__ = (
        "_any_value",
        "_constant",
        "_credentials",
        "_document",
        "_elsewhere",
        "_from_headers",
        "_is_public_text",
        "_key_header",
        "_media",
        "_parser",
        "_query",
        "_registry",
        "_rest",
        "_simulates",
        "_small",
        "_streams",
        "_takes_body",
        "_text",
        "tool",
    )

    def __init__(self, registry: Registry, tool: Tool, streams: OpenStreams, parser: LargeBodyParser) -> None:
        assert tool.rest is not None
        self.tool = tool
        self._registry = registry
        self._streams = streams
        self._parser = parser
        self._credentials = registry.services.credentials
        self._rest = tool.rest
        key_header = tool.toolset.key_header
        self._key_header = None if key_header is None else key_header.encode()
        self._query: dict[str, query.Reader] | None = None
        elsewhere = frozenset((*tool.rest.path_parameters, *tool.rest.query_parameters))
        self._elsewhere = elsewhere - tool.rest.repeats
        self._takes_body = tool.rest.method in ("POST", "PUT", "PATCH")
        self._any_value = tool.rest.whole_body is not None
        self._small = min(tool.rest.max_body, FREE)
        self._constant = [(name.encode(), value.encode()) for name, value in tool.rest.headers.items()]
        self._from_headers = [(name, header.encode()) for name, header in tool.rest.from_headers.items()]
        # The tool itself shows what a user would see; the caller stays whoever they are.
        self._simulates = "x-platform-as-user" in tool.rest.from_headers.values()
        self._media = tool.rest.media_type.encode()
        self._text = not tool.rest.media_type.startswith("application/json")
        # To compress a text is safe only if it is the same for everybody.
        self._is_public_text = tool.rest.media_type.startswith("text/plain") and not tool.access.credential
        self._document: PublicDocument | None = None

    async def answer(self, request: Request, receive: Any, respond: Send, base_url: str) -> int:
        """Calls the tool, sends its result and returns the status that was sent."""
        if self._rest.socket:
            raise UpgradeRequired(headers={"upgrade": "websocket"})
        caller, arguments = await self._read_request(request)
        is_alone = self._rest.alone is not None and self._take_raw(arguments)
        context = self._build_context(request, base_url)
        # Only a call that waits for work asks for it: the body has been read by then.
        context.wait_until_left = partial(wait_until_left, receive)
        if self._rest.verbatim and self._rest.raw_body is not None:
            shared_body = SharedBody(receive, request)
            arguments[self._rest.raw_body] = shared_body.describe()
            receive = shared_body.receive
        elif self._rest.raw_body is not None:
            arguments[self._rest.raw_body] = stream_body(receive, request)
        elif self._takes_body:
            raw = self._take_body(request)
            if raw is None:
                body = await self._read_body(request, receive, caller, arguments, context)
            else:
                body = parse_small_body(raw, any_value=self._any_value)
            self._add_body(arguments, body)
        # From here on, the registry records refusals itself.
        request.is_dispatched = True
        result, call = await self._registry.run(self.tool, arguments, caller, context)
        request.is_dispatched = False
        status = self._rest.status if isinstance(self._rest.status, int) else self._rest.status(result)
        headers = request.headers
        self._add_headers(headers, call)
        if isinstance(result, Stream):
            places = self._streams.hold_place(caller, request.ip, result.subject, result.places)
            with places if result.subject else nullcontext():
                await send_stream(self._guard_stream(result, request, call), status, headers, receive, respond)
            return status
        content = b""
        if self._is_public_text:
            status, own_headers, content = await self._choose_document(result, request)
            headers += ((name.encode(), value.encode()) for name, value in own_headers.items())
            headers.append((b"content-length", b"%d" % len(content)))
        elif status != 204:
            content = result.encode() if self._text else self._encode(result, is_alone=is_alone)
            headers += ((b"content-type", self._media), (b"content-length", b"%d" % len(content)))
        await request.reply(status, headers, content)
        return status

    def _add_headers(self, headers: list[tuple[bytes, bytes]], call: Call) -> None:
        if call.allowance is not None:
            headers += allowance_headers(call.allowance)
        headers += self._constant
        if call.headers is not None:
            headers += call.headers
        if call.action_id is not None:
            headers.append((b"x-action-id", call.action_id.encode()))
        if call.cost is not None:
            headers.append(cost_header(call.cost))
        if call.warnings is not None:
            headers.append(warnings_header(call.warnings))

    async def _choose_document(self, text: str, request: Request) -> tuple[int, dict[str, str], bytes]:
        """Returns status, headers and body of a text, which is the same for everybody."""
        content = text.encode()
        if self._document is None or self._document.content != content:
            self._document = PublicDocument(content, self._rest.media_type)
        names = (b"accept-encoding", b"if-none-match")
        return await self._document.choose(*((request.header(name) or b"").decode("latin-1") for name in names))

    def _take_raw(self, arguments: dict[str, Any]) -> bool:
        """Takes the parameter `raw` from the arguments. Raises BadRequest if it is neither true nor false."""
        raw = arguments.pop(_RAW, False)
        if not isinstance(raw, bool):
            raise BadRequest(f"`{_RAW}` must be 1 or 0.")
        return raw

    def _encode(self, result: Any, *, is_alone: bool) -> bytes:
        """Encodes a result as JSON; `is_alone`, only the value of its only field."""
        content = self.tool.encode(result)
        if is_alone:
            return content[len(f'{{"{self._rest.alone}":') : -1]
        if self._rest.further_names and self.tool.output_schema is not None:
            return further_names.add_to_answer(content, self.tool.output_schema, self._rest.further_names)
        return content

    def _add_body(self, arguments: dict[str, Any], body: Any) -> None:
        """Adds what is in the body to the arguments from the path, the query string and the headers."""
        rest = self._rest
        if rest.whole_body is not None:
            body = {rest.whole_body: body}
        if rest.further_names:
            body = further_names.read_body(body, frozenset(rest.body_parameters), rest.further_names)
        if rest.form:
            body = {name: value for name, value in body.items() if name in rest.body_parameters}
        if not self._elsewhere.isdisjoint(body):
            raise self._build_misplaced_error()
        for name in rest.repeats:
            if name in body and arguments[name] not in (_OPEN, body[name]):
                raise BadRequest(f"`{name}`: the body and the path have different values.")
        arguments |= body

    def _take_body(self, request: Request) -> bytes | None:
        """Returns a small body that has arrived as a whole, as nearly all have; None if it has to be read."""
        if request.take_body is None or self._rest.form or not 0 <= request.content_length <= self._small:
            return None
        return request.take_body()

    async def _read_body(
        self, request: Request, receive: Any, caller: Caller, arguments: Mapping[str, Any], context: RequestContext
    ) -> Any:
        """Returns the JSON of the body, an object unless the tool takes the whole body as one argument. A large body is
        read only after the caller has been admitted, and if there is room for it.

        arguments: the arguments from the path, the query string and the headers.
        """
        if self._rest.form and (request.header(b"content-type") or b"").startswith(_FORM):
            return await read_form(receive, request, self._rest.max_body)
        anonymous = isinstance(caller, Anonymous)
        largest = min(self._rest.max_body, LARGE) if anonymous else self._rest.max_body
        size = request.content_length
        if size < 0:
            # Without a content-length, the body may be as large as is allowed.
            size = self._rest.max_body
        if size <= FREE:
            return await read_json(receive, request, largest, self._parser, any_value=self._any_value)
        await self._registry.admit(self.tool, arguments, caller, context)
        owner = network(request.ip) if anonymous else caller.actor_id or ""
        with BODIES.hold(owner, min(size, largest), anonymous=anonymous):
            return await read_json(receive, request, largest, self._parser, any_value=self._any_value)

    @asynccontextmanager
    async def open_stream(self, request: Request, base_url: str) -> AsyncGenerator[Stream, None]:
        """Yields the stream that a WebSocket asks for, and counts it among the open streams until the block ends."""
        caller, arguments = await self._read_request(request)
        result, call = await self._registry.run(self.tool, arguments, caller, self._build_context(request, base_url))
        assert isinstance(result, Stream)
        with self._streams.hold_place(caller, request.ip, result.subject, result.places):
            yield self._guard_stream(result, request, call)

    def _guard_stream(self, stream: Stream, request: Request, call: Call) -> Stream:
        """Returns the stream, which ends as soon as its reader loses access."""
        if not stream.subject:
            return stream

        async def check() -> None:
            if await self._authenticate(request) != call.caller:
                raise Forbidden
            await self._registry.recheck(call)

        app_id = call.require_app().id if stream.follows_app else None
        return replace(stream, pieces=self._streams.stream_while_allowed(stream.pieces, call.caller, check, app_id))

    async def _read_request(self, request: Request) -> tuple[Caller, dict[str, Any]]:
        """Returns the caller, and the arguments from the path, the query string and the headers."""
        if self._key_header is not None and request.authorization is None:
            key = request.header(self._key_header)
            request.authorization = None if key is None else b"Bearer " + key
        arguments = self._read_query(request.query) if request.query and not self._rest.verbatim else {}
        if self._rest.credential is not None:
            token = arguments.pop(self._rest.credential, "")
            if token and request.authorization is None:
                request.authorization = b"Bearer " + str(token).encode()
        caller = self._credentials.find_cached(request.authorization) if request.plain else None
        if caller is None:
            try:
                caller = await self._authenticate(request)
            except Unauthenticated as error:
                if not self._rest.verbatim:
                    raise
                caller, request.refusal = ANONYMOUS, error
        for name, header in self._from_headers:
            if name not in arguments and (value := request.header(header)) is not None:
                arguments[name] = value.decode("latin-1")
        # The path wins: nothing in a query may switch apps.
        path_values = request.path_values if request.has_plain_path else map(decode_parameter, request.path_values)
        arguments.update(zip(self._rest.path_parameters, path_values, strict=True))
        return caller, arguments

    def _build_context(self, request: Request, base_url: str) -> RequestContext:
        context = RequestContext(
            "rest", request.id, request.ip, request.user_agent, base_url, request.path, streams=True
        )
        context.trace, context.method, context.profile = request.trace, request.method, request.profile
        if self._rest.verbatim:
            context.http = request.describe()
        return context

    def _read_query(self, text: bytes) -> dict[str, Any]:
        if self._query is None:
            self._query = dict(query.build_readers(self.tool))
            if self._rest.alone is not None:
                self._query[_RAW] = query.read_boolean
        rest = self._rest
        return query.read_query(
            text,
            self._query,
            ignores_unknown=rest.form,
            further=rest.further_query,
            instead_of_unknown=rest.instead_of_query,
        )

    async def _authenticate(self, request: Request) -> Caller:
        if not self.tool.access.credential:
            return ANONYMOUS
        return await self._credentials.caller(
            request.authorization,
            anon_key=request.anon_key,
            organisation=request.organisation,
            as_user=None if self._simulates else request.as_user,
        )

    def _build_misplaced_error(self) -> UnknownField:
        """Builds the error for a body that holds a parameter of the path or the query string."""
        body_names = ", ".join(f"`{name}`" for name in self._rest.body_parameters) or "none"
        return UnknownField(
            "The body holds a parameter that belongs in the path or the query string.",
            remediation=f"Leave it out; the fields of the body are {body_names}.",
        )
