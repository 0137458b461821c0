"""A worker that a test kills: writes to keys of its own in both tiers, and says on stdout what it was told.

python tiered_child.py ROWS VALKEY_URL, where ROWS is the URL of a Postgres or a folder
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path

from baobab.storage.kv import Quota, Tier
from baobab.storage.kv.tiered.engine import TieredEngine
from baobab.storage.kv.tiered.postgres import PostgresDurableEngine
from baobab.storage.kv.tiered.sqlite import SqliteDurableEngine

FREE = Quota(1_000_000, 1_000_000_000)


async def work(rows: str, valkey_url: str) -> None:
    on_postgres = rows.startswith("postgresql:")
    durable = PostgresDurableEngine(rows, time.time) if on_postgres else SqliteDurableEngine(Path(rows), time.time)
    # Nobody wants to wait long for it when it is gone.
    engine = TieredEngine(durable, valkey_url, time.time, lease=1.0)
    await engine.open()

    async def caller(number: int) -> None:
        for turn in itertools.count(1):
            await engine.put("app", f"moving{number}", b"%d" % turn, None, Tier(turn % 2), FREE)
            sys.stdout.write(f"moving{number} {turn}\n")
            await engine.incr("app", f"count{number}", 1, None, FREE)
            sys.stdout.write(f"count{number} {turn}\n")
            sys.stdout.flush()
            await engine.put("app", "contested", b"%d" % turn, None, Tier(turn % 2), FREE)

    await asyncio.gather(*(caller(number) for number in range(8)))


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
