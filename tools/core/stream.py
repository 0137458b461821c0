"""Streams: results that are sent piece by piece, and bodies that arrive so, over interfaces that support them."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class StreamEnded(Exception):
    """Ends a stream for a reason that its reader is told: `code` is that of the WebSocket's close frame."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Places:
    """How many streams of one subject and of one caller may be open in a worker, and the error of one too many."""

    of_subject: int
    of_caller: int
    refusal: Callable[..., Exception]


@dataclass(frozen=True, slots=True)
class Stream:
    """A result in pieces. The reader closes it, at its end or before."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str = "text/event-stream"
    subject: str = ""
    """What it tells about, such as a run, where it may stay open for long: then there are bounds of how many are open,
    and whoever reads it is asked for the right to it again and again.
    """
    places: Places | None = None
    """How many of its kind may be open; left out, what holds for all streams."""
    on_message: Callable[[str], Awaitable[None]] | None = None
    """Takes each text that the client sends over a WebSocket; left out, they are ignored."""
    follows_app: bool = False
    """Whether its reader is asked for the right to it as soon as anything about the app changes."""
    on_stop: Callable[[], None] | None = None
    """Ends it where the server is stopped; without one, it is closed as any answer that takes too long."""
    status: int | None = None
    """The HTTP status, for tools that choose it themselves."""
    is_part: bool = False
    """Whether it is only the part that was asked for of something larger."""
    is_unchanged: bool = False
    """Whether it is empty because the reader has what it would send."""


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
    """The type that was sent; empty if none was."""

    text: str | None = None
    """The whole body, if the interface passed it as a text."""

    @classmethod
    def of_text(cls, text: str) -> "Body":
        """Returns a body that holds a text, for interfaces without streams."""

        async def chunks() -> AsyncIterator[bytes]:
            yield text.encode()

        return cls(chunks(), None, "", text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "format": "binary", "maxLength": 2**40}


@dataclass(frozen=True, slots=True)
class OrText:
    """Lets a `Body` also be given as a text, over interfaces that have no streams: `Annotated[Body, OrText(2**20)]`."""

    most: int
    """Characters."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(strict=True, max_length=self.most)
        as_body = core_schema.no_info_after_validator_function(Body.of_text, text)
        return core_schema.union_schema([handler(source), as_body], mode="left_to_right")

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "maxLength": self.most}
