"""/console/decided: what was decided about calls, by whom, when and in which words."""

from contextlib import suppress
from typing import Any

from baobab.http.console.page import Context, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import Forbidden, NotFound

_SHOWN = 50
_STATES = {"executed": "Done", "rejected": "Denied", "failed": "Failed", "expired": "Expired"}


async def show_decided(visit: Visit) -> Context:
    """Lists the calls of the last 90 days that do not wait any more, the latest decision first."""
    chosen_status = visit.query.get("status", "") if visit.query.get("status") in _STATES else ""
    names: dict[str, str] = {}
    organisation_id, rows, following = visit.query.get("of"), list[dict[str, Any]](), dict[str, str]()
    for organisation in await visit.list_organisations():
        if organisation_id is not None and organisation["id"] != organisation_id:
            continue
        filters: dict[str, Any] = {"limit": _SHOWN} | ({"status": chosen_status} if chosen_status else {})
        if organisation_id is not None and "after" in visit.query:
            filters["cursor"] = visit.query["after"]
        page = await visit.call("approvals_list", organisation["id"], **filters)
        with suppress(Forbidden, NotFound):
            # Who only decides does not see the members.
            members = await visit.call("organisations_members", organisation["id"], organization_id=organisation["id"])
            names |= {member["account_id"]: member["name"] or member["email"] for member in members["members"]}
        rows += [
            {**row, "place": row["app_name"] or organisation["name"], "at": row["decided_at"] or row["expires_at"]}
            for row in page["approvals"]
            if row["status"] != "pending"
        ]
        if page["next_cursor"]:
            following[organisation["id"]] = page["next_cursor"]
    return {
        "title": "Decided",
        "rows": sorted(rows, key=lambda row: row["at"], reverse=True),
        "names": names,
        "following": following,
        "states": _STATES,
        "chosen": chosen_status,
        "is_first": "after" not in visit.query,
    }


PAGES = (
    Page(
        "/decided",
        "Decided",
        "decided.html",
        show_decided,
        menu="Decided",
        icon="history",
        rank=1,
        on_phone=True,
        for_approvers=True,
    ),
)
