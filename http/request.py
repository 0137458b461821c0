"""A request, as the front reads it: the few headers that matter, once."""

import itertools
import re
import secrets
from typing import Any

from pydantic_core import from_json

from baobab.tools.errors import BodyTooLarge, MalformedBody

Scope = dict[str, Any]

_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROCESS = f"req_{secrets.token_hex(5)}"
_COUNTER = itertools.count(1)


class ClientGone(Exception):
    """The client closed the connection before its request was whole."""


class Request:
    __slots__ = (
        "anon_key", "as_user", "authorization", "content_length", "host", "id", "ip", "method", "organisation",
        "origin", "path", "plain", "preflight", "query", "user_agent",
    )  # fmt: skip

    def __init__(self, scope: Scope) -> None:
        self.method: str = scope.get("method", "GET")
        self.path: str = scope["raw_path"].decode("latin-1")
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
        self.plain = True
        """Whether `authorization` alone says who calls."""
        given: bytes | None = None
        for name, value in scope["headers"]:
            if name == b"host":
                self.host = value
            elif name == b"authorization":
                self.authorization = value
            elif name == b"user-agent":
                self.user_agent = value.decode("latin-1")
            elif name == b"content-length":
                self.content_length = int(value)
            elif name == b"origin":
                self.origin = value
            elif name == b"apikey":
                self.anon_key = value
                self.plain = False
            elif name == b"x-organization-id":
                self.organisation = value
                self.plain = False
            elif name == b"x-platform-as-user":
                self.as_user = value
                self.plain = False
            elif name == b"x-request-id":
                given = value
            elif name == b"access-control-request-method":
                self.preflight = True
        if given is not None and _GIVEN_ID.fullmatch(given):
            self.id = given.decode()
        else:
            self.id = f"{_PROCESS}{next(_COUNTER):x}"


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
