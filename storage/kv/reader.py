"""Reads both tiers on the event loop's own thread: a read costs less than handing it to another thread.

A key that moves between the tiers is always in at least one of the files, but a reader's view of the ephemeral file
begins a moment after its view of the durable one. A key that arrived in the durable file in that moment would be in
neither view, so the reader checks that the arrivals noted in the ephemeral file are not ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Entry, Tier, Usage
from baobab.storage.kv.files import Faults, Files
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.tier_file import Row

_LIVE = "space = ?1 AND key = ?2 AND (expires IS NULL OR expires > ?3)"

_EPHEMERAL_IS_NEWER = "(SELECT count FROM ephemeral.arrival) > (SELECT count FROM main.arrival)"

# The durable row comes first if a crash has left a key in both; the last row says whether to read again.
_ROW = f"""
SELECT value, expires, window FROM main.entry WHERE {_LIVE}
UNION ALL
SELECT value, expires, NULL FROM ephemeral.entry WHERE {_LIVE}
UNION ALL
SELECT NULL, {_EPHEMERAL_IS_NEWER}, NULL
LIMIT 1
"""  # noqa: S608 - constants only

_RANGE = "space = ?1 AND key >= ?2 AND key < ?3 AND (expires IS NULL OR expires > ?4)"

_KEYS = f"""
SELECT key FROM main.entry WHERE {_RANGE}
UNION
SELECT key FROM ephemeral.entry WHERE {_RANGE}
ORDER BY key LIMIT ?5
"""  # noqa: S608 - constants only

# A key is at most once in each file; of a key in both, the durable entry counts.
_ENTRIES = f"""
SELECT key, value, {Tier.DURABLE:d}, expires, window FROM main.entry WHERE {_RANGE}
UNION ALL
SELECT key, value, {Tier.EPHEMERAL:d}, expires, window FROM ephemeral.entry AS copy WHERE {_RANGE}
AND NOT EXISTS (SELECT 1 FROM main.entry AS stored WHERE stored.space = copy.space AND stored.key = copy.key)
ORDER BY key LIMIT ?5
"""  # noqa: S608 - constants only

_HELD = "held.space = usage.space AND (expires IS NULL OR expires > ?3)"

_SPACES = f"""
SELECT space FROM main.usage
WHERE space > ?1 AND space <> ?2 AND EXISTS (SELECT 1 FROM main.entry AS held WHERE {_HELD})
UNION
SELECT space FROM ephemeral.usage
WHERE space > ?1 AND space <> ?2 AND EXISTS (SELECT 1 FROM ephemeral.entry AS held WHERE {_HELD})
ORDER BY space LIMIT ?4
"""  # noqa: S608 - constants only

_EXPIRED = "WHERE space = ?1 AND expires <= ?2"

_USAGE = f"""
SELECT coalesce(sum(keys), 0), coalesce(sum(bytes), 0) FROM (
    SELECT keys, bytes FROM main.usage WHERE space = ?1
    UNION ALL
    SELECT keys, bytes FROM ephemeral.usage WHERE space = ?1
    UNION ALL
    SELECT -count(*), -sum(length(key) + length(value)) FROM main.entry {_EXPIRED}
    UNION ALL
    SELECT -count(*), -sum(length(key) + length(value)) FROM ephemeral.entry {_EXPIRED}
)
"""  # noqa: S608 - constants only


class Reader:
    def __init__(self, files: Files, clock: Callable[[], float], busy_timeout: float, faults: Faults) -> None:
        self._faults = faults
        self._clock = clock
        self._connection = apsw.Connection(str(files.durable))
        self._connection.set_busy_timeout(int(busy_timeout * 1000))
        self._connection.execute("ATTACH ? AS ephemeral", (str(files.ephemeral),))
        self._connection.execute("PRAGMA query_only=ON")
        self._cursor = self._connection.cursor()

    def close(self) -> None:
        self._connection.close()

    @property
    def now(self) -> int:
        return expiry.milliseconds(self._clock())

    def row(self, space: str, key: str) -> Row | None:
        """Returns the live row of a key. `window` is None for an ephemeral row, since nothing restarts its expiry."""
        bindings = (space, key, self.now)
        while True:
            row = Row._make(self._ask(_ROW, bindings)[0])
            if row.value is not None:
                return row
            if not row.expires:
                return None

    def keys(self, space: str, lowest: str, above: str, limit: int) -> list[str]:
        """Returns live keys from `lowest` to below `above`, in order."""
        return [key for (key,) in self._ask_both(_KEYS, (space, lowest, above, self.now, limit))]

    def entries(self, space: str, lowest: str, above: str, limit: int) -> list[Entry]:
        """Returns live entries from `lowest` to below `above`, in order."""
        rows = self._ask_both(_ENTRIES, (space, lowest, above, self.now, limit))
        return [Entry(key, value, Tier(tier), expires, window) for key, value, tier, expires, window in rows]

    def spaces(self, after: str, limit: int) -> list[str]:
        return [space for (space,) in self._ask_both(_SPACES, (after, SPACE, self.now, limit))]

    def usage(self, space: str) -> Usage:
        return Usage(*self._ask_both(_USAGE, (space, self.now))[0])

    def _ask_both(self, statement: str, bindings: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        while True:
            self._ask("BEGIN", ())
            try:
                [(ephemeral_is_newer,)] = self._ask(f"SELECT {_EPHEMERAL_IS_NEWER}", ())
                if not ephemeral_is_newer:
                    return self._ask(statement, bindings)
            finally:
                self._ask("COMMIT", ())

    def _ask(self, statement: str, bindings: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        try:
            # All rows at once: a half-read statement would keep its snapshot, and the WAL could not shrink.
            return self._cursor.execute(statement, bindings).fetchall()
        except apsw.Error as exc:
            raise self._faults.translate(exc) from exc
