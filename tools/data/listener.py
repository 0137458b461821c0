"""A listener: somebody who follows changes, with what they asked for and the messages that wait for them."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from baobab.tools.core.stream import StreamEnded
from baobab.tools.data.actor import Actor
from baobab.tools.data.catalogue import TableInfo
from baobab.tools.data.schemas import Row

SLOW = 4008
"""The close code for a listener that reads more slowly than there is to tell."""
_MOST_WAITING = 1000
_MOST_BYTES = 4 * 2**20
_BEAT_SECONDS = 14.0
"""Something is yielded more often than access is checked again; every other time a heartbeat."""

Filter = Mapping[str, Any]
"""Canonical values that columns of a row must have."""


@dataclass(frozen=True, slots=True)
class Frame:
    """number: of the change that it tells, after which a listener who comes back goes on."""

    content: bytes
    number: int | None = None
    kind: str = ""


def build_message(kind: str, number: int | None = None, /, **fields: Any) -> Frame:
    named = {} if number is None else {"id": number}
    return Frame(to_json({"type": kind, **named, **fields}), number, kind)


@dataclass(eq=False, slots=True)
class Listener:
    """client_id: a name for it among those that are present. tracks_since: the number of the message with which it
    began to be present; None while it is not.
    """

    actor: Actor
    client_id: str
    tables: dict[str, Filter] = field(default_factory=dict)
    channels: set[str] = field(default_factory=set)
    tracks_since: int | None = None
    _waiting: deque[Frame] = field(default_factory=deque)
    _bytes: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _end: StreamEnded | None = None

    def send(self, message: Frame) -> None:
        """Queues a message. A listener for whom too much waits is dropped."""
        if self._end is not None:
            return
        if len(self._waiting) >= _MOST_WAITING or self._bytes + len(message.content) > _MOST_BYTES:
            self.end(SLOW, "read too slowly")
            return
        self._waiting.append(message)
        self._bytes += len(message.content)
        self._news.set()

    def end(self, code: int, reason: str) -> None:
        """Ends the stream. What waits is told before, unless it is too much."""
        if self._end is None:
            self._end = StreamEnded(code, reason)
            if code == SLOW:
                self._waiting.clear()
        self._news.set()

    @property
    def is_ended(self) -> bool:
        return self._end is not None

    async def read(self) -> AsyncGenerator[Frame | None, None]:
        """Yields what is to be told; None after a while without anything. Raises StreamEnded."""
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


def read_filter(table: TableInfo, given: Mapping[str, Any]) -> dict[str, Any]:
    """The filter that a listener names. ColumnNotFound, InvalidType, BadRequest."""
    wanted: dict[str, Any] = {}
    for name, value in given.items():
        kind = table.column(name).type
        # In an address, every value is a text.
        is_text = isinstance(value, str) and not kind.is_text
        wanted[name] = kind.parse(value, name) if is_text else kind.clean(value, name)
    return wanted


def fits_filter(table: TableInfo, wanted: Filter, row: Row) -> bool:
    return all(
        name in table.columns and table.columns[name].type.clean(row.get(name), name) == value
        for name, value in wanted.items()
    )
