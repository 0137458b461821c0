"""The writes, each in a transaction. Every function either raises before it changes anything, or succeeds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from baobab.storage.kv import expiry, json_equality
from baobab.storage.kv.engine import Delete, Entry, Get, Op, OpResult, Quota, Set, Tier
from baobab.storage.kv.errors import IntegerOverflow, KvError, NotAnInteger, SpaceFrozen
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Transaction

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_LONGEST = len(str(_LOWEST))


def touch(transaction: Transaction, space: str, key: str) -> bytes | None:
    entry = transaction.current(space, key)
    if entry is None:
        return None
    tier, row = entry
    if tier is Tier.DURABLE and row.window is not None and not transaction.is_frozen(space):
        transaction.restart(space, key, tier, expiry.deadline(transaction.now, row.window), row.window)
    return row.value


def put(
    transaction: Transaction, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota
) -> None:
    _require_thawed(transaction, space)
    transaction.store(space, key, tier, _build_row(transaction, value, ttl), quota)


def delete(transaction: Transaction, space: str, key: str) -> int:
    _require_thawed(transaction, space)
    return transaction.remove(space, key)


def incr(transaction: Transaction, space: str, key: str, by: int, ttl: int | None, quota: Quota) -> int:
    _require_thawed(transaction, space)
    entry = transaction.current(space, key)
    total = add_to_counter(None if entry is None else entry[1].value, by)
    _replace_value(transaction, space, key, entry, str(total).encode(), ttl, quota)
    return total


def setnx(
    transaction: Transaction, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota
) -> bool:
    _require_thawed(transaction, space)
    if transaction.current(space, key) is not None:
        return False
    put(transaction, space, key, value, ttl, tier, quota)
    return True


def cas(
    transaction: Transaction, space: str, key: str, expected: bytes, following: bytes, ttl: int | None, quota: Quota
) -> bool:
    _require_thawed(transaction, space)
    entry = transaction.current(space, key)
    if not json_equality.matches(None if entry is None else entry[1].value, expected):
        return False
    _replace_value(transaction, space, key, entry, following, ttl, quota)
    return True


def expire(transaction: Transaction, space: str, key: str, ttl: int | None) -> bool:
    _require_thawed(transaction, space)
    entry = transaction.current(space, key)
    if entry is None:
        return False
    if ttl is not None and ttl <= 0:
        transaction.remove(space, key)
    else:
        window = expiry.window(ttl)
        transaction.restart(space, key, entry[0], expiry.deadline(transaction.now, window), window)
    return True


def batch(transaction: Transaction, space: str, ops: Sequence[Op], quota: Quota) -> list[OpResult]:
    if not all(isinstance(op, Get) for op in ops):
        _require_thawed(transaction, space)
    return [_apply_op(transaction, space, op, quota) for op in ops]


def flush(transaction: Transaction, space: str) -> int:
    _require_thawed(transaction, space)
    return transaction.remove_all(space)


def load(transaction: Transaction, space: str, entries: Sequence[Entry]) -> None:
    for key, value, tier, expires, window in entries:
        if expiry.is_live(expires, transaction.now):
            transaction.store(space, key, tier, Row(value, expires, window), Quota())
        else:
            transaction.remove(space, key)


def erase(transaction: Transaction, space: str) -> None:
    transaction.remove_all(space)
    transaction.thaw(space)


def add_to_counter(stored_value: bytes | None, by: int) -> int:
    """Adds to a stored JSON integer and returns the sum; None counts as 0. Raises NotAnInteger or IntegerOverflow."""
    if stored_value is None:
        total = by
    elif _INTEGER.fullmatch(stored_value) is None:
        raise NotAnInteger
    elif len(stored_value) > _LONGEST:
        # No 64-bit step leads back into the range, and int() refuses thousands of digits.
        raise IntegerOverflow
    else:
        total = int(stored_value) + by
    if not _LOWEST <= total <= _HIGHEST:
        raise IntegerOverflow
    return total


def _require_thawed(transaction: Transaction, space: str) -> None:
    if transaction.is_frozen(space):
        raise SpaceFrozen


def _apply_op(transaction: Transaction, space: str, op: Op, quota: Quota) -> OpResult:
    match op:
        case Get(key):
            entry = transaction.current(space, key)
            return None if entry is None else entry[1].value
        case Delete(key):
            return transaction.remove(space, key)
        case Set(key, value, ttl):
            try:
                put(transaction, space, key, value, ttl, Tier.DURABLE, quota)
            except KvError as refusal:
                return refusal
            return None


def _replace_value(
    transaction: Transaction,
    space: str,
    key: str,
    entry: tuple[Tier, Row] | None,
    value: bytes,
    ttl: int | None,
    quota: Quota,
) -> None:
    """Replaces the value of an entry, which keeps its tier and expiry. A new key becomes durable."""
    if entry is None:
        put(transaction, space, key, value, ttl, Tier.DURABLE, quota)
    else:
        tier, row = entry
        transaction.store(space, key, tier, row._replace(value=value), quota)


def _build_row(transaction: Transaction, value: bytes, ttl: int | None) -> Row:
    window = expiry.window(ttl)
    return Row(value, expiry.deadline(transaction.now, window), window)
