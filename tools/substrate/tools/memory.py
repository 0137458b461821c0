"""/memory, /source-artifacts and /snapshots: what is remembered."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, cast

from pydantic import Field
from sqlalchemy import and_, func, not_, or_, select

from baobab.tools.core import BadRequest, Call, Mcp, Text
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.types import Moment
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, organisation_of
from baobab.tools.substrate.capabilities import fields
from baobab.tools.substrate.errors import ArtifactNotFound
from baobab.tools.substrate.meaning.search import MeaningSearch
from baobab.tools.substrate.memory_search import (
    add_sources,
    build_holding,
    build_recent,
    filter_moments,
    find_by_words,
    recall_as_known,
)
from baobab.tools.substrate.schemas import (
    Artifact,
    ArtifactDetail,
    Artifacts,
    MemoryPage,
    MemoryResults,
    MemoryRow,
    Snapshots,
)
from baobab.tools.substrate.toolset import substrate

_memory, _artifacts = tables.memory.c, tables.source_artifacts.c
_KINDS = {
    "decisions": "decision",
    "commitments": "commitment",
    "learnings": "learning",
    "source_artifacts": "source_artifact",
}
Words = Annotated[str, Text(1000)]
Kinds = Annotated[str, Text(100), Field(description="Of `decisions,commitments,learnings,source_artifacts`.")]
ArtifactId = Annotated[
    fields.ArtifactId, Field(description="The artifact.", examples=["art_01KAVF3T9GQZ8RT3Q0M5W9YB7C"])
]


@substrate.tool(
    "GET /memory",
    access=CALLERS,
    effect="read",
    taints=True,
    mcp=Mcp(for_linked_apps=True, start="narrow"),
)
async def substrate_search_memory(
    call: Call,
    q: Words | None = None,
    kinds: Kinds | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 20,
    match: Literal["and", "or", "phrase"] = "and",
    search_by: Literal["words", "meaning", "both"] = "words",
    valid_at: Moment | None = None,
    known_at: Moment | None = None,
) -> MemoryResults:
    """Search decisions, commitments, learnings and source artifacts by words or by meaning, the best first.

    Case and accents do not matter. `from_strangers` marks what people outside may have written.

    q: the words, or a question; left out, or `*`, the latest changed come first, and `rank` is null.
    limit: how many at most.
    match: whether all words must be there, any of them, or all in this order side by side.
    search_by: `words` finds whole words; `meaning` what is close to the question, a few seconds after it was written;
      `both` merges the two and ranks recent memories somewhat higher.
    valid_at: only what was true at this moment, as far as is known today.
    known_at: only what was recorded by this moment and not ended by then, as it was then.
    """
    organisation_id = organisation_of(call)
    filters = [*_filter_kinds(kinds), *filter_moments(valid_at, known_at)]
    if q is None or q.strip() in ("", "*"):
        memories: Any = (await call.execute(build_recent(organisation_id).where(*filters).limit(limit))).mappings()
    elif search_by == "words":
        dialect = call.unit.database.dialect
        memories = await find_by_words(call.unit, dialect, organisation_id, q, match, filters, limit)
    else:
        search = MeaningSearch(call, organisation_id, q)
        memories = await search.run(search_by, match, _parse_kinds(kinds), filters, limit)
    return {"results": await _render_memories(call, memories, known_at)}


@substrate.tool(
    "GET /memory/list",
    access=CALLERS,
    effect="read",
    taints=True,
    mcp=Mcp(for_linked_apps=True, start="narrow"),
)
async def substrate_memory_list(
    call: Call,
    kinds: Kinds | None = None,
    source_artifact_id: ArtifactId | None = None,
    superseded: bool = True,
    before: Moment | None = None,
    limit: Annotated[int, Field(ge=1, le=100)] = 25,
    valid_at: Moment | None = None,
    known_at: Moment | None = None,
) -> MemoryPage:
    """List what is remembered, the latest changed first.

    source_artifact_id: only what comes from this artifact, and not the artifacts themselves.
    superseded: false leaves out superseded decisions and expired commitments.
    before: the `next_before` of the previous page.
    limit: how many at most.
    valid_at: only what was true at this moment, as far as is known today.
    known_at: only what was recorded by this moment and not ended by then, as it was then.
    """
    query = build_recent(organisation_of(call)).where(*_filter_kinds(kinds), *filter_moments(valid_at, known_at))
    if source_artifact_id is not None:
        query = query.where(_memory.source_artifact_id == source_artifact_id, _memory.kind != "source_artifact")
    if not superseded:
        over = or_(
            and_(_memory.kind == "decision", _memory.status == "superseded"),
            and_(_memory.kind == "commitment", _memory.status == "expired"),
        )
        query = query.where(or_(_memory.status.is_(None), not_(over)))
    whole_query = query
    if before is not None:
        query = query.where(_memory.updated_at < before)
    rows = (await call.execute(query.limit(limit + 1))).mappings().all()
    await count_list(call, call.execute, whole_query, is_all=before is None and len(rows) <= limit)
    following = rows[limit - 1]["updated_at"] if len(rows) > limit else None
    return {"results": await _render_memories(call, rows[:limit], known_at), "next_before": following}


@substrate.tool(
    "GET /source-artifacts",
    access=CALLERS,
    effect="read",
    taints=True,
    mcp=Mcp(for_linked_apps=True, start="narrow"),
)
async def substrate_source_artifacts(
    call: Call,
    kind: Annotated[str | None, Text(100)] = None,
    q: Words | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
    count: bool = False,
) -> Artifacts:
    """List source artifacts, the latest changed first, or with `q` the best first; without their content.

    kind: only those of this kind, such as `meeting_transcript`.
    q: words that are in the title, the summary or the content.
    limit: how many at most.
    count: whether to say in `total` how many there are in all.
    """
    organisation_id = organisation_of(call)
    query: Any = select(*_choose_columns()).where(_artifacts.organisation_id == organisation_id)
    if kind is not None:
        query = query.where(_artifacts.kind == kind)
    if q is not None and q.strip() not in ("", "*"):
        holding = build_holding(call.unit.database.dialect, organisation_id, q)
        if holding is None:
            return {"artifacts": [], "total": 0} if count else {"artifacts": []}
        ranking = holding.where(_memory.kind == "source_artifact").subquery()
        query = query.join(ranking, ranking.c.id == _artifacts.id).order_by(ranking.c.rank.desc())
    total = (
        (await call.execute(select(func.count()).select_from(query.order_by(None).subquery()))).scalar_one()
        if count
        else None
    )
    rows = (await call.execute(query.order_by(_artifacts.updated_at.desc()).limit(limit))).mappings()
    answer: Artifacts = {"artifacts": await _render_artifacts(call, rows)}
    if total is not None:
        answer["total"] = total
    return answer


@substrate.tool(
    "GET /source-artifacts/{artifact_id}",
    access=CALLERS,
    effect="read",
    raises=(ArtifactNotFound,),
    taints=True,
    mcp=Mcp(for_linked_apps=True),
)
async def substrate_source_artifact(call: Call, artifact_id: ArtifactId) -> ArtifactDetail:
    """Read one source artifact with its content."""
    conditions = (_artifacts.organisation_id == organisation_of(call), _artifacts.id == artifact_id)
    query = select(*_choose_columns("content")).where(*conditions)
    row = (await call.execute(query)).mappings().first()
    if row is None:
        raise ArtifactNotFound
    (artifact,) = await _render_artifacts(call, [row])
    return cast(ArtifactDetail, artifact)


@substrate.tool(
    "GET /snapshots",
    access=CALLERS,
    effect="read",
)
async def substrate_snapshots(call: Call, days: Annotated[int, Field(ge=1, le=366)] = 30) -> Snapshots:
    """List the snapshots of the last days, the latest first: how many things of each kind there were.

    days: how many days back.
    """
    rows, since = tables.snapshots.c, call.now.date() - timedelta(days=days - 1)
    query = select(rows.snapshot_date, rows.counts).where(
        rows.organisation_id == organisation_of(call), rows.snapshot_date >= since
    )
    snapshot_rows = await call.execute(query.order_by(rows.snapshot_date.desc()))
    return {"snapshots": [cast(Any, {"snapshot_date": row.snapshot_date, **row.counts}) for row in snapshot_rows]}


def _parse_kinds(kinds: str | None) -> list[str] | None:
    """Returns the kinds that `kinds` names; None for all."""
    if kinds is None:
        return None
    names = [name.strip() for name in kinds.split(",") if name.strip()]
    unknown = [name for name in names if name not in _KINDS]
    if unknown or not names:
        raise BadRequest("`kinds` is a list of decisions, commitments, learnings and source_artifacts.")
    return [_KINDS[name] for name in names]


def _filter_kinds(kinds: str | None) -> list[Any]:
    kinds_wanted = _parse_kinds(kinds)
    return [] if kinds_wanted is None else [_memory.kind.in_(kinds_wanted)]


async def _render_memories(call: Call, rows: Iterable[Any], known_at: datetime | None) -> list[MemoryRow]:
    """Returns memories with their sources. known_at: the moment whose wording they have; None for the present."""
    memories, organisation_id = rows, organisation_of(call)
    if known_at is not None:
        memories = await recall_as_known(call.execute, organisation_id, [dict(row) for row in rows], known_at)
    sourced_rows = await add_sources(call.unit, call.unit.database.dialect, organisation_id, memories)
    return [cast(MemoryRow, {name: row[name] for name in MemoryRow.__annotations__}) for row in sourced_rows]


async def _render_artifacts(call: Call, rows: Iterable[Any]) -> list[Any]:
    sourced_rows = await add_sources(call.unit, call.unit.database.dialect, organisation_of(call), rows)
    return [{name: value for name, value in row.items() if name != "action_id"} for row in sourced_rows]


def _choose_columns(*further: str) -> list[Any]:
    """Returns the columns that are read of artifacts."""
    names = [name for name in Artifact.__annotations__ if name != "source"]
    return [_artifacts[name] for name in (*names, "action_id", *further)]
