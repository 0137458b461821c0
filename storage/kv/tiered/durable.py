"""The durable tier: the engine that lies beside the rows, with one more way in for writes that are planned in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from baobab.storage.kv.engine import Engine, Quota, Tier, Usage
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Transaction

T = TypeVar("T")


class LookupRequest(NamedTuple):
    """What a group must know of the tier, and whether it may ask for the totals."""

    space: str
    keys: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    usage: bool = False


class LookupResult(NamedTuple):
    """`rows` by key, expired ones perhaps among them; `tokens` by token.

    `usage`, told whether it must be exact, answers the totals; where it need not, expired rows may be in them.
    """

    rows: dict[str, Row]
    tokens: dict[str, Row]
    frozen: bool
    usage: Callable[[bool], Usage]


class DurableChange(NamedTuple):
    """What is there, if it is live, and what is to be."""

    key: str
    before: Row | None
    after: Row | None


class TierUpdate(NamedTuple):
    """All there is to change in the tier, in one transaction. `frozen` is None where it stays as it is."""

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
        """As it is now. Asked for at the same time, several may be answered together."""
        ...

    async def change_rows(
        self, request: LookupRequest, work: Callable[[Transaction, LookupResult], T], *, resizes: bool
    ) -> T:
        """`work` in a transaction, while nobody else can write what it was asked for; perhaps more than once.

        Without `resizes` it is expected to leave the number of entries and their sizes as they are. Raises what
        `work` raised, which must then have changed nothing, or StoreUnavailable.
        """
        ...

    async def wait_for_transactions(self, space: str) -> None:
        """Returns when every transaction that this engine has begun in the space is committed or never will be."""
        ...


def look_up_in(request: LookupRequest, transaction: Transaction, usage: Callable[[bool], Usage]) -> LookupResult:
    return LookupResult(
        _current_rows(transaction, request.space, request.keys),
        _current_rows(transaction, SPACE, request.tokens),
        transaction.is_frozen(request.space),
        usage,
    )


def _current_rows(transaction: Transaction, space: str, keys: Sequence[str]) -> dict[str, Row]:
    found = ((key, transaction.current(space, key)) for key in keys)
    return {key: current[1] for key, current in found if current is not None}
