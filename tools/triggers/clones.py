"""What a clone of an app has of its triggers: what they wait for and start, switched off."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement

from baobab.runtime.net.webhooks import new_secret
from baobab.tools.core.app_clones import Ability, ClonedRows, CloneRule, Cloning, Row, never_clone
from baobab.tools.triggers.actions import seal_context
from baobab.tools.triggers.functions import PREFIX
from baobab.tools.triggers.tables import triggers_table

REASON = "It was copied from a template. Look at what it starts, then resume it."


def _copy_trigger(cloning: Cloning, row: dict[str, Any]) -> dict[str, Any]:
    trigger_id = cloning.derive_id(triggers_table.name, row["id"])
    services, secret = cloning.services, None
    if "webhook" in row["action"]:
        # One that nobody knows: the owner gets another with `rotate_secret`.
        secret = services.vault.seal(new_secret(services.ids).encode(), seal_context(trigger_id))
    values = {
        "id": trigger_id,
        "next_at": None,
        "secret": secret,
        "maker": dict(cloning.maker),
        "status": "paused",
        "reason": REASON,
        "remark": None,
        "failures": 0,
        "since": cloning.started_at,
        "since_change": 0,
        "created_at": cloning.started_at,
        "updated_at": cloning.started_at,
    }
    return {**row, **values}


def _is_own(app_id: str) -> ColumnElement[bool]:
    """Those of functions follow what the functions of the copy say."""
    del app_id
    return triggers_table.c.name.not_like(f"{PREFIX}%")


def _list_abilities(row: Row) -> Iterable[Ability]:
    action, is_on = row["action"], row["status"] == "active"
    starts = f"the agent {action['agent']}" if "agent" in action else f"a webhook to {action.get('webhook')}"
    if row["schedule"] is not None:
        says = f"At the hours `{row['schedule']}` ({row['time_zone']}) it starts {starts}."
        yield Ability("schedule", row["name"], says, is_on, "triggers_resume")
    else:
        yield Ability("trigger", row["name"], f"On {row['event']} it starts {starts}.", is_on, "triggers_resume")


CLONES: tuple[CloneRule, ...] = (
    ClonedRows(
        triggers_table,
        "replaying_config",
        "triggers and schedules, paused; a webhook's secret is new",
        _copy_trigger,
        where=_is_own,
        list_abilities=_list_abilities,
    ),
    *never_clone("history", "trigger_deliveries", "trigger_positions"),
)
