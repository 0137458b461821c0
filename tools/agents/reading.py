"""Events of runs: as a list, and as a stream that goes on while the run does."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from pydantic_core import to_json
from sqlalchemy import select

from baobab.runtime.agents.rows import ENDED, events, runs
from baobab.runtime.agents.watch import Watch
from baobab.storage.database import Database, DatabaseUnavailable
from baobab.tools.agents.tokens import approval_token
from baobab.tools.call import Call
from baobab.tools.services import Services

PAGE = 500
_BEAT_SECONDS = 15.0
_PATIENCE_SECONDS = 2.0


async def read_events(
    services: Services, database: Database, run_id: str, after: int, limit: int
) -> list[dict[str, Any]]:
    """Events behind a seq, oldest first."""
    query = select(events).where(events.c.run_id == run_id, events.c.seq > after).order_by(events.c.seq).limit(limit)
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
    return [
        {"seq": row.seq, "type": row.type, "payload": _payload(services, row), "created_at": row.created_at}
        for row in rows
    ]


async def following(services: Services, database: Database, run_id: str, after: int) -> AsyncGenerator[Any, None]:
    """Events behind a seq, and those to come, to the run's end; None where there is nothing to tell for a while."""
    watch = services.of(Watch)
    with watch.listening(run_id, database) as news:
        while True:
            news.clear()
            try:
                # Before its events: one that ended in between has told all of them.
                ended = await _ended(database, run_id)
                while found := await read_events(services, database, run_id, after, PAGE):
                    for event in found:
                        yield event
                    after = found[-1]["seq"]
            except DatabaseUnavailable:
                await asyncio.sleep(_PATIENCE_SECONDS)
                continue
            if ended:
                return
            try:
                async with asyncio.timeout(_BEAT_SECONDS):
                    await news.wait()
            except TimeoutError:
                yield None


async def framed(told: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """The same as server-sent events, whose id is the seq."""
    try:
        yield b"retry: 1000\n\n"
        async for event in told:
            if event is None:
                yield b": \n\n"
                continue
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (event["seq"], event["type"].encode(), to_json(event["payload"]))
    finally:
        await told.aclose()


async def frames(told: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """The same as JSON texts."""
    try:
        async for event in told:
            if event is not None:
                yield to_json(event)
    finally:
        await told.aclose()


def stream(call: Call, run_id: str, after: int) -> AsyncGenerator[bytes, None]:
    return framed(following(call.services, call.stores.database, run_id, after))


def _payload(services: Services, row: Any) -> dict[str, Any]:
    payload = dict(row.payload)
    if row.type == "run_paused":
        # What waits may be a call of a run below this one: it is decided there.
        asking = payload.get("run_id", row.run_id)
        payload["approval_token"] = approval_token(services.vault, asking, payload["approval_id"])
    return payload


async def _ended(database: Database, run_id: str) -> bool:
    async with database.reading() as connection:
        status = (await connection.execute(select(runs.c.status).where(runs.c.id == run_id))).scalar()
    return status is None or status in ENDED
