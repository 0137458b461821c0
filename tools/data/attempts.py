"""The results of writes that may be attempted twice, kept in the transaction of their rows."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from baobab.storage.data.store import DataStore
from baobab.storage.statements import Statements
from baobab.tools.core.auth.callers import Anonymous
from baobab.tools.core.call import Call
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import IdempotencyKeyReused
from baobab.tools.data.schemas import WriteOptions

T = TypeVar("T")

COLUMNS = "key text PRIMARY KEY, result text NOT NULL, digest text, at text, action bigint"
LATER_COLUMNS = ("digest text", "at text", "action bigint")
"""What an earlier version did not have."""
_BYTES = "_attempts_bytes"
"""What `_sequences` calls the bytes of the results that are kept for keys of clients."""
_MOST_BYTES = 16 * 2**20
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call that may be made again. digest: of what a client asks for by a key of its own; None for the attempts of
    an approved call, which are always the same.
    """

    key: str
    digest: str | None = None


def read_attempt(call: Call, actor: Actor, options: WriteOptions | None, asked: Any) -> Attempt | None:
    """How a call is known again: by the client's own key, or as the one that was approved."""
    key = options["idempotency_key"] if options is not None else None
    if key is None:
        return Attempt(call.approved.id) if call.approved is not None else None
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    scope = [call.tool.name, call.caller.actor_id, actor.role, actor.user_id, key]
    if isinstance(call.caller, Anonymous):
        # Nothing tells visitors from each other: one gets another's answer only by asking for the same.
        scope.append(digest)
    return Attempt(hashlib.sha256(json.dumps(scope).encode()).hexdigest(), digest)


class Attempts:
    """Those of one app, in one transaction. now: the moment, in ISO 8601."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str, now: str) -> None:
        self._statements = statements
        self._table = store.name_table(app_id, "_idempotency_keys")
        self._sequences = store.name_table(app_id, "_sequences")
        self._now = now

    def run_once(self, attempt: Attempt, work: Callable[[], tuple[T, int | None]]) -> tuple[T, int | None]:
        """What the function returns, or what it returned to an attempt before: its result, which must be JSON, and the
        number of its action in the log of changes, None where it changed no row. Raises IdempotencyKeyReused.
        """
        text = f"SELECT result, digest, action FROM {self._table} WHERE key = ?"
        before = self._statements.rows(text, attempt.key)
        if before:
            if before[0][1] != attempt.digest:
                raise IdempotencyKeyReused
            kept: T = json.loads(before[0][0])
            return kept, before[0][2]
        result, action = work()
        content = json.dumps(result)
        self._statements.rows(
            f"INSERT INTO {self._table} (key, result, digest, at, action) VALUES (?, ?, ?, ?, ?)",
            attempt.key,
            content,
            attempt.digest,
            self._now,
            action,
        )
        if attempt.digest is not None:
            self._trim(self._count(len(content)) - _MOST_BYTES)
        return result, action

    def read_progress(self, attempt: Attempt) -> Any:
        """How far a long write of several transactions has come, as `keep_progress` was told; None at its beginning."""
        text = f"SELECT result, digest FROM {self._table} WHERE key = ?"
        kept = self._statements.rows(text, attempt.key)
        if not kept:
            return None
        if kept[0][1] != attempt.digest:
            raise IdempotencyKeyReused
        return json.loads(kept[0][0])

    def keep_progress(self, attempt: Attempt, progress: Any) -> None:
        """Notes how far a long write has come, in the transaction of a part of it."""
        gone = self._statements.rows(f"DELETE FROM {self._table} WHERE key = ? RETURNING length(result)", attempt.key)
        content = json.dumps(progress)
        self._statements.rows(
            f"INSERT INTO {self._table} (key, result, digest, at) VALUES (?, ?, ?, ?)",
            attempt.key,
            content,
            attempt.digest,
            self._now,
        )
        if attempt.digest is not None:
            self._trim(self._count(len(content) - sum(size for (size,) in gone)) - _MOST_BYTES)

    def is_expired(self, before: str) -> bool:
        """Whether some were made before a moment, or by a version that did not note the moment."""
        text = f"SELECT 1 FROM {self._table} WHERE at IS NULL OR at < ? LIMIT 1"
        return bool(self._statements.rows(text, before))

    def sweep(self, before: str) -> None:
        """Removes those that were made before a moment."""
        gone = self._statements.rows(
            f"DELETE FROM {self._table} WHERE at < ? RETURNING length(result), digest",
            before,
        )
        self._statements.rows(f"UPDATE {self._table} SET at = ? WHERE at IS NULL", self._now)
        freed = sum(size for size, digest in gone if digest is not None)
        if freed:
            self._count(-freed)

    def _count(self, amount: int) -> int:
        taken = self._statements.rows(
            f"UPDATE {self._sequences} SET last = last + ? WHERE name = ? RETURNING last",
            amount,
            _BYTES,
        )
        if taken:
            return int(taken[0][0])
        self._statements.rows(f"INSERT INTO {self._sequences} (name, last) VALUES (?, ?)", _BYTES, amount)
        return amount

    def _trim(self, surplus: int) -> None:
        """Removes the oldest ones of clients until so many bytes are free."""
        while surplus > 0:
            oldest = self._statements.rows(
                f"SELECT key, length(result) FROM {self._table} WHERE digest IS NOT NULL ORDER BY at, key LIMIT {_PAGE}"
            )
            freed = 0
            for key, size in oldest:
                if freed >= surplus:
                    break
                self._statements.rows(f"DELETE FROM {self._table} WHERE key = ?", key)
                freed += size
            if not freed:
                return
            self._count(-freed)
            surplus -= freed
