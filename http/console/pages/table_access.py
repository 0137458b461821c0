"""/console/apps/{app}/tables/{table}/access: the policies of a table, and which rows of a table or view each caller
sees.
"""

import json
from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/tables/{table}/access"
_SHOWN = 30


async def show_access(visit: Visit) -> Context:
    app, table = await read_app(visit), visit.parts["table"]
    description = await visit.call("schema_describe", app_id=app["id"], table=table)
    policies = await visit.call("rls_list", app_id=app["id"])
    first, second = (visit.query.get(name, "").strip() for name in ("first", "second"))
    viewers = ["anon", *(name for name in (first, second) if name)]
    simulation: Any = await visit.call("rls_simulate", app_id=app["id"], table=table, viewers=viewers, limit=_SHOWN)
    return {
        "app": app,
        "title": f"Who sees what in {table}",
        "table": table,
        "policies": [each for each in policies["policies"] if each["tablename"] == table],
        "secured": description["row_level_security"],
        "query": description.get("query"),
        "seen": simulation,
        "names": {"anon": "Visitors"},
        "rows": [(json.dumps(each["row"], ensure_ascii=False)[:160], each["seen_by"]) for each in simulation["rows"]],
        "first": first,
        "second": second,
    }


PAGES = (Page(PATH, "Who sees what", "table_access.html", show_access),)
