"""/console: what waits for this person, and what was decided last."""

from typing import Any

from baobab.http.console.page import Context, Page
from baobab.http.console.rendering import say_duration
from baobab.http.console.visit import Visit

_SHOWN, _DECIDED = 50, 10


async def show_inbox(visit: Visit) -> Context:
    waiting: list[dict[str, Any]] = []
    decided: list[dict[str, Any]] = []
    following: dict[str, str] = {}
    wanted = visit.query.get("of")
    own = await visit.list_organisations()
    for organisation in own:
        if wanted is not None and organisation["id"] != wanted:
            continue
        asked = {"organisation_id": organisation["id"], "status": "pending", "limit": _SHOWN}
        if wanted is not None and "after" in visit.query:
            asked["cursor"] = visit.query["after"]
        found = await visit.call("approvals_list", **asked)
        waiting += [_describe(visit, row, organisation) for row in found["approvals"]]
        if found["next_cursor"]:
            following[organisation["id"]] = found["next_cursor"]
        if "after" not in visit.query:
            lately = await visit.call("approvals_list", organisation["id"], limit=_DECIDED)
            decided += [row for row in lately["approvals"] if row["status"] != "pending"]
    decided.sort(key=lambda row: row["decided_at"] or row["expires_at"], reverse=True)
    return {
        "title": "Inbox",
        "waiting": sorted(waiting, key=lambda row: row["expires_at"]),
        "decided": decided[:_DECIDED],
        "following": following,
        "is_first": "after" not in visit.query,
        "address": visit.registry.services.options.base_url,
    }


def _describe(visit: Visit, row: dict[str, Any], organisation: Any) -> dict[str, Any]:
    left = say_duration((row["expires_at"] - visit.now).total_seconds())
    return {**row, "left": left, "place": row["app_name"] or organisation["name"]}


PAGES = (Page("", "Inbox", "inbox.html", show_inbox, menu="Inbox"),)
