"""A request, as the front reads it: the few headers that matter, once."""

import itertools
import re
import secrets
from typing import Any

from pydantic_core import from_json

from baobab.http.answer import Headers, Reply
from baobab.http.trie import Captured
from baobab.tools.errors import BodyTooLarge, MalformedBody
from baobab.tools.tool import Tool

Scope = dict[str, Any]

_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROCESS = f"req_{secrets.token_hex(5)}"
_COUNTER = itertools.count(1)
_KEPT = {
    b"host": "host",
    b"authorization": "authorization",
    b"origin": "origin",
    b"apikey": "anon_key",
    b"x-organization-id": "organisation",
    b"x-platform-as-user": "as_user",
}
_NOSNIFF = (b"x-content-type-options", b"nosniff")


class ClientGone(Exception):
    """The client closed the connection before its request was whole."""


class Request:
    __slots__ = (
        "anon_key", "as_user", "authorization", "captured", "content_length", "headers", "host", "id", "ip", "literal",
        "method", "organisation", "origin", "path", "plain", "preflight", "query", "reply", "tool", "user_agent",
    )  # fmt: skip

    def __init__(self, scope: Scope, reply: Reply) -> None:
        self.reply = reply
        self.tool: Tool | None = None
        """The tool that the path led to, once that is known, and what its parameters captured."""
        self.captured: Captured = ()
        self.method: str = scope.get("method", "GET")
        self.path: str = scope["raw_path"].decode("latin-1")
        self.literal = "%" not in self.path and self.path.isascii()
        """Whether nothing in the path is encoded."""
        self.query: bytes = scope["query_string"]
        client = scope.get("client")
        self.ip: str = client[0] if client else "unknown"
        self.host = b""
        self.user_agent = ""
        self.content_length = -1
        self.authorization: bytes | None = None
        self.anon_key: bytes | None = None
        self.organisation: bytes | None = None
        self.as_user: bytes | None = None
        self.origin: bytes | None = None
        self.preflight = False
        given: bytes | None = None
        for name, value in scope["headers"]:
            attribute = _KEPT.get(name)
            if attribute is not None:
                setattr(self, attribute, value)
            elif name == b"user-agent":
                self.user_agent = value.decode("latin-1")
            elif name == b"content-length":
                self.content_length = int(value)
            elif name == b"x-request-id":
                given = value
            elif name == b"access-control-request-method":
                self.preflight = True
        self.plain = self.anon_key is None and self.organisation is None and self.as_user is None
        """Whether `authorization` alone says who calls."""
        if given is not None and _GIVEN_ID.fullmatch(given):
            self.id = given.decode()
        else:
            self.id = f"{_PROCESS}{next(_COUNTER):x}"
        self.headers: Headers = [(b"x-request-id", self.id.encode()), _NOSNIFF]
        """Headers of the answer, as far as they are known."""

    def captured_as(self, name: str | None) -> str | None:
        """What a parameter of the path captured, still encoded."""
        names = self.tool.rest.path_parameters if self.tool and self.tool.rest else ()
        return self.captured[names.index(name)] if name in names else None


async def read_object(receive: Any, request: Request, max_bytes: int) -> dict[str, Any]:
    """The JSON object of a body; an empty body is an empty object."""
    if request.content_length > max_bytes:
        raise _too_large(max_bytes)
    message = await receive()
    raw = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [raw], len(raw)
        while message.get("more_body"):
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > max_bytes:
                raise _too_large(max_bytes)
        raw = b"".join(parts)
    if message["type"] == "http.disconnect":
        raise ClientGone
    if len(raw) > max_bytes:
        raise _too_large(max_bytes)
    return parse_object(raw) if raw else {}


def parse_object(raw: bytes) -> dict[str, Any]:
    try:
        # A field given twice would be read differently by different parsers: the last wins here, as in JavaScript.
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as exc:
        # The parser's text names the place, and never repeats the input.
        raise MalformedBody(f"The body is not valid JSON: {exc}.") from exc
    if not isinstance(value, dict):
        raise MalformedBody(f"The body must be a JSON object, not {_kind(value)}.")
    return value


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The body is larger than {max_bytes} bytes.", details={"max_bytes": max_bytes}, headers={"connection": "close"}
    )
