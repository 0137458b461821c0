"""Forgetting: rows go, and with them all that is kept of them: images, payloads, deliveries, vectors, waiting calls."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json
from sqlalchemy import String, and_, cast, func, or_, select, update

from baobab.tools.substrate import tables
from baobab.tools.substrate.ledger import Ledger
from baobab.tools.substrate.meaning.index import FORGOTTEN
from baobab.tools.substrate.quota import measure, measure_action
from baobab.tools.substrate.search_index import ask_to_erase_words

ERASED = {"erased": True}
"""What stands where something was forgotten."""
_REASON = "What it is about was forgotten."
_AT_ONCE = 400
# An id may stand behind an escaped character, such as the end of a line.
_ID = re.compile(r"(?:(?<![0-9A-Za-z_-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4}))(?:ent|dec|com|lrn|art)_[0-9A-Za-z_-]+")
_SAY_NOTHING = frozenset(("revert_action", "bulk_revert_actions", "forget"))
"""The capabilities whose payloads and results only name what they were about."""
_NAMING = ("payload", "result", "trigger_context")
"""What of an action may name a row. A rule's proposal names in its `trigger_context` the row whose text it repeats."""
_actions, _changes, _outbox = tables.action_ledger.c, tables.changes.c, tables.outbox.c


@dataclass(frozen=True, slots=True)
class Traces:
    """Lists what the ledger keeps of some rows. actions: those that changed them, and those that name them and were
    never executed.
    """

    ids: list[str]
    actions: list[str]
    changes: list[int]
    deliveries: list[str]
    vectors: int
    calls: list[str]
    """Calls that wait for approval and name the rows, and approved ones that proposed one of the actions."""


async def find_traces(ledger: Ledger, ids: Sequence[str]) -> Traces:
    """Returns what the ledger keeps of some rows: nothing for rows that never existed."""
    in_organisation = _changes.organisation_id == ledger.organisation_id
    # The others keep nothing of the rows.
    of_rows = (in_organisation, _changes.row_id.in_(ids), tables.CAN_BE_UNDONE)
    query: Any = select(_changes.seq, _changes.action_id).where(*of_rows)
    change_rows = (await ledger.unit.execute(query)).all()
    action_ids = {row.action_id for row in change_rows}
    texts = [cast(_actions[name], String) for name in _NAMING]
    is_naming = or_(*(text.contains(each, autoescape=True) for each in ids for text in texts))
    is_undone = and_(_actions.status.in_(("proposed", "rejected", "failed")), tables.IS_NOT_EXECUTED)
    query = select(_actions.id).where(_actions.organisation_id == ledger.organisation_id, is_undone, is_naming)
    naming = set((await ledger.unit.execute(query)).scalars())
    actions_by_id, is_named = await ledger.load(tables.action_ledger, action_ids | naming), _build_test(ids)
    # The database finds parts of names, too.
    texts_by_action = {each: to_json([actions_by_id[each][name] for name in _NAMING]).decode() for each in naming}
    action_ids |= {each for each, text in texts_by_action.items() if is_named(text)}
    of_actions = sorted(each for each in action_ids if actions_by_id[each]["capability"] not in _SAY_NOTHING)
    deliveries: list[str] = []
    for start in range(0, len(of_actions), _AT_ONCE):
        some_actions = of_actions[start : start + _AT_ONCE]
        query = select(_outbox.id).where(
            _outbox.organisation_id == ledger.organisation_id, _outbox.action_id.in_(some_actions)
        )
        deliveries += (await ledger.unit.execute(query)).scalars()
    vectors = tables.embeddings.c
    query = select(func.count()).where(vectors.organisation_id == ledger.organisation_id, vectors.id.in_(ids))
    vector_count = (await ledger.unit.execute(query)).scalar_one()
    calls = set(await ledger.services.approvals.find_naming(ledger.unit.execute, ledger.organisation_id, is_named))
    calls |= {actions_by_id[each]["approval_id"] for each in of_actions} - {None}
    return Traces(list(ids), of_actions, [row.seq for row in change_rows], deliveries, vector_count, sorted(calls))


def _build_test(ids: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that tells whether a text of JSON names one of some rows, by its whole id."""
    wanted_ids = frozenset(ids)

    def is_named(text: str) -> bool:
        return any(found_id in wanted_ids or found_id.rstrip("-_") in wanted_ids for found_id in _ID.findall(text))

    return is_named


async def erase_traces(ledger: Ledger, traces: Traces) -> None:
    """Forgets what is kept of rows that were deleted in this transaction. It can never be undone."""
    unit, now = ledger.unit, ledger.services.clock.now()
    ledger.scrub(traces.ids, ERASED)
    for start in range(0, len(traces.changes), _AT_ONCE):
        of_changes = (
            _changes.organisation_id == ledger.organisation_id,
            _changes.seq.in_(traces.changes[start : start + _AT_ONCE]),
            _changes.before.is_not(None),
        )
        images = (await unit.execute(select(_changes.before).where(*of_changes))).scalars().all()
        ledger.count(sum(measure(ERASED) - measure(image) for image in images))
        await unit.execute(update(tables.changes).where(*of_changes).values(before=ERASED))
    erased_values: dict[str, Any] = {"payload": ERASED, "links": None, "trigger_context": None, "reversible": False}
    for start in range(0, len(traces.actions), _AT_ONCE):
        some_actions = traces.actions[start : start + _AT_ONCE]
        in_organisation = _actions.organisation_id == ledger.organisation_id
        for row in (await ledger.load(tables.action_ledger, some_actions)).values():
            erased_row = {**row, **erased_values, "result": None if row["result"] is None else ERASED}
            ledger.count(measure_action(erased_row) - measure_action(row))
        statement = update(tables.action_ledger).where(in_organisation, _actions.id.in_(some_actions))
        await unit.execute(statement.values(erased_values))
        await unit.execute(statement.where(_actions.result.is_not(None)).values(result=ERASED))
        waits = {"status": "rejected", "reject_reason": _REASON, "decided_at": now}
        await unit.execute(statement.where(_actions.status == "proposed").values(waits))
        await unit.execute(statement.where(_actions.reject_reason.is_not(None)).values(reject_reason=_REASON))
        conflicts = tables.policy_conflicts
        of_some = (conflicts.c.organisation_id == ledger.organisation_id, conflicts.c.action_id.in_(some_actions))
        await unit.execute(update(conflicts).where(*of_some, conflicts.c.reason.is_not(None)).values(reason=_REASON))
        receipts = tables.receipts.c
        in_organisation = receipts.organisation_id == ledger.organisation_id
        await unit.execute(
            update(tables.receipts).where(in_organisation, receipts.action_id.in_(some_actions)).values(salt=None)
        )
        in_organisation = _outbox.organisation_id == ledger.organisation_id
        pending = update(tables.outbox).where(
            in_organisation, _outbox.action_id.in_(some_actions), _outbox.state == "pending"
        )
        cancellation = {"state": "cancelled", "round": _outbox.round + 1, "next_attempt_at": None, "updated_at": now}
        await unit.execute(pending.values(cancellation))
    await ledger.services.approvals.erase_calls(unit, ledger.organisation_id, traces.calls)
    await ask_to_erase_words(unit, ledger.services, ledger.organisation_id)
    await ledger.services.notices.publish(unit, FORGOTTEN, ledger.organisation_id)
