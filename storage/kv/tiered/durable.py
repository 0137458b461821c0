"""The durable tier: the engine that lies beside the rows, with one more way in for writes that were planned outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Engine, Quota, Tier, Usage
from baobab.storage.kv.once import SPACE
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Transaction


class Found(NamedTuple):
    """`rows` by key, expired ones perhaps among them; `tokens` by token; `usage` where it was asked for."""

    rows: dict[str, Row]
    tokens: dict[str, Row]
    frozen: bool
    usage: Usage


class DurableChange(NamedTuple):
    """What was found and what is to be."""

    key: str
    before: Row | None
    after: Row | None


class Deed(NamedTuple):
    """All there is to change in the tier, in one transaction. `frozen` is None where it stays as it is.

    `may` is asked when nobody else can write any more: a deed that comes too late must not be done.
    """

    space: str
    flush: bool
    frozen: bool | None
    changes: Sequence[DurableChange]
    tokens: dict[str, Row]
    may: Callable[[], bool]

    @property
    def resizes(self) -> bool:
        return self.flush or self.frozen is not None or any(
            before is None or after is None or len(before.value) != len(after.value)
            for _, before, after in self.changes
        )  # fmt: skip


class Outdated(Exception):
    """What was found is not what is there now, or the turn is over. Nothing was changed."""


class Durable(Engine, Protocol):
    async def find(self, space: str, keys: Sequence[str], tokens: Sequence[str], *, usage: bool) -> Found: ...

    async def do(self, deed: Deed) -> None:
        """Raises Outdated."""
        ...

    async def decided(self, space: str) -> None:
        """Returns when every transaction that this engine has begun in the space is committed or never will be."""
        ...


def apply(deed: Deed, transaction: Transaction) -> None:
    space = deed.space
    if not deed.may():
        raise Outdated
    if any(transaction.current(SPACE, token) is not None for token in deed.tokens):
        raise Outdated
    if not deed.flush:
        # A flush is alone in its space.
        for key, before, _ in deed.changes:
            if not _is_still(before, transaction.current(space, key), transaction.now):
                raise Outdated
    if deed.flush:
        transaction.remove_all(space)
    for key, before, after in deed.changes:
        _change(transaction, space, key, before, after)
    for token, row in deed.tokens.items():
        transaction.store(SPACE, token, Tier.DURABLE, row, Quota())
    if deed.frozen is not None:
        (transaction.freeze if deed.frozen else transaction.thaw)(space)


def _is_still(before: Row | None, found: tuple[Tier, Row] | None, now: int) -> bool:
    if before is None or not expiry.is_live(before.expires, now):
        # What was live may have expired since.
        return found is None
    return found is not None and found[1].value == before.value and found[1].expires == before.expires


def _change(transaction: Transaction, space: str, key: str, before: Row | None, after: Row | None) -> None:
    if after is None:
        transaction.remove(space, key)
    elif before is not None and before.value == after.value and transaction.current(space, key) is not None:
        transaction.restart(space, key, Tier.DURABLE, after.expires, after.window)
    else:
        transaction.store(space, key, Tier.DURABLE, after, Quota())
