"""Checks of triggers before they are stored."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from baobab.runtime.agents.spec.bounds import MAX_HELD_DEPTH, is_too_deep
from baobab.runtime.agents.spec.templates import TemplateError, list_names
from baobab.runtime.jobs.cron import Cron, CronInvalid
from baobab.runtime.json_logic.context import RuleInvalid
from baobab.runtime.json_logic.rule import Rule
from baobab.runtime.net.addresses import EgressError
from baobab.runtime.net.egress import Egress
from baobab.tools.core import Call
from baobab.tools.core.app_events import CUSTOM, HOUR, ROWS_CHANGED
from baobab.tools.triggers.errors import TriggerInvalid
from baobab.tools.triggers.jobs import subscriptions_of
from baobab.tools.triggers.schedules import parse_schedule

_MOST_BYTES = 32 * 1024


def check_event(
    call: Call, event: str, table: str | None, prefix: str | None, schedule: str | None, time_zone: str
) -> Cron | None:
    """Returns the parsed schedule of a trigger, if it has one. Raises TriggerInvalid."""
    subscriptions = subscriptions_of(call.services)
    types = subscriptions.list_types(event)
    if not types or event == CUSTOM:
        raise _invalid("event", "is no event of this installation")
    if (ROWS_CHANGED in types) != (table is not None):
        raise _invalid("table", "belongs to events of rows, and they need it")
    kind = subscriptions.events.get(event)
    if (kind is not None and kind.has_prefix) != (prefix is not None):
        raise _invalid("prefix", "belongs to events of keys, and they need it; an empty one stands for all of them")
    if (event == HOUR) != (schedule is not None):
        raise _invalid("schedule", "belongs to the event `schedule`, which needs it")
    if schedule is None:
        return None
    try:
        return parse_schedule(schedule, time_zone)
    except CronInvalid as exc:
        raise _invalid("schedule", str(exc)) from exc


def check_action(
    call: Call,
    filter_: Mapping[str, Any] | None,
    agent: str | None,
    template: Mapping[str, Any] | None,
    webhook: str | None,
) -> None:
    """Checks the filter of a trigger, and what it starts. Raises TriggerInvalid."""
    if (agent is None) == (webhook is None):
        raise _invalid("agent", "or `webhook` says what it starts: one of the two")
    if template is not None and agent is None:
        raise _invalid("input", "is what an agent gets; a webhook gets the event")
    for field, value in (("filter", filter_), ("input", template)):
        if value is not None and (len(to_json(value)) > _MOST_BYTES or is_too_deep(dict(value))):
            raise _invalid(field, f"has at most {_MOST_BYTES} bytes as JSON, nested at most {MAX_HELD_DEPTH} deep")
    if filter_ is not None:
        try:
            Rule(filter_, ("event",))
        except RuleInvalid as exc:
            raise _invalid(".".join(("filter", *map(str, exc.path)))[:300], str(exc)) from exc
    if template is not None:
        _check_template(template)
    if webhook is not None:
        _check_url(call, webhook)


def _check_template(template: Mapping[str, Any]) -> None:
    try:
        names = list(list_names(dict(template)))
    except TemplateError as exc:
        raise _invalid("input", str(exc)) from exc
    for name in names:
        if name[0] != "event":
            raise _invalid("input", f"has {'.'.join(name)[:100]}, but placeholders begin with `event`")


def _check_url(call: Call, url: str) -> None:
    """Raises TriggerInvalid for what can never be sent to. The client checks the host again with each delivery."""
    http_client = call.services.http_client
    assert isinstance(http_client, Egress)
    try:
        http_client.check_url(url)
    except EgressError as exc:
        raise _invalid("webhook", exc.message) from exc


def _invalid(field: str, problem: str) -> TriggerInvalid:
    return TriggerInvalid(f"`{field}` {problem}.".replace("..", "."), details={"field": field})
