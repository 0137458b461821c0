"""Decides about waiting calls for a person in the console: the decision is held, or confirmed and counted at once."""

from typing import Any

from baobab.http.console.call_view import build_view
from baobab.http.console.page import Context
from baobab.http.console.visit import Visit
from baobab.http.console.waiting import load_places, parse_filters
from baobab.tools.approvals.inbox.errors import MustBeConfirmed, TooLateToTakeBack


async def decide(visit: Visit, decision: str, **given: Any) -> str | Context:
    """Makes a decision about the call of the page, and returns the path of the call that is next in the list, or what
    the page shows on which the decision is confirmed.
    """
    approval_id = visit.parts["id"]
    origin, _, query = visit.came_from.partition("?")
    waiting = await load_places(visit, parse_filters(query))
    try:
        answer = await visit.call(
            "approvals_hold",
            approval_id=approval_id,
            decision=decision,
            confirmed="confirmed" in visit.form,
            **given,
        )
    except MustBeConfirmed:
        return await _ask_to_confirm(visit)
    # What counts at once is read on its own page.
    if answer["held"] is None:
        return f"/approvals/{approval_id}?decided=1"
    next_id = waiting.find_next(approval_id)
    if next_id is None:
        return waiting.build_address({})
    # The inbox shows the next call beside its list.
    if not origin:
        return waiting.build_address({"open": next_id})
    return f"/approvals/{next_id}{waiting.build_address({})}"


async def _ask_to_confirm(visit: Visit) -> Context:
    """Names what an approval would do that counts at once, and repeats the form that asked for it."""
    details = await visit.call("approvals_get", approval_id=visit.parts["id"])
    return {
        "title": details["approval"]["title"],
        "approval": details["approval"],
        "preview": (details["preview"] or "").split("\n")[0],
        **build_view(details),
        # What a question's answer writes is not tried before there is an answer.
        "undo": "unknown" if details["then"] else details["approval"]["undo"],
        "then": details["then"],
        "repeated": {name: value for name, value in visit.form.items() if name not in ("csrf", "confirmed")},
        "action": visit.context.path.partition("/console")[2],
    }


async def take_back(visit: Visit) -> str:
    """Takes back what the form names, and leads to the call. Where it is too late, the call's page says what became
    of it.
    """
    held_ids = visit.form.get("held", "").split()[:100]
    try:
        taken_back = (await visit.call("approvals_take_back", held_ids=held_ids))["taken_back"]
    except TooLateToTakeBack as error:
        ids = error.details.get("approval_ids", [])
        return f"/approvals/{ids[0]}?too-late=1" if len(ids) == 1 else "?too-late=1"
    return f"/approvals/{taken_back[0]['approval_id']}?taken-back=1" if len(taken_back) == 1 else "?taken-back=1"
