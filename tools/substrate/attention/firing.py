"""Firing: at its tick, a rule's condition is evaluated, and an action is proposed for each binding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from pydantic_core import to_json
from sqlalchemy import func, insert, select, update

from baobab.runtime.jobs.cron import Cron
from baobab.storage.sql.database import Execute
from baobab.tools.core import BaobabError, Job
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.attention.conditions import (
    Binding,
    ConditionNotEvaluated,
    SnapshotMissing,
    parse_condition,
)
from baobab.tools.substrate.attention.templates import Renderer, TemplateTooLarge
from baobab.tools.substrate.ledger import Ledger, open_ledger
from baobab.tools.substrate.proposals import propose_in
from baobab.tools.substrate.rows import Row

_LATE = timedelta(minutes=10)
"""A tick that is later than this is missed, and not made up for."""
_MINUTE = timedelta(minutes=1)

_rules, _firings = tables.attention_rules, tables.attention_rule_firings


@dataclass(slots=True)
class Outcome:
    """Says what became of a tick, in the columns of its row."""

    status: str = "fired"
    binding_count: int = 0
    action_ids: list[str] = field(default_factory=list)
    skip_reason: str | None = None


def rule_proposer(rule_id: str, *, source: Mapping[str, str] | None = None, from_strangers: bool = False) -> Proposer:
    """Returns a rule as a proposer. It proposes as agents do: what is sent to the outside waits for a person.

    source: the row or the snapshot that led to the proposal.
    """
    name = f"rule:{rule_id}"
    return Proposer("agent", name, rule_id=rule_id, trigger_context=source, from_strangers=from_strangers)


async def fire_rule(job: Job, organisation_id: str, rule_id: str, due: datetime) -> None:
    """Carries out a rule's tick once: a second job for the same tick finds that the rule has a later one."""
    of_rule = (_rules.c.organisation_id == organisation_id, _rules.c.id == rule_id)
    now = job.services.clock.now()
    async with job.database.reading() as connection:
        rule: Any = (await connection.execute(select(_rules).where(*of_rule))).first()
        if rule is None or rule.next_fire_at != due:
            return
        cron = Cron(rule.trigger_cron)
        # If several ticks are due, only the last one counts.
        tick = cron.find_latest(max(due - _MINUTE, now - _LATE), now)
        # The condition is evaluated before the lock is taken, for it may read thousands of rows.
        found_bindings = _MISSED if tick is None else await _find_bindings(connection.execute, rule, now)
    async with (
        job.writing(last=True, lock=organisation_id) as unit,
        open_ledger(unit, job.services, organisation_id) as ledger,
    ):
        moved_on = update(_rules).where(*of_rule, _rules.c.next_fire_at == due)
        if (await unit.execute(moved_on.values(next_fire_at=cron.find_next(now)))).rowcount != 1:
            return
        outcome = (
            found_bindings
            if isinstance(found_bindings, Outcome)
            else await _propose_all(ledger, rule, found_bindings, tick or due)
        )
        await _record(ledger, rule_id, outcome, tick or due)


_MISSED = Outcome("skipped", skip_reason="the tick was missed: the server did not run then")


async def _find_bindings(execute: Execute, rule: Any, now: datetime) -> list[Binding] | Outcome:
    """Returns the bindings of a rule, or the outcome of the tick if its condition cannot be evaluated."""
    try:
        condition = parse_condition(rule.condition_mode, rule.condition)
        return await condition.find_bindings(execute, rule.organisation_id, now)
    except SnapshotMissing as exc:
        return Outcome("skipped", skip_reason=str(exc))
    except ConditionNotEvaluated as exc:
        return Outcome("error", skip_reason=str(exc))


async def _propose_all(ledger: Ledger, rule: Any, bindings: list[Binding], tick: datetime) -> Outcome:
    outcome = Outcome(binding_count=len(bindings))
    room = len(bindings)
    if rule.max_fires_per_day is not None:
        room = max(0, rule.max_fires_per_day - await _count_proposed(ledger, rule.id, tick))
    if not bindings:
        return Outcome("skipped", skip_reason="the condition is not met")
    if not room:
        outcome.status, outcome.skip_reason = "capped", f"the rule may propose {rule.max_fires_per_day} actions a day"
        return outcome
    earlier_proposals = await _load_earlier(ledger, rule.id, bindings)
    renderer, faults, waiting_count, repeat_count, left_out_count = Renderer(), [], 0, 0, 0
    for number, binding in enumerate(bindings):
        if len(outcome.action_ids) == room:
            left_out_count = len(bindings) - number
            break
        try:
            payload = renderer.render(rule.action_payload_template, binding.values)
            name = _name_proposal(rule, binding, payload)
            if name in earlier_proposals.waiting:
                waiting_count += 1
                continue
            if binding.written_by and earlier_proposals.names_by_writer.get(binding.written_by) == name:
                # The row still matches after what the rule has done to it.
                repeat_count += 1
                continue
            proposer = rule_proposer(rule.id, source=binding.source, from_strangers=binding.from_strangers)
            proposal = await propose_in(
                ledger,
                proposer,
                rule.action_capability,
                payload,
                idempotency_key=f"{name}:{binding.state}",
            )
            if proposal.get("replay"):
                repeat_count += 1
            else:
                outcome.action_ids.append(proposal["action_id"])
        except BaobabError as error:
            # A proposal that was refused has changed nothing.
            faults.append(f"{error.code}: {error.message}")
        except TemplateTooLarge:
            faults.append("the rendered payloads are too large")
            break
    if not outcome.action_ids:
        outcome.status = "error" if faults else "skipped"
    reasons = [
        (len(faults), f"not proposed: {faults[0]}" if faults else ""),
        (left_out_count, f"not proposed: at most {rule.max_fires_per_day} a day"),
        (waiting_count, "not proposed again: the same proposal waits for a decision"),
        (repeat_count, "not proposed again: the same was proposed before, and nothing has changed since"),
    ]
    explanations = [f"{count} of {len(bindings)} {reason}" for count, reason in reasons if count]
    outcome.skip_reason = "; ".join(explanations) or None
    return outcome


@dataclass(frozen=True, slots=True)
class _Earlier:
    """Holds what a rule has proposed before, by the names of `_name_proposal`."""

    waiting: set[str]
    names_by_writer: Mapping[str, str]
    """By the action, for those that wrote rows last."""


async def _load_earlier(ledger: Ledger, rule_id: str, bindings: Sequence[Binding]) -> _Earlier:
    actions, columns = tables.action_ledger, tables.action_ledger.c
    is_waiting = (
        columns.organisation_id == ledger.organisation_id,
        columns.status == "proposed",
        tables.IS_NOT_EXECUTED,
    )
    query = select(columns.idempotency_key).where(*is_waiting, columns.source_rule_id == rule_id)
    waiting = {_name_of(key) for key in (await ledger.unit.execute(query)).scalars() if key}
    writers = await ledger.load(actions, {each.written_by for each in bindings if each.written_by})
    return _Earlier(
        waiting,
        {
            each["id"]: _name_of(each["idempotency_key"])
            for each in writers.values()
            if each["source_rule_id"] == rule_id and each["idempotency_key"]
        },
    )


def _name_proposal(rule: Any, binding: Binding, payload: Mapping[str, Any]) -> str:
    """Returns a name for what a rule proposes about a row or about snapshots. Together with the state of the source, it
    is the proposal's idempotency key.
    """
    about = [rule.action_capability, payload, binding.source.get("row_id")]
    return f"rule:{rule.id}:{sha256(to_json(about)).hexdigest()}"


def _name_of(key: str) -> str:
    return ":".join(key.split(":")[:3])


async def _count_proposed(ledger: Ledger, rule_id: str, tick: datetime) -> int:
    """Counts the actions that a rule has proposed on the day of a tick."""
    query = select(func.coalesce(func.sum(_firings.c.action_count), 0)).where(
        _firings.c.organisation_id == ledger.organisation_id,
        _firings.c.rule_id == rule_id,
        _firings.c.fired_at >= tick.replace(hour=0, minute=0, second=0, microsecond=0),
    )
    return int((await ledger.unit.execute(query)).scalar_one())


async def _record(ledger: Ledger, rule_id: str, outcome: Outcome, tick: datetime) -> None:
    at, firing_id = ledger.stamp(), ledger.new_id("fire")
    row: Row = {"organisation_id": ledger.organisation_id, "id": firing_id, "rule_id": rule_id}
    row |= {"status": outcome.status, "binding_count": outcome.binding_count, "action_ids": outcome.action_ids}
    row |= {
        "fired_at": tick,
        "action_count": len(outcome.action_ids),
        "skip_reason": (outcome.skip_reason or "")[:1000] or None,
    }
    await ledger.unit.execute(insert(_firings), {**row, "created_at": at, "updated_at": at})
    ledger.tell(_firings, "insert", firing_id)
