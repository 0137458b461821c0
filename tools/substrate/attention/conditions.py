"""Conditions of attention rules, and the bindings that they find: what a payload is filled from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, select

from baobab.runtime.json_logic.context import EvaluationContext, RuleFailed, RuleInvalid
from baobab.runtime.json_logic.rule import Rule
from baobab.storage.sql.database import Execute, mark_long
from baobab.tools.substrate import tables
from baobab.tools.substrate.errors import InvalidRule
from baobab.tools.substrate.rows import encode_row
from baobab.tools.substrate.schemas import ConditionMode

MAX_BINDINGS = 100
MAX_ROWS = 5000
"""Rows that a `row_query` looks at, the latest first."""
_PAGE = 250
_ROW_STEPS = 10
_QUERIED = {
    "entities": tables.entities,
    "action_ledger": tables.action_ledger,
    "decisions": tables.decisions,
    "commitments": tables.commitments,
    "learnings": tables.learnings,
    "source_artifacts": tables.source_artifacts,
}
_KINDS = {"decisions": "decision", "commitments": "commitment", "learnings": "learning"}
"""By the tables that have no order of their own in time: the kind of memory that their rows are."""
_UNSEEN = frozenset({"organisation_id", "search_name", "content", "merged_into", "proposed_by"})
"""Columns that are not for rules: of the engine, or too large. `action_id` is read, and not shown to rules either."""


class ConditionNotEvaluated(Exception):
    """The condition cannot be evaluated now. The text says why."""


class SnapshotMissing(ConditionNotEvaluated):
    """There is no snapshot of the day yet."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Holds the values from which the template of one proposal is filled."""

    values: dict[str, Any]
    source: dict[str, str]
    """The row or the snapshot that it was found in."""
    state: str
    """Changes whenever the source does."""
    written_by: str | None = None
    """The action that wrote the row last; after an undo, the one before."""
    from_strangers: bool = False
    """Whether text of strangers may be in it."""


@dataclass(frozen=True, slots=True)
class SnapshotPredicate:
    """Holds or not for the snapshot of the day, whose counts are the one binding."""

    rule: Rule

    async def find_bindings(self, execute: Execute, organisation_id: str, now: datetime) -> list[Binding]:
        """Raises ConditionNotEvaluated."""
        columns = tables.snapshots.c
        query = select(columns.counts).where(
            columns.organisation_id == organisation_id, columns.snapshot_date == now.date()
        )
        counts = (await execute(query)).scalar_one_or_none()
        if counts is None:
            raise SnapshotMissing("there is no snapshot of today yet")
        source = {"snapshot_date": now.date().isoformat()}
        values = {**counts, **source, "now": now.isoformat()}
        try:
            return [Binding(values, source, source["snapshot_date"])] if self.rule.is_met(values) else []
        except RuleFailed as exc:
            raise ConditionNotEvaluated(f"the condition cannot be evaluated: {exc}") from exc


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Finds the rows of a table for which a rule holds; each is a binding."""

    table: str
    rule: Rule
    limit: int

    async def find_bindings(self, execute: Execute, organisation_id: str, now: datetime) -> list[Binding]:
        """Raises ConditionNotEvaluated."""
        bindings: list[Binding] = []
        context = EvaluationContext({})
        today = {"now": now.isoformat(), "today": now.date().isoformat()}
        ids = await self._find_latest(execute, organisation_id)
        try:
            for start in range(0, len(ids), _PAGE):
                for row in await self._read_rows(execute, organisation_id, ids[start : start + _PAGE]):
                    context.spend(_ROW_STEPS)
                    written_by = row.pop("action_id", None)
                    if self.rule.is_met(context.within({**row, **today, "row": row})):
                        source = {"table": self.table, "row_id": row["id"]}
                        values = {"row": row, **today}
                        state = written_by or row["updated_at"]
                        bindings.append(Binding(values, source, state, written_by, row["from_strangers"]))
                        if len(bindings) == self.limit:
                            return bindings
        except RuleFailed as exc:
            raise ConditionNotEvaluated(f"the condition cannot be evaluated: {exc}") from exc
        return bindings

    async def _find_latest(self, execute: Execute, organisation_id: str) -> list[str]:
        """Returns the ids of the rows to look at, in their order. A table with more rows than that is never sorted."""
        columns = _QUERIED[self.table].c
        kind, moment = _KINDS.get(self.table), columns.updated_at
        conditions: list[ColumnElement[bool]] = [columns.organisation_id == organisation_id]
        if self.table == "entities":
            conditions.append(columns.merged_into.is_(None))
        elif self.table == "action_ledger":
            # The column of its times that has an index.
            moment = columns.proposed_at
        elif kind is not None and await self._has_more(execute, organisation_id):
            # Memories are in order by their moments, whatever table they are of.
            columns, moment = tables.memory.c, tables.memory.c.updated_at
            conditions = [columns.organisation_id == organisation_id, columns.kind == kind]
        query = select(columns.id).where(*conditions).order_by(moment.desc(), columns.id.desc()).limit(MAX_ROWS)
        return list((await execute(mark_long(query))).scalars())

    async def _has_more(self, execute: Execute, organisation_id: str) -> bool:
        """Tells whether the table has more than MAX_ROWS rows of the organisation."""
        columns = _QUERIED[self.table].c
        query = select(columns.id).where(columns.organisation_id == organisation_id).order_by(columns.id)
        return (await execute(query.offset(MAX_ROWS).limit(1))).first() is not None

    async def _read_rows(self, execute: Execute, organisation_id: str, ids: Sequence[str]) -> list[dict[str, Any]]:
        table = _QUERIED[self.table]
        shown_columns = [column for column in table.c if column.name not in _UNSEEN]
        query = select(*shown_columns).where(table.c.organisation_id == organisation_id, table.c.id.in_(ids))
        rows = {row["id"]: row for row in (await execute(query)).mappings()}
        return [encode_row(table, dict(rows[row_id])) for row_id in ids if row_id in rows]


Condition = SnapshotPredicate | RowQuery


def parse_condition(mode: ConditionMode, condition: Mapping[str, Any]) -> Condition:
    """Returns the condition of a rule. Raises InvalidRule."""
    if mode == "snapshot_predicate":
        return SnapshotPredicate(_parse_rule(dict(condition), "condition"))
    unknown = sorted(set(condition) - {"table", "where", "limit"})
    if unknown:
        raise _invalid("condition", f"`row_query` does not know `{unknown[0][:100]}`; it has table, where and limit")
    table, limit = condition.get("table"), condition.get("limit", MAX_BINDINGS)
    if not isinstance(table, str) or table not in _QUERIED:
        raise _invalid("condition.table", f"must be one of {', '.join(_QUERIED)}")
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_BINDINGS:
        raise _invalid("condition.limit", f"must be a number from 1 to {MAX_BINDINGS}")
    return RowQuery(table, _parse_rule(condition.get("where", True), "condition.where"), limit)


def _parse_rule(rule: Any, field: str) -> Rule:
    try:
        return Rule(rule)
    except RuleInvalid as exc:
        raise _invalid(".".join((field, *map(str, exc.path)))[:300], str(exc), ": ") from exc


def _invalid(field: str, message: str, between: str = " ") -> InvalidRule:
    return InvalidRule(f"`{field}`{between}{message}.", details={"field": field})
