"""How many bytes a substrate has: of its entities and memories, of what they were before, and of its actions.

The number is kept with the settings and changes with the rows, in one transaction that holds the organisation's lock.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json
from sqlalchemy import select, update

from baobab.storage.sql.database import Execute
from baobab.tools.core import Job
from baobab.tools.core.limits.plans import PLANS
from baobab.tools.substrate import tables
from baobab.tools.substrate.errors import MemoryFull
from baobab.tools.substrate.rows import Row, encode_row

COUNTED = (
    tables.entities,
    tables.decisions,
    tables.commitments,
    tables.learnings,
    tables.source_artifacts,
)
_OF_ACTION = 1024
"""What an action takes besides what it says: its row, its receipt, its conflicts."""
_SAID = ("payload", "result", "trigger_context")
_PAGE = 25
_AT_ONCE = 200
_BEFORE_COUNTED = 1024 * 1024
"""What may be added before a memory is counted: its plan may have no more room."""


def measure(encoded_row: Row | None) -> int:
    """Returns the bytes of an encoded row as JSON; 0 without a row."""
    return 0 if encoded_row is None else len(to_json(encoded_row))


def measure_action(row: Mapping[str, Any]) -> int:
    """Returns the bytes that an action counts for."""
    return _OF_ACTION + len(to_json([row[name] for name in _SAID]))


@dataclass(frozen=True, slots=True)
class Usage:
    """Holds the bytes that a substrate has used."""

    counted_bytes: int | None
    """None while those of an earlier version are being counted."""
    uncounted_bytes: int = 0
    """What was added meanwhile."""

    def add(self, more_bytes: int) -> "Usage":
        if self.counted_bytes is None:
            return Usage(None, self.uncounted_bytes + more_bytes)
        return Usage(self.counted_bytes + more_bytes, self.uncounted_bytes)

    def require_room(self, plan: str, more_bytes: int) -> None:
        """Raises MemoryFull if the plan has no room for so many bytes more."""
        cap = PLANS[plan].memory_bytes
        if cap is None:
            return
        if self.counted_bytes is None:
            if self.uncounted_bytes + more_bytes > _BEFORE_COUNTED:
                raise MemoryFull(
                    "The memory of an earlier version is still being counted. Until that has ended,"
                    f" {_BEFORE_COUNTED} bytes can be added.",
                    remediation="Try again in a minute or two.",
                    details={"plan": plan, "what": "bytes of memory", "limit": cap},
                )
        elif self.counted_bytes + more_bytes > cap:
            raise MemoryFull(
                f"The plan {plan} has room for {cap} bytes of memory; {self.counted_bytes} are used, and {more_bytes}"
                " more do not fit.",
                details={"plan": plan, "what": "bytes of memory", "limit": cap, "current": self.counted_bytes},
            )


async def count_all(job: Job) -> None:
    """Counts the memories that an earlier version has not counted, while others write to them."""
    columns, after = tables.settings.c, ""
    while True:
        query = select(columns.organisation_id).where(columns.used_bytes.is_(None), columns.organisation_id > after)
        async with job.database.reading() as connection:
            rows = await connection.execute(query.order_by(columns.organisation_id).limit(_AT_ONCE))
            organisations = list(rows.scalars())
        if not organisations:
            return
        for organisation_id in organisations:
            await _count(job, organisation_id)
        after = organisations[-1]


async def _count(job: Job, organisation_id: str) -> None:
    """Counts a memory without its lock, in one state of the rows, and adds what was written since that state."""
    columns = tables.settings.c
    is_uncounted = (columns.organisation_id == organisation_id, columns.used_bytes.is_(None))
    async with job.database.reading() as connection:
        uncounted_before = await connection.scalar(select(columns.uncounted_bytes).where(*is_uncounted))
        if uncounted_before is None:
            return
        used_bytes = await recount(connection.execute, organisation_id)
    statement = update(tables.settings).where(*is_uncounted)
    async with job.writing(lock=organisation_id) as unit:
        values = {"used_bytes": columns.uncounted_bytes - uncounted_before + used_bytes, "uncounted_bytes": 0}
        await unit.execute(statement.values(values))


async def recount(execute: Execute, organisation_id: str) -> int:
    """Counts all bytes of an organisation's substrate anew."""
    used_bytes = 0
    for table in COUNTED:
        async for row in _walk(execute, table, organisation_id, table.c.id):
            used_bytes += measure(encode_row(table, row))
    async for row in _walk(execute, tables.changes, organisation_id, tables.changes.c.seq):
        used_bytes += measure(row["before"])
    async for row in _walk(execute, tables.action_ledger, organisation_id, tables.action_ledger.c.id):
        used_bytes += measure_action(row)
    return used_bytes


async def _walk(execute: Execute, table: Any, organisation_id: str, key: Any) -> Any:
    """Yields the rows of an organisation in the order of a column."""
    query = select(table).where(table.c.organisation_id == organisation_id).order_by(key).limit(_PAGE)
    rows: Any = (await execute(query)).mappings().all()
    while rows:
        # Others get their turn between these: a short read on files runs on the event loop.
        await asyncio.sleep(0)
        for row in rows:
            yield row
        rows = (await execute(query.where(key > rows[-1][key.name]))).mappings().all() if len(rows) == _PAGE else ()
