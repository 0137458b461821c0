"""Writes that happen once for each token: a crash may have them made again by somebody who cannot know.

The result of a write is kept under its token in the same transaction. Made again, the write changes nothing and
answers that result, so that whoever repeats a whole call comes to the same end as the first attempt would have.
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

# No app has this id, so no caller reaches the space, and no quota counts it.
SPACE = "~once"
KEPT_SECONDS = 7 * 24 * 3600

_REFUSALS = {kind.__name__: kind for kind in (KeysExhausted, StorageFull)}


def attempt_tokens(token: str) -> Iterator[str]:
    """Under which the writes of one attempt are kept, in their order."""
    return (f"{token}:{number}" for number in itertools.count())


def make_idempotent(token: str, write: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
    """The write, made at most once under its token. A refused write keeps no token."""

    def write_once(transaction: Transaction) -> T:
        found = transaction.current(SPACE, token)
        if found is not None:
            earlier: T = _decode_result(json.loads(found[1].value))
            return earlier
        result = write(transaction)
        kept = json.dumps(_encode_result(result), separators=(",", ":")).encode()
        row = Row(kept, expiry.deadline(transaction.now, KEPT_SECONDS), KEPT_SECONDS)
        transaction.store(SPACE, token, Tier.DURABLE, row, Quota())
        return result

    return write_once


def _encode_result(result: Any) -> Any:
    """A result as JSON: what single writes answer is that already; a batch has values and refusals too."""
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
