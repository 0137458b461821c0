"""The stream: tells readers in this process which rows of a substrate have changed, whichever process changed them."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

from pydantic_core import to_json
from sqlalchemy import select

from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.tools.core import BaobabError, Services
from baobab.tools.core.stream import StreamEnded
from baobab.tools.substrate import tables
from baobab.tools.substrate.ledger import NOTICE

_BEAT_SECONDS = 15.0
_PATIENCE_SECONDS = 2.0
_PAGE = 500
_REFUSED = 1008
"""The code with which a WebSocket is closed whose reader may not read any more."""

_changes, _settings = tables.changes.c, tables.settings.c


class ChangeFeed:
    """Wakes the readers of substrates; one for each process."""

    def __init__(self, services: Services) -> None:
        self._readers: dict[str, set[asyncio.Event]] = {}
        services.notices.subscribe(NOTICE, self._wake)

    @contextlib.contextmanager
    def subscribe(self, organisation_id: str) -> Iterator[asyncio.Event]:
        """Yields what is set whenever rows of the organisation may have changed."""
        news = asyncio.Event()
        self._readers.setdefault(organisation_id, set()).add(news)
        try:
            yield news
        finally:
            readers = self._readers[organisation_id]
            readers.discard(news)
            if not readers:
                del self._readers[organisation_id]

    def _wake(self, organisation_id: str) -> None:
        for news in self._readers.get(organisation_id, ()):
            news.set()


async def follow_changes(
    services: Services, organisation_id: str, check: Callable[[], Awaitable[Any]]
) -> AsyncGenerator[bytes, None]:
    """Yields the frames: `hello`, then one for each change from now on.

    check: raises as soon as the reader may not read any more; it is asked again and again. StreamEnded then says why.
    An empty piece now and then, which readers do not see, lets the interface ask for the reader's credential again.
    """
    loop, database = asyncio.get_running_loop(), services.database
    with services.of(ChangeFeed).subscribe(organisation_id) as news:
        # Read after the subscription, so that no change falls between the two.
        last = await _find_last(database, organisation_id)
        yield to_json({"type": "hello", "ts": int(services.clock.time() * 1000)})
        checked_at = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_SECONDS):
                    await news.wait()
            news.clear()
            try:
                if loop.time() - checked_at >= _BEAT_SECONDS - 1:
                    await check()
                    checked_at = loop.time()
                # Runs even without a notice, because one may have been lost.
                while rows := await _read_changes(database, organisation_id, last):
                    for row in rows:
                        if row.tbl in tables.STREAMED:
                            yield to_json({"tbl": row.tbl, "op": row.op, "id": row.row_id, "org": organisation_id})
                    last = rows[-1].seq
                yield b""
            except BaobabError as error:
                raise StreamEnded(_REFUSED, error.code) from error
            except DatabaseUnavailable:
                news.set()
                await asyncio.sleep(_PATIENCE_SECONDS)


async def _find_last(database: Database, organisation_id: str) -> int:
    query = select(_settings.last_seq).where(_settings.organisation_id == organisation_id)
    async with database.reading() as connection:
        return (await connection.execute(query)).scalar_one_or_none() or 0


async def _read_changes(database: Database, organisation_id: str, after: int) -> list[Any]:
    query = select(_changes.seq, _changes.tbl, _changes.op, _changes.row_id).where(
        _changes.organisation_id == organisation_id, _changes.seq > after
    )
    async with database.reading() as connection:
        return list((await connection.execute(query.order_by(_changes.seq).limit(_PAGE))).all())
