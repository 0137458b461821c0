"""The durable tier in Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from baobab.storage.kv.engine import Usage
from baobab.storage.kv.once import SPACE
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.postgres.statements import Statement
from baobab.storage.kv.postgres.writer import Job
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.tiered.durable import Deed, Found, apply

# The first row is about the space, the others are those that were asked for.
_FIND = b"""
SELECT NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
    coalesce((SELECT frozen FROM kv.usage WHERE space = %s), false),
    CASE WHEN %s THEN coalesce((SELECT keys FROM kv.usage WHERE space = %s), 0) - gone.keys END,
    CASE WHEN %s THEN coalesce((SELECT bytes FROM kv.usage WHERE space = %s), 0) - gone.bytes END
FROM (
    SELECT count(*) AS keys, coalesce(sum(length(key) + length(value)), 0)::bigint AS bytes
    FROM kv.entries WHERE %s AND space = %s AND expires <= %s
) AS gone
UNION ALL
SELECT e.space, e.key, e.expires, e."window", e.value, NULL, NULL, NULL
FROM unnest(%s::text[], %s::text[]) AS asked (space, key)
JOIN kv.entries AS e ON e.space = asked.space AND e.key = asked.key
"""


class DurablePostgres(PostgresEngine):
    async def find(self, space: str, keys: Sequence[str], tokens: Sequence[str], *, usage: bool) -> Found:
        places = [(space, key) for key in keys] + [(SPACE, token) for token in tokens]
        about, *found = await self._rows(
            Statement(
                _FIND,
                (
                    *(space, usage, space, usage, space, usage, space, self._now),
                    [place[0] for place in places],
                    [place[1] for place in places],
                ),
            )
        )
        rows: dict[str, Row] = {}
        kept: dict[str, Row] = {}
        for where, key, expires, window, value, *_ in found:
            (rows if where == space else kept)[key] = Row(value, expires, window)
        frozen, count, size = about[5:]
        return Found(rows, kept, frozen, Usage(count, size) if usage else Usage(0, 0))

    async def do(self, deed: Deed) -> None:
        places = tuple((deed.space, change.key) for change in deed.changes)
        places += tuple((SPACE, token) for token in deed.tokens)
        alone = deed.resizes or bool(deed.tokens)
        await self._writer(deed.space).submit(
            Job(lambda transaction: apply(deed, transaction), deed.space, places, alone=alone)
        )

    async def decided(self, space: str) -> None:
        # The lock of the space is free for this when no earlier transaction has it any more, wherever that is.
        await self._writer(space).submit(Job(lambda _: None, space))
