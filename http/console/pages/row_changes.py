"""/console/apps/{app}/row-changes: what was written to an app's tables, each row before and after, and undo."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/row-changes"
_SHOWN, _FEW = 200, 3
"""How many changes one page reads, and how many rows of a write it shows."""


async def show_changes(visit: Visit) -> Context:
    app, table, run_id = await read_app(visit), visit.query.get("table", ""), visit.query.get("run", "")
    filters: dict[str, Any] = {"limit": _SHOWN}
    filters |= {"table": table} if table else {}
    filters |= {"run_id": run_id} if run_id else {}
    filters |= {"before": int(visit.query["before"])} if visit.query.get("before", "").isdecimal() else {}
    changes = (await visit.call("data_changes", app_id=app["id"], **filters))["changes"]
    writes = group_changes(changes)
    return {
        "app": app,
        "table": table,
        "run_id": run_id,
        "writes": writes,
        "number_of_rows": sum(write["rows"] for write in writes),
        "undone": visit.query.get("undone", "") if visit.query.get("undone", "").isdecimal() else "",
        # The next page begins with a whole write.
        "following": int(writes[-1]["action_id"]) if len(changes) == _SHOWN else None,
    }


def group_changes(changes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the writes that changes belong to, the latest first, each with the first few of its rows.

    The changes of a write are numbered one after the other, and the write has the number of its first: so the latest
    one says how many rows there are, even where not all of them are on the page.
    """
    writes: dict[str, dict[str, Any]] = {}
    for change in changes:
        number_of_rows = change["id"] - int(change["action_id"]) + 1
        write = writes.setdefault(change["action_id"], {**change, "rows": number_of_rows, "changes": [], "tables": []})
        write["is_schema"] = write.get("is_schema", False) or change["op"] == "SCHEMA"
        write["at"] = datetime.fromisoformat(change["at"])
        if change["table"] not in write["tables"]:
            write["tables"].append(change["table"])
        if len(write["changes"]) < _FEW:
            shown_rows = {"before": _show(change["before"]), "after": _show(change["after"])}
            write["changes"].append({**change, **shown_rows})
    return list(writes.values())


async def count_written_rows(visit: Visit, app_id: str, run_id: str) -> int:
    """Returns how many rows a run has written, as far as one page of its changes says."""
    page = await visit.call("data_changes", app_id=app_id, run_id=run_id, limit=_SHOWN)
    return sum(write["rows"] for write in group_changes(page["changes"]))


async def undo(visit: Visit) -> str | Context:
    """Undoes one write with all its rows, or everything that a run wrote, once the person has confirmed it."""
    ids = {name: visit.form[name] for name in ("action_id", "run_id") if visit.form.get(name)}
    arguments: dict[str, Any] = {"app_id": visit.parts["app"], "cascade": "cascade" in visit.form, **ids}
    if "confirmed" in visit.form:
        answer = await visit.call("data_undo", **arguments)
        return f"{PATH.format(**visit.parts)}?undone={answer['undone']}"
    app, number = await read_app(visit), visit.form.get("rows", "")
    preview = await visit.preview("data_undo", **arguments)
    return {
        "title": "Undo",
        "app": app,
        "rows": int(number) if number.isdecimal() and len(number) < 10 else None,
        "preview": preview.text or "",
        "repeated": {name: value for name, value in visit.form.items() if name in ("action_id", "run_id", "cascade")},
    }


def _show(row: Any) -> str:
    return "" if row is None else json.dumps(row, ensure_ascii=False)[:2000]


PAGES = (Page(PATH, "Change history", "row_changes.html", show_changes),)
FORMS = (Form(PATH + "/undo", undo, "undo_rows.html"),)
