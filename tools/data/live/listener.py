"""A listener: a client that follows changes, with its subscriptions and the messages that wait for it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from baobab.tools.core.stream import StreamEnded
from baobab.tools.data.actor import Actor
from baobab.tools.data.schema.catalogue import TableInfo
from baobab.tools.data.schemas import Row

SLOW = 4008
"""The close code for a listener that reads too slowly."""
_MOST_WAITING = 1000
_MOST_BYTES = 4 * 2**20
_BEAT_SECONDS = 14.0
"""Something is yielded this often, so that access is checked again in time. Every other time it is a heartbeat."""

Filter = Mapping[str, Any]
"""The canonical values that columns of a row must have."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message.

    number: of the change that it is about, after which a listener that reconnects continues.
    """

    content: bytes
    number: int | None = None
    kind: str = ""


def build_message(kind: str, number: int | None = None, /, **fields: Any) -> Frame:
    fields_of_id = {} if number is None else {"id": number}
    return Frame(to_json({"type": kind, **fields_of_id, **fields}), number, kind)


@dataclass(eq=False, slots=True)
class Listener:
    """One client that follows changes.

    client_id: its name among the clients that are present. tracks_since: the number of the message with which it became
    present; None while it is not.
    """

    actor: Actor
    client_id: str
    tables: dict[str, Filter] = field(default_factory=dict)
    channels: set[str] = field(default_factory=set)
    tracks_since: int | None = None
    presence: str | None = None
    """The channel in which it is present; None for the whole app."""
    _waiting: deque[Frame] = field(default_factory=deque)
    _bytes: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _end: StreamEnded | None = None

    def send(self, message: Frame) -> None:
        """Queues a message. A listener for which too much waits is dropped."""
        if self._end is not None:
            return
        if len(self._waiting) >= _MOST_WAITING or self._bytes + len(message.content) > _MOST_BYTES:
            self.end(SLOW, "read too slowly")
            return
        self._waiting.append(message)
        self._bytes += len(message.content)
        self._news.set()

    def end(self, code: int, reason: str) -> None:
        """Ends the stream after the messages that wait, unless there are too many of them."""
        if self._end is None:
            self._end = StreamEnded(code, reason)
            if code == SLOW:
                self._waiting.clear()
        self._news.set()

    @property
    def is_ended(self) -> bool:
        return self._end is not None

    async def read(self) -> AsyncGenerator[Frame | None, None]:
        """Yields messages; None after a while without any. Raises StreamEnded."""
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                self._bytes -= len(message.content)
                yield message
            if self._end is not None:
                raise self._end
            self._news.clear()
            try:
                async with asyncio.timeout(_BEAT_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                yield None


def read_filter(table: TableInfo, document: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the filter of a subscription. Raises ColumnNotFound, InvalidType or BadRequest."""
    conditions: dict[str, Any] = {}
    for name, value in document.items():
        kind = table.column(name).type
        # In a URL, every value is a text.
        is_text = isinstance(value, str) and not kind.is_text
        conditions[name] = kind.parse(value, name) if is_text else kind.clean(value, name)
    return conditions


def fits_filter(table: TableInfo, conditions: Filter, row: Row) -> bool:
    return all(
        name in table.columns and table.columns[name].type.clean(row.get(name), name) == value
        for name, value in conditions.items()
    )
