"""/console/apps/{app}/row-changes: what was written to an app's tables, each row before and after, and undo."""

import json
from datetime import datetime
from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/row-changes"
_SHOWN = 50


async def show_changes(visit: Visit) -> Context:
    app, table, run_id = await read_app(visit), visit.query.get("table", ""), visit.query.get("run", "")
    filters: dict[str, Any] = {"limit": _SHOWN}
    filters |= {"table": table} if table else {}
    filters |= {"run_id": run_id} if run_id else {}
    filters |= {"before": int(visit.query["before"])} if visit.query.get("before", "").isdecimal() else {}
    changes = (await visit.call("data_changes", app_id=app["id"], **filters))["changes"]
    return {
        "app": app,
        "table": table,
        "run_id": run_id,
        "changes": [
            {
                **change,
                "at": datetime.fromisoformat(change["at"]),
                "before": _show(change["before"]),
                "after": _show(change["after"]),
            }
            for change in changes
        ],
        "following": changes[-1]["id"] if len(changes) == _SHOWN else None,
    }


async def undo(visit: Visit) -> str:
    """Undoes one action, or everything that a run wrote."""
    ids = {name: visit.form[name] for name in ("action_id", "run_id") if visit.form.get(name)}
    await visit.call("data_undo", app_id=visit.parts["app"], cascade="cascade" in visit.form, **ids)
    return PATH.format(**visit.parts)


def _show(row: Any) -> str:
    return "" if row is None else json.dumps(row, ensure_ascii=False)[:2000]


PAGES = (Page(PATH, "What was written", "row_changes.html", show_changes),)
FORMS = (Form(PATH + "/undo", undo),)
