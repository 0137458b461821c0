"""The ledger: everything that changes rows of a substrate goes through it, in one transaction.

It keeps the row as it was before each change, tells the stream which rows have changed, and keeps the search index.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal

from sqlalchemy import ColumnElement, Table, bindparam, delete, exists, insert, select, update

from baobab.storage.sql.database import Unit
from baobab.tools.core import Services
from baobab.tools.core.auth.tables import apps, organisations
from baobab.tools.substrate import tables
from baobab.tools.substrate.quota import Usage, measure, recount
from baobab.tools.substrate.receipts import FIRST, write_receipts
from baobab.tools.substrate.rows import Row, encode_row
from baobab.tools.substrate.search_index import index_rows
from baobab.tools.substrate.tables import PREFIX
from baobab.tools.substrate.telling import tell_apps

NOTICE = "substrate"
"""The topic of the notice that rows of a substrate have changed; its subject is the organisation."""

Operation = Literal["insert", "update", "delete"]
_TICK = timedelta(microseconds=1)
# Built once, since that takes longer than to run them.
_OURS = tables.settings.c.organisation_id == bindparam("of_organisation")
_principles, _targets = tables.decisions.c, tables.outbox_targets.c
_SETTINGS = select(
    tables.settings,
    # Read along with the rest, so that most proposals need no query for rows that do not exist.
    exists()
    .where(
        _principles.organisation_id == tables.settings.c.organisation_id,
        tables.IS_PRINCIPLE,
        _principles.status == "active",
    )
    .label("has_principles"),
    exists().where(_targets.organisation_id == tables.settings.c.organisation_id).label("has_targets"),
    exists().where(apps.c.substrate_organization_id == tables.settings.c.organisation_id).label("has_apps"),
    select(organisations.c.plan)
    .where(organisations.c.id == tables.settings.c.organisation_id)
    .scalar_subquery()
    .label("plan"),
).where(_OURS)
_ADVANCE = (
    update(tables.settings)
    .where(_OURS)
    .values(
        last_seq=bindparam("to_seq"),
        last_at=bindparam("to_at"),
        used_bytes=bindparam("to_used"),
        uncounted_bytes=bindparam("to_uncounted"),
    )
)
_ADVANCE_WITH_RECEIPTS = _ADVANCE.values(
    last_receipt=bindparam("to_receipt"), last_receipt_digest=bindparam("to_digest")
)
_AT_ONCE = 500
_FEW = 8
"""Rows up to which to write each by itself costs less."""
_KEYS = ("organisation_id", "id")


@dataclass(slots=True)
class RowChange:
    """One row as it was, and as it shall be; None where it is not there."""

    table: Table
    id: str
    before: Row | None
    after: Row | None
    size: int = 0
    """The bytes of the row as it shall be, once it is stamped."""

    def stamp(self, at: datetime) -> int:
        """Sets the moment at which the row is written; its bytes."""
        assert self.after is not None
        self.after["updated_at"] = at
        self.size = measure(encode_row(self.table, self.after))
        return self.size

    @property
    def operation(self) -> Operation:
        if self.before is None:
            return "insert"
        # An entity that is merged into another is gone from the lists.
        is_merge = self.table is tables.entities and self.after is not None
        if self.after is None or (is_merge and self.after["merged_into"] and not self.before["merged_into"]):
            return "delete"
        return "update"


@dataclass(slots=True)
class Ledger:
    """The substrate of one organisation within a transaction that holds its lock. Use `open_ledger`."""

    unit: Unit
    services: Services
    organisation_id: str
    settings: Any
    _last_at: datetime
    _usage: Usage
    _messages: list[Row] = field(default_factory=list)
    _decided_actions: list[Mapping[str, Any]] = field(default_factory=list)

    def stamp(self) -> datetime:
        """Returns the current time, made later than every moment that a row of this substrate has."""
        self._last_at = max(self.services.clock.now(), self._last_at + _TICK)
        return self._last_at

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{self.services.ids.ulid(self.services.clock.time())}"

    def tell(self, table: Table, operation: Operation, row_id: str) -> None:
        """Tells the stream of a change that is made by other means than `apply`."""
        self._tell(table, operation, row_id, None, None)

    def _tell(self, table: Table, operation: Operation, row_id: str, action_id: str | None, before: Row | None) -> None:
        name = table.name.removeprefix(PREFIX)
        self._messages.append(
            {"tbl": name, "op": operation, "row_id": row_id, "action_id": action_id, "before": before}
        )

    def scrub(self, row_ids: Iterable[str], mark: Row) -> None:
        """Replaces the former contents of these rows, in this transaction's change messages, by a mark."""
        forgotten_ids = set(row_ids)
        for message in self._messages:
            if message["row_id"] in forgotten_ids and message["before"] is not None:
                message["before"] = mark

    def note_decided(self, action: Mapping[str, Any]) -> None:
        """Queues a receipt for an action that was executed, was rejected or has failed. action: its current row."""
        self._decided_actions.append(action)

    def require_room(self, more_bytes: int) -> None:
        """Raises MemoryFull if the organisation's plan has no room for so many bytes more."""
        self._usage.require_room(self.settings.plan, more_bytes)

    def count(self, more_bytes: int) -> None:
        """Counts bytes that are written or, if negative, erased by other means than `apply`."""
        self._usage = self._usage.add(more_bytes)

    async def get(self, table: Table, row_id: str) -> Row | None:
        """Returns a row by its id."""
        rows = await self.load(table, [row_id])
        return rows.get(row_id)

    async def load(self, table: Table, ids: Iterable[str]) -> dict[str, Row]:
        """Returns the rows of some ids, by id."""
        sorted_ids = sorted(set(ids))
        rows: dict[str, Row] = {}
        for start in range(0, len(sorted_ids), _AT_ONCE):
            has_id = table.c.id.in_(sorted_ids[start : start + _AT_ONCE])
            result = await self.unit.execute(
                select(table).where(table.c.organisation_id == self.organisation_id, has_id)
            )
            rows |= {row["id"]: dict(row) for row in result.mappings()}
        return rows

    def stamp_rows(self, changes: Sequence[RowChange]) -> int:
        """Gives each row that will be written a moment of its own as `updated_at`, so that a page that ends at a moment
        leaves nothing out. Returns the bytes of all of them; what the rows were before stays, too.
        """
        return sum(change.stamp(self.stamp()) for change in changes if change.after is not None)

    async def apply(self, action_id: str, changes: Sequence[RowChange]) -> None:
        """Makes the changes of an action, which `stamp_rows` has seen, and keeps what undoes them."""
        for table in dict.fromkeys(change.table for change in changes):
            of_table = [change for change in changes if change.table is table]
            await self._write(table, of_table)
        for change in changes:
            before = None if change.before is None else encode_row(change.table, change.before)
            self.count(change.size - measure(before))
            self._tell(change.table, change.operation, change.id, action_id, before)

    async def _write(self, table: Table, changes: Sequence[RowChange]) -> None:
        deleted_ids = [change.id for change in changes if change.after is None]
        for start in range(0, len(deleted_ids), _AT_ONCE):
            await self.unit.execute(delete(table).where(*self._match(table, deleted_ids[start : start + _AT_ONCE])))
        new_rows = [change.after for change in changes if change.before is None and change.after is not None]
        if new_rows:
            await _insert_all(self.unit, table, [{**row, "organisation_id": self.organisation_id} for row in new_rows])
        changed_rows = [change.after for change in changes if change.before is not None and change.after is not None]
        if table is tables.entities and len(changed_rows) > 1:
            # Two entities may exchange their addresses, which are unique at every moment.
            entity_ids = [row["id"] for row in changed_rows]
            for start in range(0, len(entity_ids), _AT_ONCE):
                conditions = self._match(table, entity_ids[start : start + _AT_ONCE])
                await self.unit.execute(update(table).where(*conditions).values(primary_email=None))
        for row in changed_rows:
            values: Row = {f"to_{name}": value for name, value in row.items() if name not in _KEYS}
            values |= {"of_organisation": self.organisation_id, "of_id": row["id"]}
            await self.unit.write(_build_update(table), values)
        await index_rows(self.unit, self.organisation_id, table, [*new_rows, *changed_rows], deleted_ids)

    def _match(self, table: Table, ids: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
        return table.c.organisation_id == self.organisation_id, table.c.id.in_(ids)

    async def close(self) -> None:
        """Writes down what has changed; the end of all work with the ledger in this transaction."""
        if not self._messages:
            return
        now, last = self._last_at, self.settings.last_seq
        self.count(sum(measure(message["before"]) for message in self._messages))
        rows = [
            {**message, "organisation_id": self.organisation_id, "seq": last + number, "created_at": now}
            for number, message in enumerate(self._messages, 1)
        ]
        await _insert_all(self.unit, tables.changes, rows)
        counters = {"of_organisation": self.organisation_id, "to_seq": last + len(rows), "to_at": self._last_at}
        counters |= {"to_used": self._usage.counted_bytes, "to_uncounted": self._usage.uncounted_bytes}
        if self._decided_actions:
            receipt, digest = await write_receipts(self.unit, self.services.vault, self.settings, self._decided_actions)
            counters |= {"to_receipt": receipt, "to_digest": digest}
        await self.unit.write(_ADVANCE_WITH_RECEIPTS if self._decided_actions else _ADVANCE, counters)
        await self.services.notices.publish(self.unit, NOTICE, self.organisation_id)
        if self.settings.has_apps:
            await tell_apps(self.unit, self.services, self.organisation_id, rows)
        self._messages = []


async def _insert_all(unit: Unit, table: Table, rows: Sequence[Row]) -> None:
    if len(rows) > _FEW:
        await unit.execute(_build_insert(table), rows)
        return
    for row in rows:
        await unit.write(_build_insert(table), row)


# Built once for each table, since that takes longer than to run them.
@cache
def _build_insert(table: Table) -> Any:
    return insert(table)


@cache
def _build_update(table: Table) -> Any:
    conditions = (table.c.organisation_id == bindparam("of_organisation"), table.c.id == bindparam("of_id"))
    values: dict[str, Any] = {
        column.name: bindparam(f"to_{column.name}") for column in table.c if column.name not in _KEYS
    }
    return update(table).where(*conditions).values(values)


@asynccontextmanager
async def open_ledger(unit: Unit, services: Services, organisation_id: str) -> AsyncIterator[Ledger]:
    """Yields the ledger of an organisation, whose lock the unit then holds. The first use makes its substrate.

    Only one may be open in a transaction at a time.
    """
    await unit.hold(organisation_id)
    of_organisation = {"of_organisation": organisation_id}
    rows = (await unit.execute(_SETTINGS, of_organisation)).all()
    is_new = not rows
    if is_new:
        await _provision(unit, services, organisation_id)
        rows = (await unit.execute(_SETTINGS, of_organisation)).all()
    settings = rows[0]
    used_bytes = await recount(unit.execute, organisation_id) if is_new else settings.used_bytes
    usage = Usage(used_bytes, settings.uncounted_bytes)
    ledger = Ledger(unit, services, organisation_id, settings, settings.last_at, usage)
    if is_new:
        ledger.tell(tables.entities, "insert", settings.self_entity_id)
    yield ledger
    await ledger.close()


async def peek_ledger(unit: Unit, services: Services, organisation_id: str) -> Ledger | None:
    """Returns the ledger of an organisation for reading only, without its lock; None where it has no substrate yet."""
    rows = (await unit.execute(_SETTINGS, {"of_organisation": organisation_id})).all()
    return Ledger(unit, services, organisation_id, rows[0], rows[0].last_at, Usage(None)) if rows else None


_NOTHING_YET = {"propose_consolidations": True, "last_seq": 0, "last_receipt": 0, "last_receipt_digest": FIRST}


async def _provision(unit: Unit, services: Services, organisation_id: str) -> None:
    """Makes the substrate of an organisation, with the entity that stands for the organisation itself."""
    now, self_id = services.clock.now(), f"ent_{services.ids.ulid(services.clock.time())}"
    row = {"organisation_id": organisation_id, "yolo_mode": False, "self_entity_id": self_id, "provisioned_at": now}
    await unit.execute(insert(tables.settings), {**row, "updated_at": now, **_NOTHING_YET, "last_at": now})
    entity: Row = {"id": self_id, "organisation_id": organisation_id, "type": "self", "display_name": None}
    entity |= {"search_name": "", "canonical_keys": {}, "attrs": {}, "action_id": "", "from_strangers": False}
    await unit.execute(insert(tables.entities), {**entity, "created_at": now, "updated_at": now})
