"""Copies the key-value store space by space, with the remaining lifetime of each entry.

Both engines must use the same stopped clock, so that no entry expires between the survey and the comparison.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from baobab.storage.kv.engine import Engine, Entry
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.transfer.digest import Digest

_SPACES = 500
# Values have up to 256 KB, and a whole page is in memory.
_ENTRIES = 200


class EntrySource(Protocol):
    """The methods of Engine that a transfer reads a key-value store with."""

    async def spaces(self, after: str | None, limit: int) -> list[str]: ...

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]: ...


async def survey(engine: EntrySource, *, with_tokens: bool) -> dict[str, Digest]:
    """Returns the digest of the entries of each space of an engine.

    with_tokens: include the idempotency tokens, for engines that store them as entries.
    """
    digests = {space: await _digest(engine, space) async for space in _spaces(engine)}
    if with_tokens:
        digests[SPACE] = await _digest(engine, SPACE)
    return digests


async def find_foreign_space(engine: EntrySource, ours: dict[str, Digest]) -> str | None:
    """Returns a space that is not one of ours, or None."""
    async for space in _spaces(engine):
        if space not in ours:
            return space
    return None


async def copy(source: EntrySource, target: Engine, spaces: dict[str, Digest]) -> None:
    """Copies the entries of all spaces from one engine to another.

    spaces: what `survey` returned for the source. Spaces that are in the target already are skipped.
    """
    for space, digest in spaces.items():
        if await _digest(target, space) == digest:
            continue
        async for page in _pages(source, space):
            await target.load(space, page)


async def erase(engine: Engine, first: str) -> None:
    """Erases every space. first: the space whose absence shows that the store must no longer be used."""
    await engine.erase(first)
    while spaces := await engine.spaces(None, _SPACES):
        for space in spaces:
            await engine.erase(space)


async def _spaces(engine: EntrySource) -> AsyncIterator[str]:
    after = None
    while spaces := await engine.spaces(after, _SPACES):
        for space in spaces:
            yield space
        after = spaces[-1]


async def _pages(engine: EntrySource, space: str) -> AsyncIterator[list[Entry]]:
    after = None
    while page := await engine.export(space, after, _ENTRIES):
        yield page
        after = page[-1].key


async def _digest(engine: EntrySource, space: str) -> Digest:
    digest = Digest()
    async for page in _pages(engine, space):
        for entry in page:
            digest.add(list(entry), len(entry.key) + len(entry.value))
    return digest
