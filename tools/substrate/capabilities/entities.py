"""Entities: people, companies and other things, found again by id, by their names elsewhere or by e-mail address."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, func, literal, or_, select

from baobab.storage.sql.full_text import normalise
from baobab.tools.core.types import encode_json
from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.capability import (
    ActionContext,
    Plan,
    capability,
    changed_row,
    new_row,
    show_before,
)
from baobab.tools.substrate.capabilities.fields import MOST_ATTRIBUTES
from baobab.tools.substrate.capabilities.schemas import (
    DeleteEntity,
    MergeEntities,
    PatchEntity,
    UnmergeEntities,
    UpdateEntity,
    UpsertEntity,
)
from baobab.tools.substrate.errors import (
    EmailTaken,
    EntityNotFound,
    InvalidPayload,
    PreconditionFailed,
    TypeDiffers,
    WrongStatus,
)
from baobab.tools.substrate.ledger import Ledger, RowChange
from baobab.tools.substrate.rows import Row

_entities, _keys = tables.entities, tables.entity_keys
_SHOWN_BEFORE = ("id", "type", "display_name", "primary_email", "canonical_keys", "attrs", "updated_at")
_MOST_KEYS = 20
_MOST_MERGES = 100
"""From an alias to its entity: whoever reads the alias follows them."""
_SEARCHED = 500


@capability(reversible=True)
async def upsert_entity(ledger: Ledger, payload: UpsertEntity, action: ActionContext) -> Plan:
    """Create an entity, or bring the one up to date that has this id, these canonical keys or this address. Keys and
    attributes are added to those that it has.
    """
    known_row = await _find_entity(ledger, payload)
    if known_row is None:
        row = _build_entity(ledger, payload, action)
        change = RowChange(_entities, row["id"], None, row)
        return Plan({"entity_id": row["id"], "was_insert": True, "before": None}, [change], _links(row["id"]))
    if known_row["type"] != payload.type:
        raise TypeDiffers(details={"entity_id": known_row["id"], "type": known_row["type"]})
    changing: dict[str, Any] = {"display_name": payload.display_name, "attrs": {**known_row["attrs"], **payload.attrs}}
    keys = {**(known_row["canonical_keys"] or {}), **payload.canonical_keys}
    if payload.primary_email is not None:
        # An entity that was found by the address of one merged into it keeps its own address.
        if payload.id == known_row["id"] or known_row["primary_email"] is None:
            changing["primary_email"] = payload.primary_email
        keys.setdefault("email", payload.primary_email)
    for name in ("linked_app_user_id", "linked_app_id"):
        if getattr(payload, name) is not None:
            changing[name] = getattr(payload, name)
    plan = await _plan_change(ledger, action, known_row, {**changing, "canonical_keys": keys})
    before = show_before(action, _entities, known_row, _SHOWN_BEFORE)
    return Plan({"entity_id": known_row["id"], "was_insert": False, "before": before}, plan.changes, plan.links)


@capability(reversible=True)
async def update_entity(ledger: Ledger, payload: UpdateEntity, action: ActionContext) -> Plan:
    """Change an entity; `attrs` replaces all that it has."""
    changing = {name: value for name, value in payload.collect_sent().items() if name != "id"}
    if changing.get("attrs", {}) is None:
        raise InvalidPayload("payload of update_entity: `attrs` cannot be null.")
    return await _plan_change(ledger, action, await require_entity(ledger, payload.id), changing)


@capability(reversible=True)
async def patch_entity(ledger: Ledger, payload: PatchEntity, action: ActionContext) -> Plan:
    """Change a part of an entity: `attrs_patch` is a merge patch (RFC 7396), in which null removes."""
    row = await require_entity(ledger, payload.id)
    if payload.if_updated_at is not None and payload.if_updated_at != row["updated_at"]:
        raise PreconditionFailed(details={"updated_at": row["updated_at"].isoformat()})
    changing = {
        name: value for name, value in payload.collect_sent().items() if name in ("display_name", "primary_email")
    }
    if payload.attrs_patch is not None:
        changing["attrs"] = apply_merge_patch(row["attrs"], payload.attrs_patch)
    return await _plan_change(ledger, action, row, changing)


@capability(needs_approval=True)
async def merge_entities(ledger: Ledger, payload: MergeEntities, action: ActionContext) -> Plan:
    """Merge an entity into another one. Its id and its keys then find the other; unmerge_entities takes it back."""
    loser, winner = await require_entity(ledger, payload.loser_id), await require_entity(ledger, payload.winner_id)
    if loser["id"] == winner["id"]:
        raise InvalidPayload("payload of merge_entities: the two are one entity already.")
    if loser["id"] == ledger.settings.self_entity_id:
        raise InvalidPayload("payload of merge_entities: the entity `self` cannot be merged into another one.")
    if loser["type"] != winner["type"]:
        raise TypeDiffers(details={"entity_id": winner["id"], "type": winner["type"]})
    if await _measure_depth(ledger, loser["id"]) >= _MOST_MERGES:
        raise InvalidPayload(f"payload of merge_entities: the loser stands for {_MOST_MERGES} merges in a row already.")
    merged_row = changed_row(action, loser, merged_into=winner["id"])
    result = {"entity_id": winner["id"], "merged_entity_id": loser["id"]}
    return Plan(result, [RowChange(_entities, loser["id"], loser, merged_row)], _links(winner["id"], loser["id"]))


@capability(needs_approval=True)
async def unmerge_entities(ledger: Ledger, payload: UnmergeEntities, action: ActionContext) -> Plan:
    """Take a merge back: the entity that was merged into another one is its own again, as it was."""
    row = await ledger.get(_entities, payload.entity_id)
    if row is None:
        raise EntityNotFound
    if row["merged_into"] is None:
        raise WrongStatus("The entity is not merged into another one.", details={"status": "live"})
    await _check_email(ledger, row["id"], row["primary_email"])
    restored_row = changed_row(action, row, merged_into=None)
    result = {"entity_id": row["id"], "was_merged_into": row["merged_into"]}
    return Plan(result, [RowChange(_entities, row["id"], row, restored_row)], _links(row["id"], row["merged_into"]))


@capability(needs_approval=True)
async def delete_entity(ledger: Ledger, payload: DeleteEntity, action: ActionContext) -> Plan:
    """Delete an entity for good, with those that were merged into it. What refers to it keeps its id."""
    del action
    row = await require_entity(ledger, payload.id)
    if row["id"] == ledger.settings.self_entity_id:
        raise InvalidPayload("payload of delete_entity: the entity `self` cannot be deleted.")
    deleted_rows = [row, *await load_merged(ledger, row["id"])]
    return Plan({"deleted": row["id"]}, [RowChange(_entities, each["id"], each, None) for each in deleted_rows])


async def require_entity(ledger: Ledger, entity_id: str) -> Row:
    """Returns the entity of an id, or the one that it was merged into. Raises EntityNotFound."""
    row = await ledger.get(_entities, entity_id)
    if row is not None and row["merged_into"] is not None:
        row = await ledger.get(_entities, await resolve_entity_id(ledger, entity_id))
    if row is None:
        raise EntityNotFound
    return row


async def resolve_entity_id(ledger: Ledger, entity_id: str) -> str:
    result = await ledger.unit.execute(select_resolved(ledger.organisation_id, entity_id))
    return str(result.scalar_one())


def select_resolved(organisation_id: str, entity_id: str) -> Any:
    """Builds a query of the id of the entity that another one was merged into, through any number of merges.

    A merge leads from an entity that is its own to another one that is, so that there are no cycles.
    """
    chain = (
        select(_entities.c.id, _entities.c.merged_into)
        .where(_entities.c.organisation_id == organisation_id, _entities.c.id == entity_id)
        .cte("chain", recursive=True)
    )
    following = select(_entities.c.id, _entities.c.merged_into).where(
        _entities.c.organisation_id == organisation_id, _entities.c.id == chain.c.merged_into
    )
    chain = chain.union_all(following)
    return select(chain.c.id).where(chain.c.merged_into.is_(None))


async def load_merged(ledger: Ledger, entity_id: str) -> list[Row]:
    """Returns the entities that were merged into one, through any number of merges."""
    in_organisation = _entities.c.organisation_id == ledger.organisation_id
    tree = (
        select(_entities.c.id).where(in_organisation, _entities.c.merged_into == entity_id).cte("tree", recursive=True)
    )
    tree = tree.union_all(select(_entities.c.id).where(in_organisation, _entities.c.merged_into == tree.c.id))
    merged_ids = (await ledger.unit.execute(select(tree.c.id))).scalars()
    return list((await ledger.load(_entities, merged_ids)).values())


async def _measure_depth(ledger: Ledger, entity_id: str) -> int:
    """Counts the merges on the longest chain that ends at an entity."""
    in_organisation = _entities.c.organisation_id == ledger.organisation_id
    first = select(_entities.c.id, literal(1).label("depth")).where(
        in_organisation, _entities.c.merged_into == entity_id
    )
    tree = first.cte("tree", recursive=True)
    next_level = select(_entities.c.id, tree.c.depth + 1).where(in_organisation, _entities.c.merged_into == tree.c.id)
    tree = tree.union_all(next_level)
    return (await ledger.unit.execute(select(func.max(tree.c.depth)))).scalar() or 0


async def _find_entity(ledger: Ledger, payload: UpsertEntity) -> Row | None:
    """Returns the entity that an upsert refers to: by id, else by all of its canonical keys, else by address."""
    if payload.type == "self":
        return await ledger.get(_entities, ledger.settings.self_entity_id)
    if payload.id is not None and await ledger.get(_entities, payload.id) is not None:
        return await require_entity(ledger, payload.id)
    if payload.canonical_keys:
        entity = await _find_by_keys(ledger, payload.type, payload.canonical_keys)
        if entity is not None:
            return entity
    if payload.primary_email is not None:
        return await _find_by_email(ledger, payload.primary_email)
    return None


async def _find_by_keys(ledger: Ledger, type_: str | None, keys: Mapping[str, str]) -> Row | None:
    """Returns the oldest entity of a type that has all of these keys, or the one that it was merged into."""
    pairs = or_(*(and_(_keys.c.name == name, _keys.c.value == value) for name, value in keys.items()))
    query = select(_keys.c.entity_id).where(_keys.c.organisation_id == ledger.organisation_id, pairs)
    if type_ is not None:
        query = query.where(_keys.c.type == type_)
    query = query.group_by(_keys.c.entity_id).having(func.count() == len(keys))
    holders = select(_entities.c.id).where(_entities.c.organisation_id == ledger.organisation_id)
    holders = holders.where(_entities.c.id.in_(query)).order_by(
        _entities.c.merged_into.is_not(None), _entities.c.created_at
    )
    entity_id = (await ledger.unit.execute(holders.limit(1))).scalar()
    return None if entity_id is None else await require_entity(ledger, entity_id)


async def _find_by_email(ledger: Ledger, email: str) -> Row | None:
    query = select(_entities.c.id).where(
        _entities.c.organisation_id == ledger.organisation_id,
        _entities.c.primary_email == email,
        _entities.c.merged_into.is_(None),
    )
    entity_id = (await ledger.unit.execute(query)).scalar()
    if entity_id is not None:
        return await ledger.get(_entities, entity_id)
    # One that was merged into another may have had the address.
    return await _find_by_keys(ledger, None, {"email": email})


async def _check_email(ledger: Ledger, entity_id: str, email: str | None) -> None:
    if email is None:
        return
    holder = await _find_by_email(ledger, email)
    if holder is not None and holder["primary_email"] == email and holder["id"] != entity_id:
        raise EmailTaken(details={"entity_id": holder["id"]})


async def _plan_change(ledger: Ledger, action: ActionContext, row: Row, changing: dict[str, Any]) -> Plan:
    if not changing:
        raise InvalidPayload("There is nothing to change.")
    if changing.get("display_name", "") is None:
        raise InvalidPayload("`display_name` cannot be null.")
    if "primary_email" in changing:
        await _check_email(ledger, row["id"], changing["primary_email"])
        changing["canonical_keys"] = _replace_email(row, changing)
    if len(changing.get("canonical_keys", ())) > _MOST_KEYS:
        raise InvalidPayload(f"An entity has at most {_MOST_KEYS} canonical keys.")
    # The existing and the added attributes are each small enough, but together they may not be.
    if "attrs" in changing and MOST_ATTRIBUTES < len(encode_json(changing["attrs"])) > len(encode_json(row["attrs"])):
        raise InvalidPayload(f"The attributes of an entity have at most {MOST_ATTRIBUTES} bytes as JSON.")
    after = changed_row(action, row, **changing)
    after["search_name"] = normalise(after["display_name"] or "")[:_SEARCHED]
    return Plan({"entity_id": row["id"]}, [RowChange(_entities, row["id"], row, after)], _links(row["id"]))


def _replace_email(row: Row, changing: dict[str, Any]) -> dict[str, str]:
    """Returns the canonical keys of an entity whose address changes."""
    keys = dict(changing.get("canonical_keys", row["canonical_keys"]) or {})
    if keys.get("email") == row["primary_email"]:
        keys.pop("email", None)
    if changing["primary_email"] is not None:
        keys.setdefault("email", changing["primary_email"])
    return keys


def _build_entity(ledger: Ledger, payload: UpsertEntity, action: ActionContext) -> Row:
    keys = dict(payload.canonical_keys)
    if payload.primary_email is not None:
        keys.setdefault("email", payload.primary_email)
    if len(keys) > _MOST_KEYS:
        raise InvalidPayload(f"An entity has at most {_MOST_KEYS} canonical keys.")
    values = {name: getattr(payload, name) for name in ("type", "display_name", "primary_email", "attrs")}
    values |= {name: getattr(payload, name) for name in ("linked_app_user_id", "linked_app_id")}
    values |= {"created_by_entity_id": action.entity_id, "created_by_kind": action.kind, "merged_into": None}
    values |= {"canonical_keys": keys, "search_name": normalise(payload.display_name)[:_SEARCHED]}
    return new_row(action, payload.id or ledger.new_id("ent"), **values)


def _links(entity_id: str, *other_ids: str) -> list[dict[str, str]]:
    return [{"entity_id": entity_id, "kind": "subject"}, *({"entity_id": each, "kind": "merged"} for each in other_ids)]


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Applies a JSON merge patch to a value (RFC 7396) and returns the result."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result
