"""/memory/duplicates: memories that say the same."""

from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import or_, select

from baobab.tools.core.call import Call
from baobab.tools.core.toolset import Mcp
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, organisation_of
from baobab.tools.substrate.meaning.vectors import group_vectors
from baobab.tools.substrate.schemas import Duplicates
from baobab.tools.substrate.toolset import substrate

_LOOKED_AT = 1000
_MOST_GROUPS = 50
_MOST_OF_GROUP = 51
_REASON = "They say the same."
_memory, _embeddings, _decisions = tables.memory.c, tables.embeddings.c, tables.decisions.c
Closeness = Annotated[float, Field(ge=0.5, le=1)]


@substrate.tool(
    "GET /memory/duplicates",
    access=CALLERS,
    effect="read",
    taints=True,
    mcp=Mcp(
        keywords="find duplicate memories, the same twice, clean up memory; doppelte Erinnerungen; recuerdos duplicados"
    ),
)
async def substrate_memory_duplicates(call: Call, closeness: Closeness = 0.9) -> Duplicates:
    """Find learnings, and decisions in force, that say the same. Nothing is changed.

    Each group has the payload of the capability consolidate_memories, which a person approves: it keeps the oldest.
    The latest 1000 are compared, as soon as they can be found by meaning.

    closeness: how close their meanings are at least, up to 1.
    """
    organisation_id = organisation_of(call)
    principles = select(_decisions.id).where(
        _decisions.organisation_id == organisation_id, _decisions.constraint_spec.is_not(None)
    )
    query = (
        select(_memory.id, _memory.kind, _memory.title, _memory.created_at, _embeddings.parts)
        .join(
            tables.embeddings,
            (_embeddings.organisation_id == _memory.organisation_id) & (_embeddings.id == _memory.id),
        )
        .where(
            _memory.organisation_id == organisation_id,
            _memory.kind.in_(("learning", "decision")),
            or_(_memory.status.is_(None), _memory.status == "active"),
            _memory.ended_at.is_(None),
            _memory.id.not_in(principles),
        )
        .order_by(_memory.updated_at.desc())
        .limit(_LOOKED_AT)
    )
    rows = (await call.execute(query)).all()
    groups: list[list[Any]] = []
    for kind in ("learning", "decision"):
        groups += await _find_groups([row for row in rows if row.kind == kind], closeness)
    return {"groups": [cast(Any, _render_group(group)) for group in groups[:_MOST_GROUPS]]}


async def _find_groups(rows: list[Any], closeness: float) -> list[list[Any]]:
    """The rows that are close to each other, or to one that is close to both; the oldest of each group first."""
    if len(rows) < 2:
        return []
    places = await group_vectors([row.parts for row in rows], closeness)
    groups = [sorted((rows[place] for place in group), key=lambda row: (row.created_at, row.id)) for group in places]
    return [group[:_MOST_OF_GROUP] for group in groups]


def _render_group(group: list[Any]) -> dict[str, Any]:
    kept, *others = group
    return {
        "memories": [{"id": row.id, "kind": row.kind, "title": row.title} for row in group],
        "payload": {"kept_id": kept.id, "duplicate_ids": [row.id for row in others], "reason": _REASON},
    }
