"""Another process that uses a store. Its address is a folder or a URL.

`write` counts with many callers until each of them is refused, then prints how often they counted. `freeze` freezes
one space after the other, thaws each a little later, and prints what is done, until it is killed. `move` writes to
keys of both tiers, and prints each write that was acknowledged, until it is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path

from baobab.storage.kv.engine import Engine, Quota, Tier
from baobab.storage.kv.errors import SpaceFrozen
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.kv.valkey.engine import ValkeyEngine

FREE = Quota()
# So many spaces are frozen at a time.
LASTING = 3


def engine_at(address: str) -> Engine:
    if address.startswith("postgresql"):
        return PostgresEngine(address, timeout=20)
    if address.startswith("redis"):
        return ValkeyEngine(address, timeout=20)
    return SqliteEngine(Path(address), busy_timeout=20)


async def count(engine: Engine, name: str, callers: int) -> int:
    """How many increments of `hits` were acknowledged before the space was frozen."""

    async def caller(number: int) -> int:
        own = f"{name}{number}"
        for turn in itertools.count():
            try:
                await engine.incr("app", "hits", 1, None, FREE)
            except SpaceFrozen:
                return turn
            try:
                await engine.put("app", own, b"%d" % turn, 3600, Tier(turn % 2), FREE)
                await engine.get("app", own, touch=True)
                await engine.expire("app", own, 60)
                await engine.delete("app", f"{name}{number - 1}")
            except SpaceFrozen:
                return turn + 1
        raise AssertionError

    return sum(await asyncio.gather(*(caller(number) for number in range(callers))))


async def write(address: str, name: str, callers: int) -> None:
    engine = engine_at(address)
    await engine.open()
    write_line("ready")
    write_line(str(await count(engine, name, callers)))
    await engine.close()


async def freeze(address: str) -> None:
    engine = engine_at(address)
    await engine.open()
    for number in itertools.count():
        await engine.freeze(f"app{number}")
        write_line(f"frozen {number}")
        if number >= LASTING:
            await engine.thaw(f"app{number - LASTING}")
            write_line(f"thawed {number - LASTING}")


async def move(address: str) -> None:
    engine = engine_at(address)
    await engine.open()

    async def caller(number: int) -> None:
        for turn in itertools.count(1):
            await engine.put("app", f"moving{number}", b"%d" % turn, None, Tier(turn % 2), FREE)
            write_line(f"moving{number} {turn}")
            await engine.incr("app", f"count{number}", 1, None, FREE)
            write_line(f"count{number} {turn}")
            await engine.put("app", "contested", b"%d" % turn, None, Tier(turn % 2), FREE)

    await asyncio.gather(*(caller(number) for number in range(8)))


def write_line(word: str) -> None:
    os.write(sys.stdout.fileno(), f"{word}\n".encode())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", address, name, callers]:
            asyncio.run(write(address, name, int(callers)))
        case ["freeze", address]:
            asyncio.run(freeze(address))
        case ["move", address]:
            asyncio.run(move(address))
