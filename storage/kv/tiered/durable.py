"""The durable tier: an engine beside the rows, with methods for writes that are planned under its locks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from baobab.storage.kv.engine import Engine, Quota, Tier, Usage
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Transaction

T = TypeVar("T")


class LookupRequest(NamedTuple):
    """What a group must read from the tier, and whether it needs the totals."""

    space: str
    keys: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    usage: bool = False


class LookupResult(NamedTuple):
    """`rows` by key, perhaps with expired ones; `tokens` by token.

    `usage` returns the totals. Its argument says whether they must be exact; otherwise they may include expired rows.
    """

    rows: dict[str, Row]
    tokens: dict[str, Row]
    frozen: bool
    usage: Callable[[bool], Usage]


class DurableChange(NamedTuple):
    """The live row before the change, if any, and the row after it."""

    key: str
    before: Row | None
    after: Row | None


class TierUpdate(NamedTuple):
    """All changes of the tier in one transaction. `frozen` is None if it does not change."""

    flush: bool
    frozen: bool | None
    changes: list[DurableChange]
    tokens: dict[str, Row]

    def __bool__(self) -> bool:
        return bool(self.flush or self.frozen is not None or self.changes or self.tokens)

    def apply(self, space: str, transaction: Transaction) -> None:
        if self.flush:
            transaction.remove_all(space)
        for key, before, after in self.changes:
            if after is None:
                transaction.remove(space, key)
            elif before is not None and before.value == after.value:
                transaction.restart(space, key, Tier.DURABLE, after.expires, after.window)
            else:
                transaction.store(space, key, Tier.DURABLE, after, Quota())
        for token, row in self.tokens.items():
            transaction.store(SPACE, token, Tier.DURABLE, row, Quota())
        if self.frozen is not None:
            (transaction.freeze if self.frozen else transaction.thaw)(space)


class DurableEngine(Engine, Protocol):
    async def look_up(self, request: LookupRequest) -> LookupResult:
        """Reads the tier as it is now. Simultaneous requests may be answered together."""
        ...

    async def change_rows(
        self, request: LookupRequest, work: Callable[[Transaction, LookupResult], T], *, resizes: bool
    ) -> T:
        """Calls `work` in a transaction while nobody else can write the requested rows; perhaps more than once.

        Without `resizes`, it must leave the number of entries and their sizes unchanged. Raises what `work` raised,
        which must then have changed nothing, or StoreUnavailable.
        """
        ...

    async def wait_for_transactions(self, space: str) -> None:
        """Returns when every transaction that this engine has begun in the space is committed or can no
        longer commit.
        """
        ...


def look_up_in(request: LookupRequest, transaction: Transaction, usage: Callable[[bool], Usage]) -> LookupResult:
    return LookupResult(
        _current_rows(transaction, request.space, request.keys),
        _current_rows(transaction, SPACE, request.tokens),
        transaction.is_frozen(request.space),
        usage,
    )


def _current_rows(transaction: Transaction, space: str, keys: Sequence[str]) -> dict[str, Row]:
    pairs = ((key, transaction.current(space, key)) for key in keys)
    return {key: current[1] for key, current in pairs if current is not None}
