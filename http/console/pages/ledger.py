"""/console/substrate/actions: the ledger of actions, each with the changes that it made, and undo."""

from collections.abc import Mapping
from typing import Any

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.substrate_page import ask, lead_to, name_proposer, read_substrate
from baobab.http.console.visit import Visit

PATH = "/substrate/actions"
_SHOWN = 50
_SAYING = ("title", "new_title", "display_name", "subject", "purpose", "description", "reason", "id", "action_id")
_LONGEST = 120
_STATUSES = ("proposed", "executed", "rejected", "failed", "reverted")


async def show_ledger(visit: Visit) -> Context:
    values = await read_substrate(visit, PATH)
    status = visit.query.get("status", "")
    filters = {"status": status} if status in _STATUSES else {}
    if visit.query.get("before"):
        filters["before"] = visit.query["before"]
    page = await ask(visit, "substrate_actions", limit=_SHOWN, **filters)
    rows = [{**row, "by": name_proposer(row), "says": _summarise(row["payload"])} for row in page["actions"]]
    return {**values, "rows": rows, "before": page["next_before"], "status": status, "statuses": _STATUSES}


async def show_action(visit: Visit) -> Context:
    values, action_id = await read_substrate(visit, PATH), visit.parts["action"]
    action = await ask(visit, "substrate_action", action_id=action_id)
    changes = (await ask(visit, "substrate_action_changes", action_id=action_id))["changes"]
    conflicts = (await ask(visit, "substrate_policy_conflicts", action_id=action_id))["conflicts"]
    action["by"] = name_proposer(action)
    forbidding = [conflict for conflict in conflicts if conflict["status"] == "open" and conflict["type"] == "forbid"]
    return {
        **values,
        "title": action["capability"],
        "action": action,
        "changes": changes,
        "conflicts": conflicts,
        "is_forbidden": bool(forbidding),
    }


def _summarise(payload: Mapping[str, Any]) -> str | None:
    """Returns one line that says what an action is about, as far as its payload tells."""
    return next((str(payload[name])[:_LONGEST] for name in _SAYING if payload.get(name)), None)


async def approve(visit: Visit) -> str:
    await ask(visit, "substrate_approve", action_id=visit.parts["action"])
    return lead_to(visit, f"{PATH}/{visit.parts['action']}")


async def reject(visit: Visit) -> str:
    reason = visit.form.get("reason", "").strip() or None
    await ask(visit, "substrate_reject", action_id=visit.parts["action"], reason=reason)
    return lead_to(visit, f"{PATH}/{visit.parts['action']}")


async def allow(visit: Visit) -> str:
    """Makes one exception from a principle, so that this action can be approved."""
    conflict_id, reason = visit.form.get("conflict", ""), visit.form.get("reason", "").strip() or None
    decision = {"conflict_id": conflict_id, "resolution": "allow", "reason": reason}
    await ask(visit, "substrate_resolve_policy_conflict", **decision)
    return lead_to(visit, f"{PATH}/{visit.parts['action']}")


async def undo(visit: Visit) -> str:
    payload = {"action_id": visit.parts["action"], "cascade": visit.form.get("cascade") == "1"}
    await ask(visit, "substrate_propose", capability="revert_action", payload=payload)
    return lead_to(visit, f"{PATH}/{visit.parts['action']}")


PAGES = (
    Page(PATH, "Ledger", "ledger.html", show_ledger),
    Page(PATH + "/{action}", "Action", "action.html", show_action),
)
FORMS = (
    Form(PATH + "/{action}/approve", approve),
    Form(PATH + "/{action}/reject", reject),
    Form(PATH + "/{action}/allow", allow),
    Form(PATH + "/{action}/undo", undo),
)
