"""Stores the results of writes that may be sent twice, in the same transaction as their rows."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import Anonymous, Call
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import IdempotencyKeyReused
from baobab.tools.data.history.sequences import Sequences
from baobab.tools.data.schemas import RepeatOptions

COLUMNS = "key text PRIMARY KEY, result text NOT NULL, digest text, at text, action bigint"
LATER_COLUMNS = ("digest text", "at text", "action bigint")
"""Columns that a table made by an earlier version does not have yet."""
_BYTES = "_attempts_bytes"
"""The name in `_sequences` of the counter of bytes that results for clients' keys take."""
_MOST_BYTES = 16 * 2**20
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call that may be sent again.

    digest: of the request, for a key that the client chose. None for an approved call, whose attempts are always the
    same request.
    """

    key: str
    digest: str | None = None


def read_attempt(call: Call, actor: Actor, options: RepeatOptions | None, request: Any) -> Attempt | None:
    """Returns the attempt of a call, by the client's idempotency key or by its approval. None without either."""
    key = options["idempotency_key"] if options is not None else None
    if key is None:
        return Attempt(call.approved_attempt.id) if call.approved_attempt is not None else None
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    scope = [call.tool.name, call.caller.actor_id, actor.role, actor.user_id, key]
    if isinstance(call.caller, Anonymous):
        # Visitors share one identity, so the request is part of their key: a visitor gets another's answer only for the
        # same request.
        scope.append(digest)
    return Attempt(hashlib.sha256(json.dumps(scope).encode()).hexdigest(), digest)


class Attempts:
    """The stored results of one app, in one transaction.

    now: the current time in ISO 8601. sequences: whoever gives them writes them; left out to read.
    """

    def __init__(
        self, statements: Statements, store: DataStore, app_id: str, now: str, sequences: Sequences | None = None
    ) -> None:
        self._statements = statements
        self._table = store.name_table(app_id, "_idempotency_keys")
        self._sequences = sequences or Sequences(statements, store, app_id)
        self._now = now

    def find(self, attempt: Attempt) -> tuple[Any, int | None] | None:
        """Returns the result of an earlier attempt, with the number of its action in the change log, if it had one.

        Raises IdempotencyKeyReused if the key was used for another request.
        """
        rows = self._statements.rows(f"SELECT result, digest, action FROM {self._table} WHERE key = ?", attempt.key)
        if not rows:
            return None
        if rows[0][1] != attempt.digest:
            raise IdempotencyKeyReused
        return json.loads(rows[0][0]), rows[0][2]

    def keep(self, attempt: Attempt, result: Any, action: int | None) -> None:
        """Stores the result of an attempt, which must be JSON."""
        content = json.dumps(result)
        self._statements.insert_many(
            f"INSERT INTO {self._table} (key, result, digest, at, action) VALUES (?, ?, ?, ?, ?)",
            [(attempt.key, content, attempt.digest, self._now, action)],
        )
        if attempt.digest is not None:
            self._trim(self._sequences.add(_BYTES, len(content)) - _MOST_BYTES)

    def read_progress(self, attempt: Attempt) -> Any:
        """Returns the progress of a long write, as `keep_progress` stored it. None before its first part."""
        text = f"SELECT result, digest FROM {self._table} WHERE key = ?"
        rows = self._statements.rows(text, attempt.key)
        if not rows:
            return None
        if rows[0][1] != attempt.digest:
            raise IdempotencyKeyReused
        return json.loads(rows[0][0])

    def keep_progress(self, attempt: Attempt, progress: Any) -> None:
        """Stores the progress of a long write, in the same transaction as one of its parts."""
        sizes = self._statements.rows(f"DELETE FROM {self._table} WHERE key = ? RETURNING length(result)", attempt.key)
        content = json.dumps(progress)
        self._statements.rows(
            f"INSERT INTO {self._table} (key, result, digest, at) VALUES (?, ?, ?, ?)",
            attempt.key,
            content,
            attempt.digest,
            self._now,
        )
        if attempt.digest is not None:
            self._trim(self._sequences.add(_BYTES, len(content) - sum(size for (size,) in sizes)) - _MOST_BYTES)

    def is_expired(self, before: str) -> bool:
        """Returns whether any result is older than a moment, or was stored by a version that did not note the time."""
        text = f"SELECT 1 FROM {self._table} WHERE at IS NULL OR at < ? LIMIT 1"
        return bool(self._statements.rows(text, before))

    def sweep(self, before: str) -> None:
        """Removes the results that are older than a moment."""
        expired_rows = self._statements.rows(
            f"DELETE FROM {self._table} WHERE at < ? RETURNING length(result), digest",
            before,
        )
        self._statements.rows(f"UPDATE {self._table} SET at = ? WHERE at IS NULL", self._now)
        freed_bytes = sum(size for size, digest in expired_rows if digest is not None)
        if freed_bytes:
            self._sequences.add(_BYTES, -freed_bytes)

    def _trim(self, surplus: int) -> None:
        """Removes the oldest results for clients' keys until enough bytes are free."""
        while surplus > 0:
            oldest = self._statements.rows(
                f"SELECT key, length(result) FROM {self._table} WHERE digest IS NOT NULL ORDER BY at, key LIMIT {_PAGE}"
            )
            freed_bytes = 0
            for key, size in oldest:
                if freed_bytes >= surplus:
                    break
                self._statements.rows(f"DELETE FROM {self._table} WHERE key = ?", key)
                freed_bytes += size
            if not freed_bytes:
                return
            self._sequences.add(_BYTES, -freed_bytes)
            surplus -= freed_bytes


class Repeats(Protocol):
    """What a write knows of its earlier attempts, and stores for later ones, in its transaction."""

    def find(self, attempts: Attempts) -> tuple[Any, int | None] | None:
        """Returns the result and the action of an earlier attempt, in whose place nothing is written; or None."""

    def keep(self, attempts: Attempts, result: Any, action: int | None) -> None:
        """Stores what a repeated attempt must know. Raises Rehearsed to have the write rolled back."""


@dataclass(frozen=True, slots=True)
class RepeatsOf:
    """Of one attempt, the result is stored; without an attempt, nothing."""

    attempt: Attempt | None

    def find(self, attempts: Attempts) -> tuple[Any, int | None] | None:
        return None if self.attempt is None else attempts.find(self.attempt)

    def keep(self, attempts: Attempts, result: Any, action: int | None) -> None:
        if self.attempt is not None:
            attempts.keep(self.attempt, result, action)


class Rehearsed(Exception):
    """Rolls back the transaction of a write that only finds out what it would do."""

    def __init__(self, result: Any = None) -> None:
        super().__init__()
        self.result = result


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Finds the result of an attempt, and stores none: the write is rolled back."""

    attempt: Attempt | None

    def find(self, attempts: Attempts) -> tuple[Any, int | None] | None:
        return RepeatsOf(self.attempt).find(attempts)

    def keep(self, attempts: Attempts, result: Any, action: int | None) -> None:
        del attempts, action
        raise Rehearsed(result)
