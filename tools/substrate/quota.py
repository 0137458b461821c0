"""How many bytes a substrate has: of its entities and memories, of what they were before, and of its actions.

The number is kept with the settings and changes with the rows, in one transaction that holds the organisation's lock.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json
from sqlalchemy import select

from baobab.storage.database import Execute
from baobab.tools.core.plans import PLANS
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
_PAGE = 500


def measure(encoded: Row | None) -> int:
    """The bytes of a row as JSON, such as `encode_row` makes; none without a row."""
    return 0 if encoded is None else len(to_json(encoded))


def measure_action(row: Mapping[str, Any]) -> int:
    """The bytes of an action."""
    return _OF_ACTION + len(to_json([row[name] for name in _SAID]))


def require_room(plan: str, used: int, more: int) -> None:
    """Raises MemoryFull."""
    cap = PLANS[plan].memory_bytes
    if cap is not None and used + more > cap:
        raise MemoryFull(
            f"The plan {plan} has room for {cap} bytes of memory; {used} are used, and {more} more do not fit.",
            details={"plan": plan, "what": "bytes of memory", "limit": cap, "current": used},
        )


async def recount(execute: Execute, organisation_id: str) -> int:
    """Counts all bytes of an organisation's substrate anew."""
    used = 0
    for table in COUNTED:
        async for row in _walk(execute, table, organisation_id, table.c.id):
            used += measure(encode_row(table, row))
    async for row in _walk(execute, tables.changes, organisation_id, tables.changes.c.seq):
        used += measure(row["before"])
    async for row in _walk(execute, tables.action_ledger, organisation_id, tables.action_ledger.c.id):
        used += measure_action(row)
    return used


async def _walk(execute: Execute, table: Any, organisation_id: str, key: Any) -> Any:
    """Yields the rows of an organisation in the order of a column."""
    query = select(table).where(table.c.organisation_id == organisation_id).order_by(key).limit(_PAGE)
    rows: Any = (await execute(query)).mappings().all()
    while rows:
        for row in rows:
            yield row
        rows = (await execute(query.where(key > rows[-1][key.name]))).mappings().all() if len(rows) == _PAGE else ()
