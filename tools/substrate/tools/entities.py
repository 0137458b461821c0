"""/entities: people, companies and other things."""

from datetime import datetime
from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import func, select

from baobab.storage.sql.full_text import normalise
from baobab.tools.core import OMITTED, Call, Cursor, Email, Mcp, Text, decode_cursor, encode_cursor
from baobab.tools.core.types import Moment
from baobab.tools.substrate import proposals, tables
from baobab.tools.substrate.access import CALLERS, organisation_of, proposer_of
from baobab.tools.substrate.capabilities import fields
from baobab.tools.substrate.capabilities.entities import select_resolved
from baobab.tools.substrate.errors import EmailTaken, EntityNotFound, InvalidPayload, MemoryFull, PreconditionFailed
from baobab.tools.substrate.memory_search import add_sources
from baobab.tools.substrate.schemas import Entities, Entity, Proposal
from baobab.tools.substrate.toolset import substrate

_rows = tables.entities.c
_LIST = "substrate:entities"
_MOST_ALIASES = 200
_CANDIDATES = 1000
EntityId = Annotated[fields.EntityId, Field(description="The entity.", examples=["ent_01KAVF3T9GQZ8RT3Q0M5W9YB7C"])]
SearchText = Annotated[str, Text(200)]


@substrate.tool(
    "GET /entities",
    access=CALLERS,
    effect="read",
    taints=True,
    mcp=Mcp(for_linked_apps=True, start="narrow"),
)
async def substrate_entities(
    call: Call,
    type: fields.EntityType | None = None,
    q: SearchText | None = None,
    limit: Annotated[int, Field(ge=1, le=200)] = 50,
    count: bool = False,
    primary_email: Email | None = None,
    cursor: Cursor | None = None,
) -> Entities:
    """Find entities: the latest changed first, or with `q` the most similar names first.

    type: only those of this type.
    q: a part of the display name; case and accents do not matter.
    limit: how many at most.
    count: whether to say in `total` how many there are in all.
    primary_email: only the one with this address.
    """
    organisation_id = organisation_of(call)
    query = select(tables.entities).where(_rows.organisation_id == organisation_id, _rows.merged_into.is_(None))
    if type is not None:
        query = query.where(_rows.type == type)
    if primary_email is not None:
        query = query.where(_rows.primary_email == primary_email)
    name_part = normalise(q.strip()) if q else ""
    if name_part:
        query = query.where(_rows.search_name.contains(name_part, autoescape=True))
    total = (await call.execute(select(func.count()).select_from(query.subquery()))).scalar_one() if count else None
    next_cursor = None
    if name_part:
        rows = (await call.execute(query.order_by(_rows.updated_at.desc()).limit(_CANDIDATES))).mappings().all()
        ranking = sorted(
            ((measure_similarity(name_part, row["search_name"]), row) for row in rows), key=lambda pair: -pair[0]
        )
        entities = [{**row, "sim": round(similarity, 4)} for similarity, row in ranking[:limit]]
    else:
        if cursor is not None:
            (at,) = decode_cursor(call.services.vault, _LIST, cursor)
            query = query.where(_rows.updated_at < datetime.fromisoformat(at))
        rows = (await call.execute(query.order_by(_rows.updated_at.desc()).limit(limit + 1))).mappings().all()
        if len(rows) > limit:
            next_cursor = encode_cursor(call.services.vault, _LIST, rows[limit - 1]["updated_at"].isoformat())
        entities = [dict(row) for row in rows[:limit]]
    entities = await add_sources(call.unit, call.unit.database.dialect, organisation_id, entities)
    answer: dict[str, Any] = {"entities": [render_entity(row) for row in entities], "next_cursor": next_cursor}
    if total is not None:
        answer["total"] = total
    return cast(Entities, answer)


@substrate.tool(
    "GET /entities/{entity_id}",
    access=CALLERS,
    effect="read",
    raises=(EntityNotFound,),
    taints=True,
    mcp=Mcp(for_linked_apps=True, start="narrow"),
)
async def substrate_entity(call: Call, entity_id: EntityId) -> Entity:
    """Read one entity. The id of one that was merged into another answers that one, and says so in `merged_from`.

    `aliases` has at most 200 of those that were merged into it, and `alias_count` says how many there are.
    """
    organisation_id = organisation_of(call)
    resolved_id = (await call.execute(select_resolved(organisation_id, entity_id))).scalar()
    conditions = (_rows.organisation_id == organisation_id, _rows.id == resolved_id)
    entity_row = (await call.execute(select(tables.entities).where(*conditions))).mappings().first()
    if entity_row is None:
        raise EntityNotFound
    (row,) = await add_sources(call.unit, call.unit.database.dialect, organisation_id, [entity_row])
    aliases = select(_rows.id, _rows.display_name).where(
        _rows.organisation_id == organisation_id, _rows.merged_into == resolved_id
    )
    alias_rows = (await call.execute(aliases.order_by(_rows.id).limit(_MOST_ALIASES))).all()
    entity: Any = {**render_entity(row), "aliases": [alias.id for alias in alias_rows]}
    entity["alias_names"] = {alias.id: alias.display_name for alias in alias_rows}
    entity["alias_count"] = len(alias_rows)
    if len(alias_rows) == _MOST_ALIASES:
        entity["alias_count"] = (await call.execute(aliases.with_only_columns(func.count()))).scalar_one()
    if resolved_id != entity_id:
        entity["merged_from"] = entity_id
    return cast(Entity, entity)


@substrate.tool(
    "PATCH /entities/{entity_id}",
    access=CALLERS,
    effect="write",
    raises=(EntityNotFound, PreconditionFailed, EmailTaken, InvalidPayload, MemoryFull),
)
async def substrate_update_entity(
    call: Call,
    entity_id: EntityId,
    display_name: fields.DisplayName | None = None,
    primary_email: Email | None = OMITTED,
    attrs: fields.Attributes | None = None,
    attrs_patch: fields.Attributes | None = None,
    if_updated_at: Moment | None = None,
) -> Proposal:
    """Propose a change of a part of an entity, which the capability patch_entity makes.

    display_name: how it is called.
    primary_email: its address; null removes it.
    attrs: a merge patch of its attributes (RFC 7396), in which null removes; the same as `attrs_patch`.
    attrs_patch: the same, as the capability calls it.
    if_updated_at: change it only if it was last changed at this moment.
    """
    if attrs is not None and attrs_patch is not None:
        raise InvalidPayload("`attrs` and `attrs_patch` are the same: send one of them.")
    payload: dict[str, Any] = {"id": entity_id}
    sent_fields = {"display_name": display_name, "attrs_patch": attrs if attrs_patch is None else attrs_patch}
    payload |= {name: value for name, value in sent_fields.items() if value is not None}
    if if_updated_at is not None:
        payload["if_updated_at"] = if_updated_at.isoformat()
    if primary_email is not OMITTED:
        payload["primary_email"] = primary_email
    return await proposals.propose(
        call.unit, call.services, organisation_of(call), proposer_of(call), "patch_entity", payload
    )


def measure_similarity(name: str, other_name: str) -> float:
    """Returns the share of groups of three letters that a name has in common with another one, or with the word of it
    that has the most in common, from 0 to 1.
    """
    first = _split_trigrams(name)
    other_trigrams = [_split_trigrams(part) for part in (other_name, *other_name.split())]
    return max(len(first & each) / len(first | each) for each in other_trigrams) if first else 0.0


def _split_trigrams(name: str) -> set[str]:
    return {
        padded_word[at : at + 3]
        for word in name.split()
        for padded_word in (f"  {word} ",)
        for at in range(len(padded_word) - 2)
    }


def render_entity(row: Any) -> Entity:
    """Returns an entity as callers read it."""
    fields = {name: row[name] for name in Entity.__annotations__ if name in row}
    return cast(Entity, {**fields, "organization_id": row["organisation_id"]})
