"""Firing: at its tick, a rule's condition is evaluated, and an action is proposed for each binding."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, insert, select, update

from baobab.runtime.cron import Cron
from baobab.storage.database import Execute
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.job import Job
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
    """What became of a tick; the columns of its row."""

    status: str = "fired"
    binding_count: int = 0
    action_ids: list[str] = field(default_factory=list)
    skip_reason: str | None = None


def rule_proposer(rule_id: str, *, from_strangers: bool = False) -> Proposer:
    """Rules propose as agents do: what is sent to the outside waits for a person."""
    return Proposer("agent", f"rule:{rule_id}", rule_id=rule_id, from_strangers=from_strangers)


async def fire_rule(job: Job, organisation_id: str, rule_id: str, due: datetime) -> None:
    """Makes the tick of a rule that was due, once: whoever comes later finds that the rule has moved on."""
    which = (_rules.c.organisation_id == organisation_id, _rules.c.id == rule_id)
    now = job.services.clock.now()
    async with job.database.reading() as connection:
        rule: Any = (await connection.execute(select(_rules).where(*which))).first()
        if rule is None or rule.next_fire_at != due:
            return
        cron = Cron(rule.trigger_cron)
        # Of several ticks that are due only the last counts.
        tick = cron.find_latest(max(due - _MINUTE, now - _LATE), now)
        # The condition is evaluated before the lock is taken, for it may read thousands of rows.
        found = _MISSED if tick is None else await _find_bindings(connection.execute, rule, now)
    async with (
        job.writing(last=True, lock=organisation_id) as unit,
        open_ledger(unit, job.services, organisation_id) as ledger,
    ):
        moved_on = update(_rules).where(*which, _rules.c.next_fire_at == due)
        if (await unit.execute(moved_on.values(next_fire_at=cron.find_next(now)))).rowcount != 1:
            return
        outcome = found if isinstance(found, Outcome) else await _propose_all(ledger, rule, found, tick or due)
        await _record(ledger, rule_id, outcome, tick or due)


_MISSED = Outcome("skipped", skip_reason="the tick was missed: the server did not run then")


async def _find_bindings(execute: Execute, rule: Any, now: datetime) -> list[Binding] | Outcome:
    """The bindings of a rule, or what becomes of its tick without them."""
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
    renderer, faults = Renderer(), []
    for binding in bindings[:room]:
        try:
            payload = renderer.render(rule.action_payload_template, binding.values)
            proposer = rule_proposer(rule.id, from_strangers=binding.from_strangers)
            proposal = await propose_in(ledger, proposer, rule.action_capability, payload)
            outcome.action_ids.append(proposal["action_id"])
        except BaobabError as error:
            # What cannot be proposed has changed nothing.
            faults.append(f"{error.code}: {error.message}")
        except TemplateTooLarge:
            faults.append("the rendered payloads are too large")
            break
    if faults and not outcome.action_ids:
        outcome.status = "error"
    if faults:
        outcome.skip_reason = f"{len(faults)} of {len(bindings)} not proposed: {faults[0]}"
    elif room < len(bindings):
        outcome.skip_reason = f"{len(bindings) - room} not proposed: at most {rule.max_fires_per_day} a day"
    return outcome


async def _count_proposed(ledger: Ledger, rule_id: str, tick: datetime) -> int:
    """How many actions a rule has proposed on the day of a tick."""
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
