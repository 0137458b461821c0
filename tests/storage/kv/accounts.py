"""What a space holds, counted entry by entry: the measure for what an engine says of it."""

from __future__ import annotations

from baobab.storage.kv.engine import Engine, Usage


async def recount_usage(engine: Engine, space: str) -> Usage:
    keys, cursor = await engine.scan(space, "", 1_000_000, None)
    assert cursor is None
    values = [await engine.get(space, key) for key in keys]
    return Usage(len(keys), sum(len(key) + len(value or b"") for key, value in zip(keys, values, strict=True)))
