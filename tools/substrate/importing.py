"""Import: the rows of a file become one action of the ledger, which can be undone."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy import Column, Float, String, Table, Text, select

from baobab.storage.sql.full_text import normalise
from baobab.storage.sql.tables import Instant
from baobab.tools.core.types import Moment
from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities import fields
from baobab.tools.substrate.capabilities.capability import ActionContext, Plan
from baobab.tools.substrate.capabilities.principles import require_room
from baobab.tools.substrate.capabilities.schemas import (
    Payload,
    RecordCommitment,
    RecordDecision,
    RecordLearning,
    RecordPrinciple,
    UpsertEntity,
    UpsertSourceArtifact,
)
from baobab.tools.substrate.errors import InvalidImport
from baobab.tools.substrate.ledger import Ledger, RowChange
from baobab.tools.substrate.policy import require_allowed
from baobab.tools.substrate.rows import Row
from baobab.tools.substrate.transfer import FIELDS_OF_ENGINE, TABLES, Parcel

CAPABILITY = "import_memories"
_LONGEST_TEXT = 500_000
_IDS = {
    "entities": re.compile(r"ent_[A-Za-z0-9_-]{1,60}"),
    "source_artifacts": re.compile(r"art_[A-Za-z0-9_-]{1,60}"),
    "decisions": re.compile(r"dec_[0-9A-Z]{26}"),
    "commitments": re.compile(r"com_[0-9A-Z]{26}"),
    "learnings": re.compile(r"lrn_[0-9A-Z]{26}"),
}
_WORDS = {
    ("entities", "type"): set(get_args(fields.EntityType)) - {"self"},
    ("decisions", "kind"): set(get_args(fields.DecisionKind)),
    ("decisions", "salience"): set(get_args(fields.Salience)),
    ("decisions", "status"): {"active", "superseded", "reversed", "expired"},
    ("commitments", "status"): set(get_args(fields.CommitmentStatus)),
}
_DEFAULTS: dict[tuple[str, str], Any] = {
    ("decisions", "salience"): "normal",
    ("decisions", "status"): "active",
    ("entities", "attrs"): {},
    ("commitments", "attrs"): {},
    ("source_artifacts", "attrs"): {},
}
_PAYLOADS: dict[str, tuple[type[Payload], ...]] = {
    "entities": (UpsertEntity,),
    "source_artifacts": (UpsertSourceArtifact,),
    "decisions": (RecordPrinciple, RecordDecision),
    "commitments": (RecordCommitment,),
    "learnings": (RecordLearning,),
}
"""What is proposed to record a row: an import takes no text or object that these refuse."""
_FIELDS: dict[tuple[str, str], TypeAdapter[Any]] = {
    (name, field): TypeAdapter(type_)
    for name, payloads in _PAYLOADS.items()
    for payload in payloads
    for field, type_ in get_type_hints(payload, include_extras=True).items()
    if field in TABLES[name].c
}
_SET_HERE = frozenset(
    ("organisation_id", "search_name", "merged_into", "action_id", "from_strangers", "created_at", "updated_at")
)
_MOMENT: TypeAdapter[datetime] = TypeAdapter(Moment)
_AT_ONCE = 400
_RECORDING = {
    tables.entities.name: "upsert_entity",
    tables.source_artifacts.name: "upsert_source_artifact",
    tables.decisions.name: "record_decision",
    tables.commitments.name: "record_commitment",
    tables.learnings.name: "record_learning",
}


async def plan_import(ledger: Ledger, parcel: Parcel, action: ActionContext) -> Plan:
    """Says which rows would be made: those whose ids, addresses and external ids are not there yet."""
    rows_by_table: dict[str, dict[str, Row]] = {name: {} for name in TABLES}
    for number, (name, sent_row) in enumerate(parcel.rows, 1):
        row = _build_row(name, sent_row, action, is_signed=parcel.is_signed, number=number)
        if row["id"] in rows_by_table[name]:
            raise InvalidImport(f"Row {number}: the id {row['id']} is there twice.")
        rows_by_table[name][row["id"]] = row
    changes: list[RowChange] = []
    for name, table in TABLES.items():
        known_rows = await ledger.load(table, rows_by_table[name])
        new_rows = [row for row in rows_by_table[name].values() if row["id"] not in known_rows]
        new_rows = await _leave_out_taken(ledger, table, new_rows)
        changes += [RowChange(table, row["id"], None, row) for row in new_rows]
    await _clear_references(ledger, changes)
    recorded_counts = _count_recorded(changes)
    await require_allowed(ledger, recorded_counts, action.at)
    if recorded_counts["record_principle"]:
        await require_room(ledger, recorded_counts["record_principle"])
    counts = {name: sum(1 for change in changes if change.table is table) for name, table in TABLES.items()}
    return Plan({"imported": counts, "skipped": len(parcel.rows) - len(changes)}, changes)


def _count_recorded(changes: list[RowChange]) -> dict[str, int]:
    """Counts, by capability, the actions that it would take to record these rows."""
    recording = Counter(_RECORDING[change.table.name] for change in changes)
    principles = sum(1 for change in changes if (change.after or {}).get("constraint_spec") is not None)
    return {CAPABILITY: 1, "record_principle": principles, **recording}


def _build_row(name: str, sent_row: dict[str, Any], action: ActionContext, *, is_signed: bool, number: int) -> Row:
    table, row = TABLES[name], {}
    known_fields = {column.name for column in table.c} - FIELDS_OF_ENGINE
    if sent_row.get("merged_into") is not None:
        # Exports have no entity that was merged into another.
        known_fields.discard("merged_into")
    unknown = sorted(sent_row.keys() - known_fields)
    if unknown:
        raise InvalidImport(f"Row {number}: {name} has no field `{unknown[0][:60]}`.")
    for column in table.c:
        if column.name not in _SET_HERE:
            value = sent_row.get(column.name, _DEFAULTS.get((name, column.name)))
            row[column.name] = _read_value(name, column, value, number)
    if not _IDS[name].fullmatch(row["id"] or ""):
        raise InvalidImport(f"Row {number}: the id is none of {name}.")
    if row.get("constraint_spec") is not None and not is_signed:
        raise InvalidImport(f"Row {number}: principles are proposed with record_principle.")
    if name == "entities":
        row |= {"merged_into": None, "search_name": normalise(row["display_name"] or "")[:500]}
    created_at = _read_moment(sent_row["created_at"], number) if is_signed and "created_at" in sent_row else action.at
    # A file that was written by hand may come from anywhere.
    from_strangers = sent_row.get("from_strangers") is not False if is_signed else True
    return {
        **row,
        "action_id": action.id,
        "from_strangers": from_strangers,
        "created_at": created_at,
        "updated_at": action.at,
    }


def _read_value(name: str, column: Column[Any], value: Any, number: int) -> Any:
    where = f"Row {number}: `{column.name}`"
    if value is None:
        if not column.nullable:
            raise InvalidImport(f"{where} is missing.")
        return None
    words = _WORDS.get((name, column.name))
    if words is not None and (not isinstance(value, str) or value not in words):
        raise InvalidImport(f"{where} is one of {', '.join(sorted(words))}.")
    if isinstance(column.type, Instant):
        return _read_moment(value, number)
    if isinstance(column.type, Float):
        value = float(_require(value, (int, float), where))
    if (name, column.name) in _FIELDS:
        return _read_field(_FIELDS[name, column.name], value, where)
    if isinstance(column.type, (String, Text)):
        text: str = _require(value, str, where)
        if not text or len(text) > (column.type.length or _LONGEST_TEXT) or "\0" in text:
            raise InvalidImport(f"{where} is empty, too long or has a character that cannot be stored.")
        return text
    raise InvalidImport(f"{where} is not imported.")


def _read_field(field: TypeAdapter[Any], value: Any, where: str) -> Any:
    try:
        read = field.validate_python(value)
    except ValidationError as exc:
        problem = exc.errors(include_url=False, include_context=False, include_input=False)[0]["msg"]
        raise InvalidImport(f"{where}: {problem.removeprefix('Value error, ')}.") from exc
    return value if isinstance(read, BaseModel) else read


def _require(value: Any, kinds: Any, where: str) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise InvalidImport(f"{where} has another type.")
    return value


def _read_moment(value: Any, number: int) -> datetime:
    try:
        return _MOMENT.validate_python(value)
    except ValidationError as exc:
        raise InvalidImport(f"Row {number}: a moment is a text such as 2027-05-01T00:00:00Z.") from exc


async def _leave_out_taken(ledger: Ledger, table: Table, rows: list[Row]) -> list[Row]:
    """Returns the rows whose e-mail address or external id no other row has."""
    identify: Callable[[Any], Any]
    if table is tables.entities:
        columns, identify = [table.c.primary_email], _identify_entity
    elif table is tables.source_artifacts:
        columns, identify = [table.c.external_system, table.c.external_id], _identify_artifact
    else:
        return rows
    used_identities: set[Any] = set()
    values = [row[columns[-1].name] for row in rows if identify(row) is not None]
    for start in range(0, len(values), _AT_ONCE):
        query = select(*columns).where(
            table.c.organisation_id == ledger.organisation_id, columns[-1].in_(values[start : start + _AT_ONCE])
        )
        used_identities |= {identify(holder) for holder in (await ledger.unit.execute(query)).mappings()}
    free_rows = []
    for row in rows:
        identity = identify(row)
        if identity is None or identity not in used_identities:
            free_rows.append(row)
            used_identities.add(identity)
    return free_rows


def _identify_entity(row: Any) -> Any:
    return row["primary_email"]


def _identify_artifact(row: Any) -> Any:
    return None if row["external_id"] is None else (row["external_system"], row["external_id"])


async def _clear_references(ledger: Ledger, changes: list[RowChange]) -> None:
    """Removes references to source artifacts that neither the file nor the substrate has."""
    new_artifacts = {change.id for change in changes if change.table is tables.source_artifacts}
    rows = [change.after for change in changes if change.after is not None]
    named_artifacts = {row["source_artifact_id"] for row in rows if row.get("source_artifact_id")} - new_artifacts
    all_artifacts = new_artifacts | (await ledger.load(tables.source_artifacts, named_artifacts)).keys()
    for row in rows:
        if row.get("source_artifact_id") not in all_artifacts and "source_artifact_id" in row:
            row["source_artifact_id"] = None
