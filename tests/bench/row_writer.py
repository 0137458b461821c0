"""One process that writes rows, for `scale`: `row_writer URL APPS migrate|write`.

It says when it is ready, begins when it is told to, and prints how many transactions it committed in a second.
"""

import asyncio
import sys
import time
import uuid
from datetime import UTC, datetime

import uvloop
from sqlalchemy import bindparam, func, insert, select

from baobab.runtime.jobs.job_tables import events
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import migrate

_CALLERS = 16
_SECONDS = 2.0
_READ = select(func.max(events.c.at)).where(events.c.id == bindparam("id"))
_WRITE = insert(events)


async def main(url: str, apps: int, what: str) -> None:
    database = database_at(url)
    await database.open()
    if what == "migrate":
        await migrate(database)
    await asyncio.gather(*(_write_once(database, f"app_{number}") for number in range(apps)))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began = time.monotonic()
    counts = await asyncio.gather(
        *(_write_until(database, apps, caller, began + _SECONDS) for caller in range(_CALLERS))
    )
    print(sum(counts) / (time.monotonic() - began))
    await database.close()


async def _write_until(database: Database, apps: int, caller: int, end: float) -> int:
    count = 0
    while time.monotonic() < end:
        await _write_once(database, f"app_{(caller + count * _CALLERS) % apps}")
        count += 1
    return count


async def _write_once(database: Database, app_id: str) -> None:
    row = {"id": str(uuid.uuid4()), "type": "bench", "at": datetime.now(UTC), "app_id": app_id, "data": {}}
    async with database.writing_unit(lock=app_id) as unit:
        await unit.execute(_READ, {"id": row["id"]})
        await unit.execute(_WRITE, row)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
