"""/memory/duplicates: memories that say the same."""

from typing import Annotated, Any, cast

from pydantic import Field

from baobab.tools.core import Call
from baobab.tools.substrate.access import CALLERS, organisation_of
from baobab.tools.substrate.meaning.duplicates import build_payload, find_duplicates
from baobab.tools.substrate.schemas import Duplicates
from baobab.tools.substrate.toolset import substrate

Closeness = Annotated[float, Field(ge=0.5, le=1)]


@substrate.tool(
    "GET /memory/duplicates",
    access=CALLERS,
    effect="read",
    taints=True,
)
async def substrate_memory_duplicates(call: Call, closeness: Closeness = 0.9) -> Duplicates:
    """Find learnings, and decisions in force, that say the same. Nothing is changed.

    Each group has the payload of the capability consolidate_memories, which a person approves: it keeps the oldest.
    The latest 1000 are compared, as soon as they can be found by meaning.

    closeness: the least closeness of their meanings, up to 1.
    """
    groups = await find_duplicates(call.execute, organisation_of(call), closeness)
    return {"groups": [cast(Any, _render_group(group)) for group in groups]}


def _render_group(group: list[Any]) -> dict[str, Any]:
    memories = [{"id": row.id, "kind": row.kind, "title": row.title} for row in group]
    return {"memories": memories, "payload": build_payload(group)}
