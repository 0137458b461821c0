"""/console/apps/{app}/audit-log: who did what in an app."""

from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.escaping import escape_json

_SHOWN = 50
_FILTERS = ("category", "action", "event_type", "actor_id", "success", "from", "to")


async def show_log(visit: Visit) -> Context:
    app = await read_app(visit)
    filters: dict[str, Any] = {
        name: visit.query[name].strip() for name in _FILTERS if visit.query.get(name, "").strip()
    }
    offset = visit.query.get("offset", "")
    position: dict[str, Any] = {"offset": int(offset)} if offset.isdecimal() and len(offset) < 8 else {}
    outcome = {"success": filters["success"] == "true"} if "success" in filters else {}
    page = await visit.call("audit_logs_list", app_id=app["id"], limit=_SHOWN, **{**filters, **outcome}, **position)
    rows = [{**row, "data": escape_json(row["event_data"], indent=2) if row["event_data"] else ""}
            for row in page["logs"]]  # fmt: skip
    return {
        "app": app,
        "rows": rows,
        "total": page["total"],
        "following": page["nextOffset"],
        "asked": filters,
        "categories": ("auth", "admin", "function", "ai", "data", "agents"),
        "actions": ("create", "update", "delete", "invoke", "enable", "disable"),
    }


PAGES = (
    Page(
        "/apps/{app}/audit-log",
        "Audit log",
        "audit_log.html",
        show_log,
        tab="Audit log",
        group="Operate",
        icon="list",
        rank=10,
    ),
)
