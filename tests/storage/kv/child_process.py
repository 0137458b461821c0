"""The other process of the file tests: `count` shares a counter, `load` writes until it is killed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.sqlite import SqliteEngine

QUOTA = Quota(max_keys=1_000_000, max_bytes=1_000_000_000)


async def count(folder: Path, callers: int, turns: int) -> None:
    engine = SqliteEngine(folder, busy_timeout=20)
    await engine.open()

    await engine.setnx("app", "misses", b"0", None, Tier.EPHEMERAL, QUOTA)

    async def caller(number: int) -> None:
        for turn in range(turns):
            await engine.incr("app", "hits", 1, None, QUOTA)
            await engine.incr("app", "misses", 1, None, QUOTA)
            key = f"key{(number + turn) % 50}"
            await engine.put("app", key, b"%d" % (turn * turn), 3600, Tier(turn % 2), QUOTA)

    await asyncio.gather(*(caller(number) for number in range(callers)))
    await engine.close()


async def load(folder: Path, callers: int, generation: int) -> None:
    engine = SqliteEngine(folder)
    await engine.open()

    async def caller(number: int) -> None:
        turn = 0
        while True:
            turn += 1
            key = f"count{number}"
            acknowledge(key, await engine.incr("app", key, 1, None, QUOTA))
            key = f"key{generation}:{number}:{turn % 40}"
            await engine.put("app", key, b"%d" % turn, 3600, Tier.DURABLE, QUOTA)
            acknowledge(key, turn)
            # Entries that come, go and move keep the accounting busy.
            await engine.put("app", f"moving{number}", b"%d" % turn, 3600, Tier(turn % 2), QUOTA)
            await engine.delete("app", f"moving{number - 1}")

    await asyncio.gather(*(caller(number) for number in range(callers)))


def acknowledge(key: str, value: int) -> None:
    os.write(sys.stdout.fileno(), b"%s %d\n" % (key.encode(), value))


if __name__ == "__main__":
    role, folder, callers, number = sys.argv[1:]
    asyncio.run({"count": count, "load": load}[role](Path(folder), int(callers), int(number)))
