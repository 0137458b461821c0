"""/console/apps/{app}/tables: the tables and views of an app, a drawing of their relations, and which of them are
public.
"""

from collections.abc import Mapping
from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/tables"
_WIDTH, _GAP, _LINE, _ACROSS, _SHOWN = 220, 60, 18, 3, 8


async def show_tables(visit: Visit) -> Context:
    app = await read_app(visit)
    schema = (await visit.call("schema_get", app_id=app["id"]))["schema"]
    tables = schema["tables"]
    policies = await visit.call("rls_list", app_id=app["id"])
    live = {each["table_name"] for each in (await visit.call("realtime_get", app_id=app["id"]))["tables"]}
    return {
        "app": app,
        "tables": tables,
        "views": schema.get("views", {}),
        "drawing": draw_tables(tables),
        "findings": [*policies["open_tables"], *policies["missing_indexes"], *policies["slow_statements"]],
        "secured": set(policies["tables_with_rls"]),
        "live": live,
    }


def draw_tables(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the position of each table in the drawing, with its first columns, and the lines between tables.

    Lengths are in pixels; a row of the drawing is as high as its highest table.
    """
    boxes: dict[str, dict[str, Any]] = {}
    top, height = 10, 0
    for number, (name, table) in enumerate(tables.items()):
        if number % _ACROSS == 0 and number:
            top, height = top + height + _GAP, 0
        columns = [_label(column, document) for column, document in list(table["columns"].items())[:_SHOWN]]
        hidden_count = len(table["columns"]) - len(columns)
        columns += [f"and {hidden_count} more"] if hidden_count else []
        own_height = _LINE * (len(columns) + 1) + 14
        height = max(height, own_height)
        boxes[name] = {
            "name": name,
            "x": 10 + (number % _ACROSS) * (_WIDTH + _GAP),
            "y": top,
            "width": _WIDTH,
            "height": own_height,
            "columns": columns,
        }
    lines = [
        _connect(boxes[name], boxes[target], f"{name}.{column} refers to {target}")
        for name, table in tables.items()
        for column, document in table["columns"].items()
        if (target := _find_target(document)) in boxes
    ]
    across = min(len(tables), _ACROSS)
    return {
        "boxes": list(boxes.values()),
        "lines": lines,
        "width": 20 + across * _WIDTH + max(across - 1, 0) * _GAP,
        "height": top + height + _GAP // 2 + 10,
    }


def _label(name: str, document: Mapping[str, Any]) -> str:
    mark = " (key)" if document.get("primaryKey") else " (generated)" if document.get("generated") else ""
    return f"{name} {document['type']}{mark}"[:32]


def _find_target(document: Mapping[str, Any]) -> str:
    reference = document.get("references")
    return str(reference["table"]) if isinstance(reference, dict) else str(reference or "").partition(".")[0]


def _connect(start: Mapping[str, Any], end: Mapping[str, Any], title: str) -> Mapping[str, Any]:
    x1, y1 = start["x"] + start["width"] // 2, start["y"] + start["height"]
    x2, y2 = end["x"] + end["width"] // 2, end["y"] + end["height"]
    bow = max(y1, y2) + _GAP // 2
    return {"path": f"M{x1} {y1} C{x1} {bow} {x2} {bow} {x2} {y2}", "title": title}


PAGES = (Page(PATH, "Tables", "tables.html", show_tables, tab="Tables", group="Data", icon="table-2", rank=25),)
