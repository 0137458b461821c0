"""The key-value store, space by space, with what is left of each entry's life.

Both engines must go by one clock that stands still: then no entry expires between looking here and looking there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from baobab.storage.kv.engine import Engine, Entry
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.transfer.digest import Digest

_SPACES = 500
# Values have up to 256 KB, and all of a page is in memory.
_ENTRIES = 200


async def survey(engine: Engine, *, with_tokens: bool) -> dict[str, Digest]:
    """with_tokens: include those of calls that must not be made twice, for engines that keep them as entries."""
    found = {space: await _digest(engine, space) async for space in _spaces(engine)}
    if with_tokens:
        found[SPACE] = await _digest(engine, SPACE)
    return found


async def find_foreign_space(engine: Engine, ours: dict[str, Digest]) -> str | None:
    """A space that is none of ours."""
    async for space in _spaces(engine):
        if space not in ours:
            return space
    return None


async def copy(source: Engine, target: Engine, spaces: dict[str, Digest]) -> None:
    """spaces: what `survey` has found in the source. Those that are in the target already are left alone."""
    for space, digest in spaces.items():
        if await _digest(target, space) == digest:
            continue
        async for page in _pages(source, space):
            await target.load(space, page)


async def _spaces(engine: Engine) -> AsyncIterator[str]:
    after = None
    while found := await engine.spaces(after, _SPACES):
        for space in found:
            yield space
        after = found[-1]


async def _pages(engine: Engine, space: str) -> AsyncIterator[list[Entry]]:
    after = None
    while page := await engine.export(space, after, _ENTRIES):
        yield page
        after = page[-1].key


async def _digest(engine: Engine, space: str) -> Digest:
    digest = Digest()
    async for page in _pages(engine, space):
        for entry in page:
            digest.add(list(entry), len(entry.key) + len(entry.value))
    return digest
