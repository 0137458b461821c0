"""/attention-rules: on a schedule, a rule looks at the substrate and proposes actions."""

from collections.abc import Callable
from typing import Annotated, Any, Unpack, cast

from pydantic import Field
from sqlalchemy import delete, func, insert, select, update

from baobab.runtime.jobs.cron import Cron, CronInvalid
from baobab.tools.core import BaobabError, Call, Guard, Rest, Text
from baobab.tools.core.guard.escaping import escape_text
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.types import Moment
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import CALLERS, DECIDERS, organisation_of, require_person
from baobab.tools.substrate.attention.conditions import (
    Binding,
    ConditionNotEvaluated,
    parse_condition,
)
from baobab.tools.substrate.attention.firing import rule_proposer
from baobab.tools.substrate.attention.schemas import NamedRuleBody, RuleBody, RuleName
from baobab.tools.substrate.attention.templates import Renderer, TemplateTooLarge
from baobab.tools.substrate.capabilities.capability import find_capability
from baobab.tools.substrate.errors import (
    AgentsDoNotDecide,
    InvalidRule,
    RuleNotFound,
    TooManyRules,
    UnknownCapability,
)
from baobab.tools.substrate.ledger import Ledger, open_ledger, peek_ledger
from baobab.tools.substrate.policy import judge
from baobab.tools.substrate.schemas import (
    AttentionRule,
    AttentionRules,
    Deleted,
    Firings,
    RulePreview,
    SampleProposal,
)
from baobab.tools.substrate.toolset import substrate

MOST_RULES = 200
_SAMPLES = 5

_rules, _firings = tables.attention_rules, tables.attention_rule_firings
RuleId = Annotated[
    str,
    Text(31, pattern=r"^rule_[0-9A-Z]{26}$"),
    Field(description="The attention rule.", examples=["rule_01KAVF3T9GQZ8RT3Q0M5W9YB7C"]),
]
_FAULTS = (InvalidRule, UnknownCapability)
_EXAMPLES = {
    "name": "Overdue commitments",
    "trigger_cron": "0 8 * * 1-5",
    "condition_mode": "row_query",
    "condition": {
        "table": "commitments",
        "where": {"and": [{"==": [{"var": "status"}, "confirmed"]}, {"<": [{"var": "due_at"}, {"var": "today"}]}]},
    },
    "action_capability": "send_email_draft",
    "action_payload_template": {
        "to": "ada@example.com",
        "subject": "Overdue: {{row.description}}",
        "body": "It was due on {{row.due_at}}.",
    },
    "max_fires_per_day": 20,
}


@substrate.tool(
    "GET /attention-rules",
    access=CALLERS,
    effect="read",
)
async def substrate_rules(call: Call, enabled: bool | None = None) -> AttentionRules:
    """List the attention rules, the oldest first.

    enabled: true lists only rules that are enabled, false only those that are not.
    """
    query = select(_rules).where(_rules.c.organisation_id == organisation_of(call))
    if enabled is not None:
        query = query.where(_rules.c.enabled == enabled)
    rows = await call.execute(query.order_by(_rules.c.created_at, _rules.c.id))
    return {"rules": [_render(row) for row in rows.mappings()]}


@substrate.tool(
    "POST /attention-rules",
    access=DECIDERS,
    effect="write",
    raises=(*_FAULTS, TooManyRules, AgentsDoNotDecide),
    rest=Rest(status=201, examples=_EXAMPLES),
)
async def substrate_rule_create(
    call: Call,
    **rule: Unpack[NamedRuleBody],
) -> AttentionRule:
    """Make a rule that looks at the substrate on a schedule and proposes an action for what it finds.

    Only a person can call it.
    """
    require_person(call)
    cron = _check(rule)
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        in_organisation = _rules.c.organisation_id == ledger.organisation_id
        if (await call.execute(select(func.count()).where(in_organisation))).scalar_one() >= MOST_RULES:
            raise TooManyRules(details={"most": MOST_RULES})
        at = ledger.stamp()
        row: dict[str, Any] = {
            "id": ledger.new_id("rule"),
            **rule,
            "next_fire_at": cron.find_next(call.now) if rule["enabled"] else None,
            "created_at": at,
            "updated_at": at,
        }
        await call.execute(insert(_rules), {**row, "organisation_id": ledger.organisation_id})
        ledger.tell(_rules, "insert", row["id"])
    call.audit.resource_id = row["id"]
    return _render(row)


@substrate.tool(
    "GET /attention-rules/{rule_id}",
    access=CALLERS,
    effect="read",
    raises=(RuleNotFound,),
)
async def substrate_rule(call: Call, rule_id: RuleId) -> AttentionRule:
    """Read one attention rule."""
    return _render(await _find(call, rule_id))


@substrate.tool(
    "PUT /attention-rules/{rule_id}",
    access=DECIDERS,
    effect="write",
    raises=(RuleNotFound, *_FAULTS, AgentsDoNotDecide),
    rest=Rest(examples=_EXAMPLES),
)
async def substrate_rule_replace(
    call: Call,
    rule_id: RuleId,
    **rule: Unpack[NamedRuleBody],
) -> AttentionRule:
    """Replace an attention rule; what is left out gets its default. Only a person can call it.

    Its next tick is the next one that is due.
    """
    require_person(call)
    cron = _check(rule)
    values = {**rule, "next_fire_at": cron.find_next(call.now) if rule["enabled"] else None}
    return await _change(call, rule_id, lambda _: values)


async def _preview_delete(call: Call, rule_id: RuleId) -> str:
    row = await _find(call, rule_id)
    return f"It would delete the attention rule {escape_text(row['name'])} and the list of its firings."


@substrate.tool(
    "DELETE /attention-rules/{rule_id}",
    access=DECIDERS,
    effect="destructive",
    raises=(RuleNotFound, AgentsDoNotDecide),
    guard=Guard(preview=_preview_delete),
)
async def substrate_rule_delete(call: Call, rule_id: RuleId) -> Deleted:
    """Delete an attention rule and the list of its firings. What it proposed stays. Only a person can call it."""
    require_person(call)
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        await _find(call, rule_id)
        organisation_id = ledger.organisation_id
        await call.execute(
            delete(_firings).where(_firings.c.organisation_id == organisation_id, _firings.c.rule_id == rule_id)
        )
        await call.execute(delete(_rules).where(_rules.c.organisation_id == organisation_id, _rules.c.id == rule_id))
        ledger.tell(_rules, "delete", rule_id)
    call.audit.resource_id = rule_id
    return {"deleted": True}


@substrate.tool(
    "POST /attention-rules/{rule_id}/enable",
    access=DECIDERS,
    effect="write",
    raises=(RuleNotFound, AgentsDoNotDecide),
)
async def substrate_rule_enable(call: Call, rule_id: RuleId) -> AttentionRule:
    """Let an attention rule fire, from its next tick on. Only a person can call it."""
    require_person(call)

    def enable(row: dict[str, Any]) -> dict[str, Any]:
        next_fire_at = row["next_fire_at"] or Cron(row["trigger_cron"]).find_next(call.now)
        return {"enabled": True, "next_fire_at": next_fire_at}

    return await _change(call, rule_id, enable)


@substrate.tool(
    "POST /attention-rules/{rule_id}/disable",
    access=DECIDERS,
    effect="write",
    raises=(RuleNotFound, AgentsDoNotDecide),
)
async def substrate_rule_disable(call: Call, rule_id: RuleId) -> AttentionRule:
    """Keep an attention rule from firing. Only a person can call it."""
    require_person(call)
    return await _change(call, rule_id, lambda _: {"enabled": False, "next_fire_at": None})


@substrate.tool(
    "POST /attention-rules/preview",
    access=CALLERS,
    effect="read",
    raises=_FAULTS,
    taints=True,
    rest=Rest(examples={name: value for name, value in _EXAMPLES.items() if name != "name"}),
)
async def substrate_rule_preview(
    call: Call,
    name: RuleName | None = None,
    **rule: Unpack[RuleBody],
) -> RulePreview:
    """Show what an attention rule would propose now, without storing or proposing anything.

    `name`, `description`, `enabled` and `max_fires_per_day` make no difference here: the body of a rule can be sent as
    it is.

    name: ignored.
    """
    del name
    _check(rule)
    organisation_id = organisation_of(call)
    ledger = await peek_ledger(call.unit, call.services, organisation_id)
    try:
        condition_tree = parse_condition(rule["condition_mode"], rule["condition"])
        bindings = await condition_tree.find_bindings(call.execute, organisation_id, call.now)
    except ConditionNotEvaluated as exc:
        return {"bindings_count": 0, "sample_proposals": [], "skip_reason": str(exc)}
    renderer, samples, fault = Renderer(), [], None
    for binding in bindings[:_SAMPLES] if ledger is not None else []:
        try:
            sample, wrong = await _sample(ledger, renderer, rule, binding)
        except TemplateTooLarge:
            fault = "the rendered payloads are too large"
            break
        samples.append(sample)
        fault = fault or wrong
    if renderer.missing and fault is None:
        fault = f"no value for {', '.join(renderer.missing)}"
    return {"bindings_count": len(bindings), "sample_proposals": samples, "skip_reason": fault}


@substrate.tool(
    "GET /attention-rules/{rule_id}/firings",
    access=CALLERS,
    effect="read",
    raises=(RuleNotFound,),
)
async def substrate_rule_firings(
    call: Call, rule_id: RuleId, limit: Annotated[int, Field(ge=1, le=500)] = 100, before: Moment | None = None
) -> Firings:
    """List the results of a rule's scheduled runs in the last 30 days, latest first.

    limit: how many at most.
    before: only those before this moment; the `next_before` of the previous page.
    """
    await _find(call, rule_id)
    query = select(_firings).where(_firings.c.organisation_id == organisation_of(call), _firings.c.rule_id == rule_id)
    whole_query = query
    if before is not None:
        query = query.where(_firings.c.fired_at < before)
    query = query.order_by(_firings.c.fired_at.desc(), _firings.c.id.desc()).limit(limit + 1)
    rows: Any = (await call.execute(query)).mappings().all()
    await count_list(call, call.execute, whole_query, is_all=before is None and len(rows) <= limit)
    names = ("id", "status", "binding_count", "action_ids", "skip_reason", "fired_at")
    firings: Any = [{name: row[name] for name in names} for row in rows[:limit]]
    return {"firings": firings, "next_before": firings[-1]["fired_at"] if len(rows) > limit else None}


async def _sample(
    ledger: Ledger | None, renderer: Renderer, rule: RuleBody, binding: Binding
) -> tuple[SampleProposal, str | None]:
    """Returns what a rule would propose for one binding, and the reason if it could not propose it."""
    assert ledger is not None
    payload = renderer.render(rule["action_payload_template"], binding.values)
    capability, needs, fault = find_capability(rule["action_capability"]), False, None
    try:
        payload_fields = capability.validate(payload).model_dump(mode="json", exclude_unset=True)
        proposer = rule_proposer("preview", from_strangers=binding.from_strangers)
        needs = not (await judge(ledger, capability, payload_fields, proposer, ledger.services.clock.now())).is_approved
    except BaobabError as error:
        fault = error.message
    return {"binding": binding.values, "rendered_payload": payload, "would_require_approval": needs}, fault


def _check(rule: RuleBody) -> Cron:
    """Returns the schedule of a rule. Raises InvalidRule and UnknownCapability."""
    try:
        cron = Cron(rule["trigger_cron"])
    except CronInvalid as exc:
        raise InvalidRule(f"`trigger_cron` {exc}.", details={"field": "trigger_cron"}) from exc
    parse_condition(rule["condition_mode"], rule["condition"])
    find_capability(rule["action_capability"])
    return cron


async def _change(call: Call, rule_id: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> AttentionRule:
    async with open_ledger(call.unit, call.services, organisation_of(call)) as ledger:
        row = await _find(call, rule_id)
        values = {**change(row), "updated_at": ledger.stamp()}
        of_rule = (_rules.c.organisation_id == ledger.organisation_id, _rules.c.id == rule_id)
        await call.execute(update(_rules).where(*of_rule).values(values))
        ledger.tell(_rules, "update", rule_id)
    call.audit.resource_id = rule_id
    return _render({**row, **values})


async def _find(call: Call, rule_id: str) -> Any:
    of_rule = (_rules.c.organisation_id == organisation_of(call), _rules.c.id == rule_id)
    row = (await call.execute(select(_rules).where(*of_rule))).mappings().first()
    if row is None:
        raise RuleNotFound
    return dict(row)


def _render(row: Any) -> AttentionRule:
    return cast(AttentionRule, {name: row[name] for name in AttentionRule.__annotations__})
