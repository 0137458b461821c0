"""Undo: the rows of an action become what they were before it, if no later action builds on it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import or_, select

from baobab.tools.core import BaobabError
from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.capability import ActionContext, Plan, capability
from baobab.tools.substrate.capabilities.schemas import BulkRevertActions, RevertAction
from baobab.tools.substrate.errors import (
    ActionNotFound,
    AlreadyReverted,
    BuiltUpon,
    EmailTaken,
    NotReversible,
    WrongStatus,
)
from baobab.tools.substrate.ledger import Ledger, RowChange
from baobab.tools.substrate.rows import Row, decode_row
from baobab.tools.substrate.tables import PREFIX

UNDOING = frozenset(("revert_action", "bulk_revert_actions"))
_AT_ONCE = 500
_TABLES = {
    table.name.removeprefix(PREFIX): table
    for table in (
        tables.entities,
        tables.decisions,
        tables.commitments,
        tables.learnings,
        tables.source_artifacts,
    )
}
_REFERRING = (tables.decisions, tables.commitments, tables.learnings)
"""The tables whose rows name a source artifact."""
Place = tuple[str, str]
"""A row: its table's short name and its id."""


@capability()
async def revert_action(ledger: Ledger, payload: RevertAction, action: ActionContext) -> Plan:
    """Undo an action that was done. `cascade` undoes the later actions that build on it, too."""
    del action
    undo = await _Undo.load(ledger, [payload.action_id], cascade=payload.cascade)
    undo.revert(payload.action_id)
    plan = await undo.plan({"reverted_action_id": payload.action_id, "reverted": undo.reverted_ids})
    if len(undo.reverted_ids) > 1:
        # The same as for bulk_revert_actions: an agent must not undo a whole history with one call.
        plan.agents_wait = "an agent undoes more than one action"
    elif undo.was_approved(payload.action_id):
        plan.agents_wait = "an agent undoes what a person has approved"
    return plan


@capability(needs_approval=True)
async def bulk_revert_actions(ledger: Ledger, payload: BulkRevertActions, action: ActionContext) -> Plan:
    """Undo up to 200 actions, and with `cascade` those that build on them. What cannot be undone stays and is listed
    in `failed`.
    """
    del action
    action_ids = list(dict.fromkeys(payload.action_ids))
    undo = await _Undo.load(ledger, action_ids, cascade=payload.cascade)
    failures: list[dict[str, Any]] = []
    for action_id in undo.sort_latest_first(action_ids):
        if action_id in undo.reverted_ids:
            continue
        try:
            undo.revert(action_id)
        except BaobabError as error:
            failures.append({"action_id": action_id, "error": error.code})
    return await undo.plan({"reverted": undo.reverted_ids, "failed": failures})


class _Undo:
    """Holds the actions to be undone, those that build on them, and their rows as they would be after the undo."""

    def __init__(self, ledger: Ledger, *, cascade: bool) -> None:
        self._ledger = ledger
        self._cascade = cascade
        self._actions: dict[str, Row] = {}
        self._changes: dict[str, list[Any]] = defaultdict(list)
        self._later: dict[str, set[str]] = defaultdict(set)
        """By action, the later ones that build on it."""
        self._rows: dict[Place, Row | None] = {}
        self._original: dict[Place, Row | None] = {}
        self._holders: dict[str, str] = {}
        """Who has an e-mail address: the entity's id, by address."""
        self.reverted_ids: list[str] = []
        self._undone_ids: set[str] = set()

    @classmethod
    async def load(cls, ledger: Ledger, action_ids: list[str], *, cascade: bool) -> "_Undo":
        """Reads the actions, those that build on them, and the rows of all."""
        undo = cls(ledger, cascade=cascade)
        level = set(action_ids)
        while level:
            undo._actions |= await _load_actions(ledger, level)
            changes = await _load_changes(ledger, tables.changes.c.action_id, level, with_images=True)
            for change in changes:
                undo._changes[change.action_id].append(change)
            level = await undo._find_later(changes) - undo._actions.keys()
        await undo._load_rows()
        return undo

    def sort_latest_first(self, action_ids: Iterable[str]) -> list[str]:
        known_ids = [each for each in action_ids if each in self._actions]
        unknown_ids = [each for each in action_ids if each not in self._actions]
        return unknown_ids + sorted(known_ids, key=lambda each: _moment(self._actions[each]), reverse=True)

    def revert(self, action_id: str) -> None:
        """Undoes an action, or raises and undoes nothing."""
        self._require_executed(action_id)
        closure = self._collect_later(action_id)
        other_ids = [each for each in closure if each != action_id]
        if other_ids and not self._cascade:
            raise BuiltUpon(details={"action_ids": other_ids[:100]})
        for each in closure:
            if not self._actions[each]["reversible"]:
                if each == action_id:
                    raise NotReversible(details={"action_id": action_id})
                raise BuiltUpon(
                    f"A later action builds on this one, and {self._actions[each]['capability']} cannot be undone.",
                    remediation="Correct the rows with a new action instead; details.action_ids names the later one.",
                    details={"action_id": action_id, "action_ids": [each]},
                )
        state_before = dict(self._rows), dict(self._holders)
        try:
            for each in closure:
                self._restore(each)
        except BaobabError:
            self._rows, self._holders = state_before
            raise
        self.reverted_ids += closure
        self._undone_ids |= set(closure)

    def was_approved(self, action_id: str) -> bool:
        return self._actions[action_id]["approved_by_kind"] is not None

    async def plan(self, result: dict[str, Any]) -> Plan:
        """Returns a plan of the net changes of all that was undone."""
        await self._clear_references()
        changes = [
            RowChange(_TABLES[name], row_id, before, after)
            for (name, row_id), before in self._original.items()
            if (after := self._rows[name, row_id]) != before
        ]
        return Plan(result, changes, reverted_ids=self.reverted_ids)

    def _require_executed(self, action_id: str) -> None:
        row = self._actions.get(action_id)
        if row is None:
            raise ActionNotFound
        if row["status"] == "reverted" or action_id in self._undone_ids:
            raise AlreadyReverted(details={"reverted_by_action_id": row["reverted_by_action_id"]})
        if row["status"] != "executed":
            raise WrongStatus(f"The action is {row['status']}.", details={"status": row["status"]})
        if not row["reversible"]:
            raise NotReversible(details={"action_id": action_id})

    def _collect_later(self, action_id: str) -> list[str]:
        """Returns an action and all that build on it and are not undone yet, the latest first."""
        later_ids, waiting = {action_id}, [action_id]
        while waiting:
            new_ids = self._later[waiting.pop()] - later_ids - self._undone_ids
            later_ids |= new_ids
            waiting += new_ids
        return self.sort_latest_first(later_ids)

    async def _find_later(self, reverted_changes: list[Any]) -> set[str]:
        """Records and returns the dependants of these changes: actions that later changed the same row, or that refer
        to a row created here. The dependants of one row form a chain.
        """
        first = {(change.tbl, change.row_id, change.action_id): change.seq for change in reversed(reverted_changes)}
        changes_of_rows: dict[Place, list[tuple[str, int]]] = defaultdict(list)
        for (name, row_id, action_id), seq in first.items():
            changes_of_rows[name, row_id].append((action_id, seq))
        makers = {change.row_id: change.action_id for change in reverted_changes if change.op == "insert"}
        naming = await self._find_naming(makers)
        changes = await _load_changes(
            self._ledger, tables.changes.c.row_id, {change.row_id for change in reverted_changes}
        )
        standing = await self._find_standing({change.action_id for change in changes} | {later for _, later in naming})
        steps: dict[Place, list[Any]] = defaultdict(list)
        for change in changes:
            if change.action_id in standing:
                steps[change.tbl, change.row_id].append(change)
        following: set[str] = set()
        for row_id, later in naming:
            # An entity may get an id that a commitment has named before: that one does not build on it.
            if later in standing and _moment(standing[later]) > _moment(self._actions[makers[row_id]]):
                self._later[makers[row_id]].add(later)
                following.add(later)
        for place, actions in changes_of_rows.items():
            following |= self._chain(steps[place], actions)
        return following

    def _chain(self, steps: list[Any], actions: list[tuple[str, int]]) -> set[str]:
        """Notes for each of some actions which one is next to change a row. steps: all its changes that stand."""
        places = [step.seq for step in steps]
        for action_id, seq in actions:
            rest = steps[bisect_right(places, seq) :]
            following = next((step.action_id for step in rest if step.action_id != action_id), None)
            if following is not None:
                self._later[action_id].add(following)
        earliest = min(seq for _, seq in actions)
        return {step.action_id for step in steps[bisect_right(places, earliest) :]}

    async def _find_standing(self, action_ids: set[str]) -> dict[str, Row]:
        """Returns those of some actions that are executed and not undone, by id. An undo itself does not count."""
        actions = await _load_actions(self._ledger, action_ids)
        return {
            action_id: row
            for action_id, row in actions.items()
            if row["status"] == "executed" and row["capability"] not in UNDOING
        }

    async def _find_naming(self, makers: dict[str, str]) -> list[tuple[str, str]]:
        """Returns pairs of a created entity and an action that refers to it: a commitment, or a merge into it, also one
        that has been reverted. The action may be older than the entity.
        """
        made_entities = sorted(each for each in makers if each.startswith("ent_"))
        naming_actions: list[tuple[str, str]] = []
        naming: dict[str, list[str]] = defaultdict(list)
        commitments, actions = tables.commitments.c, tables.action_ledger.c
        earliest = min((_moment(self._actions[makers[each]]) for each in made_entities), default=None)
        winner = actions.result["entity_id"].as_string()
        for start in range(0, len(made_entities), _AT_ONCE):
            some_entities = made_entities[start : start + _AT_ONCE]
            query = select(commitments.from_entity, commitments.to_entity, commitments.id).where(
                commitments.organisation_id == self._ledger.organisation_id,
                or_(commitments.from_entity.in_(some_entities), commitments.to_entity.in_(some_entities)),
            )
            for row in await self._ledger.unit.execute(query):
                naming[row.id] += [each for each in (row.from_entity, row.to_entity) if each in makers]
            merges = select(winner.label("winner"), actions.id).where(
                actions.organisation_id == self._ledger.organisation_id,
                actions.capability == "merge_entities",
                actions.executed_at > earliest,
                winner.in_(some_entities),
            )
            naming_actions += [(row.winner, row.id) for row in await self._ledger.unit.execute(merges)]
        for change in await _load_changes(self._ledger, tables.changes.c.row_id, set(naming)):
            if change.op == "insert":
                naming_actions += [(each, change.action_id) for each in naming[change.row_id]]
        return naming_actions

    async def _load_rows(self) -> None:
        places: dict[str, set[str]] = defaultdict(set)
        emails = set()
        for changes in self._changes.values():
            for change in changes:
                places[change.tbl].add(change.row_id)
                if change.tbl == "entities" and change.before:
                    emails.add(change.before.get("primary_email"))
        for name, ids in places.items():
            rows = await self._ledger.load(_TABLES[name], ids)
            self._rows |= {(name, row_id): rows.get(row_id) for row_id in ids}
        self._original = dict(self._rows)
        addresses, entities = sorted(emails - {None}), tables.entities.c
        for start in range(0, len(addresses), _AT_ONCE):
            query = select(entities.primary_email, entities.id).where(
                entities.organisation_id == self._ledger.organisation_id,
                entities.merged_into.is_(None),
                entities.primary_email.in_(addresses[start : start + _AT_ONCE]),
            )
            self._holders |= {row.primary_email: row.id for row in await self._ledger.unit.execute(query)}

    def _restore(self, action_id: str) -> None:
        """Gives the rows of an action back what they were."""
        for change in sorted(self._changes[action_id], key=lambda change: change.seq, reverse=True):
            place = (change.tbl, change.row_id)
            row = self._rows[place]
            if row is None and change.op != "delete":
                raise BuiltUpon(details={"action_ids": []})
            if row is not None and row["action_id"] != action_id:
                raise BuiltUpon(details={"action_ids": [row["action_id"]]})
            before: Row | None = None
            if change.before is not None:
                before = decode_row(_TABLES[change.tbl], change.before)
            if before is None and row is not None and change.tbl == "decisions":
                # The decision stays in memory, as reversed.
                before = {**row, "status": "reversed"}
            if row is not None and change.tbl == "entities":
                self._exchange_email(change.row_id, row, before)
            self._rows[place] = before

    def _exchange_email(self, entity_id: str, row: Row, before: Row | None) -> None:
        if row["primary_email"] is not None and self._holders.get(row["primary_email"]) == entity_id:
            del self._holders[row["primary_email"]]
        email = None if before is None else before["primary_email"]
        if email is not None:
            if self._holders.get(email, entity_id) != entity_id:
                raise EmailTaken(details={"entity_id": self._holders[email]})
            self._holders[email] = entity_id

    async def _clear_references(self) -> None:
        """Removes references to source artifacts that are gone."""
        deleted_artifacts = {
            row_id for (name, row_id), row in self._rows.items() if name == "source_artifacts" and row is None
        }
        for table in _REFERRING if deleted_artifacts else ():
            name, artifact_ids = table.name.removeprefix(PREFIX), sorted(deleted_artifacts)
            for start in range(0, len(artifact_ids), _AT_ONCE):
                query = select(table).where(
                    table.c.organisation_id == self._ledger.organisation_id,
                    table.c.source_artifact_id.in_(artifact_ids[start : start + _AT_ONCE]),
                )
                for referring_row in (await self._ledger.unit.execute(query)).mappings():
                    self._original.setdefault((name, referring_row["id"]), dict(referring_row))
                    self._rows.setdefault((name, referring_row["id"]), dict(referring_row))
        named_artifacts = {
            row["source_artifact_id"] for row in self._rows.values() if row and row.get("source_artifact_id")
        }
        artifacts = await self._ledger.load(tables.source_artifacts, named_artifacts)
        for place, row in self._rows.items():
            artifact_id = row.get("source_artifact_id") if row else None
            if row and artifact_id is not None and (artifact_id in deleted_artifacts or artifact_id not in artifacts):
                self._rows[place] = {**row, "source_artifact_id": None}


def _moment(action: Row) -> Any:
    """Returns the moment of an action, by which actions are ordered."""
    return action["executed_at"] or action["proposed_at"]


async def _load_actions(ledger: Ledger, action_ids: set[str]) -> dict[str, Row]:
    """Returns what an undo needs to know of some actions, by id: not what they said, which may be large."""
    actions, wanted_ids = tables.action_ledger.c, sorted(action_ids)
    names = ("id", "capability", "status", "reversible", "reverted_by_action_id", "approved_by_kind")
    columns = [actions[name] for name in (*names, "proposed_at", "executed_at")]
    rows: dict[str, Row] = {}
    for start in range(0, len(wanted_ids), _AT_ONCE):
        query = select(*columns).where(
            actions.organisation_id == ledger.organisation_id, actions.id.in_(wanted_ids[start : start + _AT_ONCE])
        )
        rows |= {row["id"]: dict(row) for row in (await ledger.unit.execute(query)).mappings()}
    return rows


async def _load_changes(ledger: Ledger, column: Any, values: set[str], *, with_images: bool = False) -> list[Any]:
    """Returns the changes of some actions or rows that can be undone, in their order.

    with_images: whether to read what the rows were before, which may be large.
    """
    sorted_values, changes = sorted(values), tables.changes.c
    columns = [changes.seq, changes.tbl, changes.op, changes.row_id, changes.action_id]
    found_changes: list[Any] = []
    for start in range(0, len(sorted_values), _AT_ONCE):
        query = select(*columns, *([changes.before] if with_images else [])).where(
            changes.organisation_id == ledger.organisation_id,
            column.in_(sorted_values[start : start + _AT_ONCE]),
            tables.CAN_BE_UNDONE,
        )
        found_changes += (await ledger.unit.execute(query)).all()
    return sorted(found_changes, key=lambda change: change.seq)
