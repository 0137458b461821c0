"""The other process of the Postgres tests: raises shared counters, then takes what it can get of a quota.

Prints how many of its puts the quota let through.
"""

from __future__ import annotations

import asyncio
import sys

from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.errors import KeysExhausted
from baobab.storage.kv.postgres.engine import PostgresEngine

FREE = Quota()


async def count(engine: PostgresEngine, callers: int, turns: int) -> None:
    async def caller(number: int) -> None:
        for turn in range(turns):
            await engine.incr("app", "hits", 1, None, FREE)
            await engine.incr("app", f"hits{number}", 1, None, FREE)
            key = f"key{(number + turn) % 20}"
            await engine.put("app", key, b"%d" % (turn * turn), 3600, Tier(turn % 2), FREE)
            await engine.delete("app", f"key{(number + turn + 5) % 20}")

    await asyncio.gather(*(caller(number) for number in range(callers)))


async def fill(engine: PostgresEngine, name: str, attempts: int, quota: Quota) -> int:
    results = await asyncio.gather(
        *(engine.put("full", f"{name}:{n}", b"1", None, Tier(n % 2), quota) for n in range(attempts)),
        return_exceptions=True,
    )
    assert all(result is None or isinstance(result, KeysExhausted) for result in results), results
    return results.count(None)


async def main(url: str, name: str, callers: int, turns: int, attempts: int, cap: int) -> None:
    engine = PostgresEngine(url)
    await engine.open()
    await count(engine, callers, turns)
    sys.stdout.write(str(await fill(engine, name, attempts, Quota(max_keys=cap))))
    await engine.close()


if __name__ == "__main__":
    address, own_name, *numbers = sys.argv[1:]
    asyncio.run(main(address, own_name, *map(int, numbers)))
