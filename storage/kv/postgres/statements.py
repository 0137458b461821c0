"""Every statement of the Postgres engine. Each takes a whole group as arrays, for one round of parsing, planning and
I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from baobab.storage.kv import page
from baobab.storage.kv.engine import Tier
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Place


class Statement(NamedTuple):
    text: bytes
    parameters: tuple[Any, ...] = ()


# READ WRITE, so that a standby refuses it.
BEGIN = Statement(b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
COMMIT = Statement(b"COMMIT")
RELAX = Statement(b"SET LOCAL synchronous_commit = off")

# If the database acknowledges commits before they are on disk by default, that is turned off.
_SETTINGS = b"""
SELECT set_config(name, value, %s) FROM unnest(%s::text[], %s::text[]) AS wanted (name, value)
WHERE name <> 'synchronous_commit' OR current_setting(name) IN ('off', 'local')
"""

_LOCK = b"""
SELECT CASE WHEN alone THEN pg_advisory_xact_lock(id)::text ELSE pg_advisory_xact_lock_shared(id)::text END
FROM unnest(%s::bigint[], %s::boolean[]) AS wanted (id, alone)
"""

_COLUMNS = b"""
SELECT e.space, e.key, e.tier, length(e.key) + length(e.value), e.expires, e."window",
    CASE WHEN asked.valued THEN e.value END"""

_ASKED = b"""
FROM unnest(%s::text[], %s::text[], %s::boolean[]) AS asked (space, key, valued)
JOIN kv.entries AS e ON e.space = asked.space AND e.key = asked.key
"""

_ROWS = _COLUMNS + _ASKED

# The order prevents deadlocks of groups that share spaces. Frozen spaces are looked up once, and usually there are
# none.
_LOCKED_ROWS = (
    _COLUMNS
    + b", e.space IN (SELECT space FROM kv.usage WHERE frozen)"
    + _ASKED
    + b"ORDER BY e.space, e.key FOR UPDATE OF e"
)

_TOTALS = b"SELECT space, keys, bytes, frozen FROM kv.usage WHERE space = ANY(%s::text[])"

_EXPIRED = b"""
SELECT count(*), coalesce(sum(length(key) + length(value)), 0)::bigint
FROM kv.entries WHERE space = %s AND expires <= %s
"""

_STORE = b"""
INSERT INTO kv.entries (space, key, tier, value, expires, "window")
SELECT * FROM unnest(%s::text[], %s::text[], %s::smallint[], %s::bytea[], %s::bigint[], %s::bigint[])
ON CONFLICT (space, key) DO UPDATE
SET tier = excluded.tier, value = excluded.value, expires = excluded.expires, "window" = excluded."window"
"""

_RESTART = b"""
UPDATE kv.entries AS e SET expires = new.expires, "window" = new."window"
FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[]) AS new (space, key, expires, "window")
WHERE e.space = new.space AND e.key = new.key
"""

_REMOVE = b"""
DELETE FROM kv.entries AS e USING unnest(%s::text[], %s::text[]) AS gone (space, key)
WHERE e.space = gone.space AND e.key = gone.key
"""

_REMOVE_ALL = b"""
WITH gone AS (DELETE FROM kv.entries WHERE space = ANY(%s::text[]))
DELETE FROM kv.usage WHERE space = ANY(%s::text[])
"""

_GROW = b"""
INSERT INTO kv.usage AS u (space, keys, bytes) SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[])
ON CONFLICT (space) DO UPDATE SET keys = u.keys + excluded.keys, bytes = u.bytes + excluded.bytes
"""

_MARK = b"""
INSERT INTO kv.usage (space, keys, bytes, frozen) SELECT space, 0, 0, frozen
FROM unnest(%s::text[], %s::boolean[]) AS marked (space, frozen)
ON CONFLICT (space) DO UPDATE SET frozen = excluded.frozen
"""

_KEYS = b"""
SELECT key FROM kv.entries
WHERE space = %s AND key >= %s AND key < %s AND key > %s AND (expires IS NULL OR expires > %s)
ORDER BY key LIMIT %s
"""

_ENTRIES = b"""
SELECT key, value, tier, expires, "window" FROM kv.entries
WHERE space = %s AND key > %s AND (expires IS NULL OR expires > %s)
ORDER BY key LIMIT %s
"""

_SPACES = b"""
SELECT space FROM kv.usage AS u
WHERE space > %s AND EXISTS (
    SELECT 1 FROM kv.entries AS e WHERE e.space = u.space AND (e.expires IS NULL OR e.expires > %s)
)
ORDER BY space LIMIT %s
"""

_USAGE = b"""
SELECT coalesce(sum(keys), 0)::bigint, coalesce(sum(bytes), 0)::bigint FROM (
    SELECT keys, bytes FROM kv.usage WHERE space = %s
    UNION ALL
    SELECT -count(*), -sum(length(key) + length(value)) FROM kv.entries WHERE space = %s AND expires <= %s
) AS counted
"""

_SOME_EXPIRED = b"""
SELECT e.space, e.key
FROM (SELECT space FROM kv.usage UNION ALL SELECT %s::text) AS u
CROSS JOIN LATERAL (SELECT space, key FROM kv.entries WHERE space = u.space AND expires <= %s LIMIT %s) AS e
LIMIT %s
"""


def settings(values: dict[str, str], *, local: bool) -> Statement:
    """Makes settings, for the transaction if `local`, else for the session."""
    return Statement(_SETTINGS, (local, list(values), list(values.values())))


def lock(alone: Collection[str], shared_spaces: Collection[str]) -> Statement:
    """Locks spaces until the transaction ends: `alone` excludes all others, `shared_spaces` only holders of `alone`."""
    locks = sorted([(lock_id(space), True) for space in alone] + [(lock_id(space), False) for space in shared_spaces])
    return Statement(_LOCK, _transpose(locks))


def rows(wants_value_by_place: dict[Place, bool], *, locked: bool) -> Statement:
    """Returns space, key, tier, size, expires, window, and the value if it is requested, of each place.

    The last column of a locked row says whether its space is frozen.
    """
    requests = [(space, key, with_value) for (space, key), with_value in wants_value_by_place.items()]
    return Statement(_LOCKED_ROWS if locked else _ROWS, _transpose(requests))


def totals(spaces: Iterable[str]) -> Statement:
    """Returns space, keys and bytes of all stored entries, and whether the space is frozen."""
    return Statement(_TOTALS, (list(spaces),))


def count_expired(space: str, now: int) -> Statement:
    """Returns the keys and bytes of expired entries."""
    return Statement(_EXPIRED, (space, now))


def store(entries: Sequence[tuple[Place, Tier, Row]]) -> Statement:
    rows = [(*place, int(tier), row.value, row.expires, row.window) for place, tier, row in entries]
    return Statement(_STORE, _transpose(rows))


def restart(entries: Sequence[tuple[Place, Row]]) -> Statement:
    return Statement(_RESTART, _transpose([(*place, row.expires, row.window) for place, row in entries]))


def remove(places: Sequence[Place]) -> Statement:
    return Statement(_REMOVE, _transpose(places))


def remove_all(spaces: Collection[str]) -> Statement:
    return Statement(_REMOVE_ALL, (list(spaces), list(spaces)))


def grow(deltas: dict[str, tuple[int, int]]) -> Statement:
    return Statement(_GROW, _transpose([(space, *delta) for space, delta in deltas.items()]))


def mark(is_frozen_by_space: dict[str, bool]) -> Statement:
    return Statement(_MARK, _transpose(list(is_frozen_by_space.items())))


def keys(space: str, prefix: str, cursor: str | None, now: int, limit: int) -> Statement:
    # Postgres has no NUL in its text, so the lower bound of page.bounds cannot be used with a cursor.
    lowest, above = page.bounds(prefix, None)
    return Statement(_KEYS, (space, lowest, above, cursor or "", now, limit))


def entries(space: str, after: str, now: int, limit: int) -> Statement:
    """Returns key, value, tier, expires, window."""
    return Statement(_ENTRIES, (space, after, now, limit))


def spaces(after: str, now: int, limit: int) -> Statement:
    """Returns spaces with live entries. The space of tokens has no usage, so it is not among them."""
    return Statement(_SPACES, (after, now, limit))


def usage(space: str, now: int) -> Statement:
    """Returns live keys and bytes."""
    return Statement(_USAGE, (space, space, now))


def some_expired(now: int, limit: int) -> Statement:
    """Returns the space and key of expired entries. The space of tokens has no usage, so it is added by name."""
    return Statement(_SOME_EXPIRED, (SPACE, now, limit, limit))


def require_text(place: Place) -> None:
    """Refuses text that Postgres cannot store, so that one caller's mistake does not fail the whole group."""
    for part in place:
        part.encode()
        if "\0" in part:
            raise ValueError("Postgres cannot store NUL in text")


@lru_cache(maxsize=10_000)
def lock_id(name: str) -> int:
    """Returns the advisory lock of a space. If two spaces had one number, they would only wait for each other."""
    return int.from_bytes(hashlib.blake2b(b"baobab kv " + name.encode(), digest_size=8).digest(), signed=True)


def _transpose(table: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(list(column) for column in zip(*table, strict=True))
