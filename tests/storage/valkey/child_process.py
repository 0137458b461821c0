"""The other process of the Valkey tests: `count` and `fill` share a space, `spend` a rate limit; answers on stdout."""

from __future__ import annotations

import asyncio
import sys

from baobab.storage.clock import SystemClock
from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.errors import KeysExhausted, StorageFull
from baobab.storage.kv.valkey.engine import ValkeyEngine
from baobab.storage.valkey.pipeline import Pipeline
from baobab.storage.valkey.windows import SlidingWindows
from baobab.tools.core.errors import RateLimited
from baobab.tools.core.limits.rate_limits import SharedRateLimits


async def count(url: str) -> int:
    """Two counters, and keys that expire, move and go, 200 turns for each of 16 callers."""
    engine = ValkeyEngine(url)
    await engine.open()
    quota = Quota(1_000_000, 1_000_000_000)

    async def caller(number: int) -> None:
        for turn in range(200):
            await engine.incr("app", "hits", 1, None, quota)
            await engine.incr("app", "large", 2**49, None, quota)
            key = f"key{(number + turn) % 50}"
            await engine.put("app", key, b"%d" % (turn * turn), 1 if turn % 3 else None, Tier(turn % 2), quota)
            await engine.delete("app", f"key{turn % 70}")

    await asyncio.gather(*(caller(number) for number in range(16)))
    await engine.close()
    return 16 * 200


async def fill(url: str, quota: Quota, name: str) -> int:
    """How many of 300 writes at once found room."""
    engine = ValkeyEngine(url)
    await engine.open()
    writes = (engine.put("app", f"{name}{turn:03}", b"1234", 3600, Tier.DURABLE, quota) for turn in range(300))
    results = await asyncio.gather(*writes, return_exceptions=True)
    await engine.close()
    assert all(result is None or isinstance(result, KeysExhausted | StorageFull) for result in results), results
    return results.count(None)


async def spend(url: str) -> int:
    """How many of 50 at once passed, where 10 a minute may."""
    pipeline = Pipeline(url)
    await pipeline.open()
    limits = SharedRateLimits(SlidingWindows(pipeline), SystemClock())
    results = await asyncio.gather(*(limits.spend("test", "one", 10, 60) for _ in range(50)), return_exceptions=True)
    await pipeline.close()
    return sum(not isinstance(result, RateLimited) for result in results)


if __name__ == "__main__":
    role, address, *rest = sys.argv[1:]
    match role:
        case "count":
            answer = asyncio.run(count(address))
        case "fill":
            keys, size, prefix = rest
            answer = asyncio.run(fill(address, Quota(int(keys) or None, int(size) or None), prefix))
        case "spend":
            answer = asyncio.run(spend(address))
    sys.stdout.write(str(answer))
