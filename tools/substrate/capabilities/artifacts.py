"""Source artifacts: the documents and conversations that memories come from."""

from sqlalchemy import select

from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.capability import (
    ActionContext,
    Plan,
    capability,
    changed_row,
    new_row,
    show_before,
)
from baobab.tools.substrate.capabilities.schemas import UpsertSourceArtifact
from baobab.tools.substrate.errors import InvalidPayload
from baobab.tools.substrate.ledger import Ledger, RowChange
from baobab.tools.substrate.rows import Row

_artifacts = tables.source_artifacts
_COLUMNS = (
    "kind",
    "external_system",
    "external_id",
    "title",
    "summary",
    "content",
    "storage_object_id",
    "url",
    "links",
)
_SHOWN_BEFORE = ("id", *(name for name in _COLUMNS if name != "content"), "attrs")
_IDENTITY = ("external_system", "external_id")


@capability(reversible=True)
async def upsert_source_artifact(ledger: Ledger, payload: UpsertSourceArtifact, action: ActionContext) -> Plan:
    """Keep a source, such as the transcript of a meeting, or bring the one up to date that has this id, or this
    `external_id` in its `external_system`. What is left out stays.
    """
    if (payload.external_id is None) != (payload.external_system is None):
        raise InvalidPayload("`external_system` and `external_id` go together.")
    sent_fields = payload.collect_sent()
    if payload.links is not None:
        sent_fields["links"] = payload.links.model_dump(exclude_none=True)
    known_row = await _find_artifact(ledger, payload)
    if known_row is None:
        values = {name: sent_fields.get(name) for name in _COLUMNS}
        values |= {"attrs": payload.attrs or {}, "source_app_id": action.app_id}
        row = new_row(action, payload.id or ledger.new_id("art"), **values)
        change = RowChange(_artifacts, row["id"], None, row)
        return Plan({"artifact_id": row["id"], "was_insert": True, "before": None}, [change])
    if any(name in sent_fields and known_row[name] not in (None, sent_fields[name]) for name in _IDENTITY):
        raise InvalidPayload("The artifact with this id has another `external_id`, which cannot be changed.")
    changing = {name: sent_fields[name] for name in (*_COLUMNS, "attrs") if name in sent_fields}
    if changing.get("attrs", {}) is None:
        changing["attrs"] = {}
    after = changed_row(action, known_row, **changing)
    before = show_before(action, _artifacts, known_row, _SHOWN_BEFORE)
    result = {"artifact_id": known_row["id"], "was_insert": False, "before": before}
    return Plan(result, [RowChange(_artifacts, known_row["id"], known_row, after)])


async def _find_artifact(ledger: Ledger, payload: UpsertSourceArtifact) -> Row | None:
    by_id = None if payload.id is None else await ledger.get(_artifacts, payload.id)
    if payload.external_id is None:
        return by_id
    query = select(_artifacts.c.id).where(
        _artifacts.c.organisation_id == ledger.organisation_id,
        _artifacts.c.external_system == payload.external_system,
        _artifacts.c.external_id == payload.external_id,
    )
    known_id = (await ledger.unit.execute(query)).scalar()
    if known_id is None:
        return by_id
    if payload.id not in (None, known_id):
        raise InvalidPayload("The artifact with this `external_id` has another id.")
    return await ledger.get(_artifacts, known_id)
