"""/console/approvals/{id}/alike: several calls of one node of an agent, each shown in full, approved with one press."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.pages.approval import list_arguments, pick_shown, show_changes
from baobab.http.console.visit import Visit
from baobab.http.console.waiting import find_alike, find_likeness, load_places, read_filters
from baobab.tools.core.errors import BaobabError

_PATH = "/approvals/{id}/alike"
_MOST = 50
_PREFIX = "call."


async def show_alike(visit: Visit) -> Context:
    """Shows the calls that go together with that of the page; of those that the address names, if it names any."""
    first = await visit.call("approvals_get", approval_id=visit.parts["id"])
    calls = find_alike((await load_places(visit, read_filters({}))).calls, first["approval"])
    named_ids = visit.query.get("ids", "").split(",") if visit.query.get("ids") else None
    named_calls = [call for call in calls if named_ids is None or call["id"] in named_ids]
    shown_calls = [await _read_call(visit, call["id"]) for call in named_calls[:_MOST]]
    return {
        "title": f"{len(shown_calls)} calls alike",
        "approval": first["approval"],
        "calls": [call for call in shown_calls if _may_go_along(call, first["approval"])],
        "left_out": len(named_ids or calls) - len(shown_calls),
        "results": None,
        "held": [],
    }


async def _read_call(visit: Visit, approval_id: str) -> dict[str, Any]:
    details = await visit.call("approvals_get", approval_id=approval_id)
    approval, changes = details["approval"], details["changes"] or []
    arguments_shown = list_arguments(pick_shown(approval, details["arguments"] or {}))
    return {**details, "arguments_shown": arguments_shown, **show_changes(changes), "digest": _digest(details)}


def _digest(details: Mapping[str, Any]) -> str:
    """Returns a digest of what the page shows of a call: only exactly that is approved."""
    approval = details["approval"]
    parts = [approval["id"], approval["title"], approval["effect"], details["arguments"], details["preview"]]
    parts.append(details["changes"])
    return sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _may_go_along(details: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Returns whether a call still waits, is like the first, and neither fails nor deletes anything now."""
    approval = details["approval"]
    is_pending = approval["status"] == "pending" and details["may_decide"] and not details["would_fail"]
    deletes = any(change["after"] is None for change in details["changes"] or ())
    is_alike = find_likeness(approval) is not None and find_likeness(approval) == find_likeness(first)
    return bool(is_pending and is_alike and not deletes)


async def approve_alike(visit: Visit) -> Context:
    """Approves the calls whose boxes are ticked, each if it is still as the page has shown it, and says what became of
    each.
    """
    first = (await visit.call("approvals_get", approval_id=visit.parts["id"]))["approval"]
    digests = {name.removeprefix(_PREFIX): text for name, text in visit.form.items() if name.startswith(_PREFIX)}
    results: list[dict[str, Any]] = []
    for approval_id, digest in list(digests.items())[:_MOST]:
        try:
            details = await _read_call(visit, approval_id)
            result = {"id": approval_id, "title": details["approval"]["title"], "held": None}
            if details["digest"] != digest or not _may_go_along(details, first):
                results.append({**result, "words": "It has changed since it was shown, or was decided: not approved."})
                continue
            answer = await visit.call("approvals_hold", approval_id=approval_id, decision="approve")
            held_id = None if answer["held"] is None else answer["held"]["id"]
            results.append({**result, "held": held_id, "words": "Approved."})
        except BaobabError as error:
            results.append({"id": approval_id, "title": approval_id, "held": None, "words": error.message})
    return {
        "title": "Approved together",
        "approval": first,
        "calls": [],
        "left_out": 0,
        "results": results,
        "held": [result["held"] for result in results if result["held"] is not None],
    }


PAGES = (Page(_PATH, "Alike", "alike.html", show_alike, follows_inbox=True),)
FORMS = (Form("/approvals/{id}/approve-alike", approve_alike, "alike.html"),)
