"""Idempotent writes: after a crash, a caller that cannot know whether a write was made may repeat it.

The result of a write is stored under its token in the same transaction. When it is repeated, the write changes nothing
and returns that result, so that a repeated call ends as the first attempt would have.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.errors import KeysExhausted, QuotaExceeded, StorageFull
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Transaction

T = TypeVar("T")

# No app has this id, so no caller can reach the space and no quota counts it.
SPACE = "~once"
KEPT_SECONDS = 7 * 24 * 3600

_REFUSALS = {kind.__name__: kind for kind in (KeysExhausted, StorageFull)}


def attempt_tokens(token: str) -> Iterator[str]:
    """Yields the tokens of the writes of one attempt, in order."""
    return (f"{token}:{number}" for number in itertools.count())


def make_idempotent(token: str, write: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    """Returns the write, made at most once under its token. A refused write stores no token."""

    def write_once(transaction: Transaction) -> T:
        stored_entry = transaction.current(SPACE, token)
        if stored_entry is not None:
            earlier_result: T = _decode_result(json.loads(stored_entry[1].value))
            return earlier_result
        result = write(transaction)
        encoded_result = json.dumps(_encode_result(result), separators=(",", ":")).encode()
        row = Row(encoded_result, expiry.deadline(transaction.now, KEPT_SECONDS), KEPT_SECONDS)
        transaction.store(SPACE, token, Tier.DURABLE, row, Quota())
        return result

    return write_once


def _encode_result(result: Any) -> Any:
    """Encodes a result as JSON. Results of single writes are JSON already; a batch also has values and errors."""
    match result:
        case list():
            return [_encode_result(item) for item in result]
        case bytes():
            return {"value": result.decode()}
        case QuotaExceeded():
            return {"refusal": type(result).__name__, **vars(result)}
    return result


def _decode_result(plain: Any) -> Any:
    match plain:
        case list():
            return [_decode_result(item) for item in plain]
        case {"value": str(value)}:
            return value.encode()
        case {"refusal": _}:
            return _decode_refusal(**plain)
    return plain


def _decode_refusal(refusal: str, **numbers: int) -> QuotaExceeded:
    return _REFUSALS[refusal](**numbers)
