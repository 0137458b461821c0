"""Streams: results that go out piece by piece, and bodies that come in so, over doors that can pass them on."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, slots=True)
class Stream:
    """A result in pieces. The reader closes it, at its end or before."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str = "text/event-stream"
    subject: str = ""
    """What it tells about, such as a run, where it may stay open for long: then there are bounds of how many are open,
    and whoever reads it is asked for the right to it again and again.
    """
    on_stop: Callable[[], None] | None = None
    """Ends it where the server is stopped; without one, it is closed as any answer that takes too long."""
    is_part: bool = False
    """Whether it is only the part that was asked for of something larger."""


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request as its bytes arrive, for tools that take a file instead of JSON.

    `chunks` may be read once. It raises ClientGone where the connection breaks before the body is complete.
    """

    chunks: AsyncIterator[bytes]
    size: int | None
    """Bytes that the client has announced; None if it has not."""
    content_type: str
    """As it was sent; empty if it was not."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "format": "binary", "maxLength": 2**40}
