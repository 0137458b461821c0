"""/console/apps/{app}/tables/{table}: the rows of a table or view, and forms that change, import and export them."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote

from baobab.http.console.app_page import parse_object, read_app, refuse_field
from baobab.http.console.page import Context, Feed, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.guard.escaping import escape_json
from baobab.tools.core.stream import Stream

PATH = "/apps/{app}/tables/{table}"
_SHOWN = 50


async def show_rows(visit: Visit) -> Context:
    app, table = await read_app(visit), visit.parts["table"]
    description = await visit.call("schema_describe", app_id=app["id"], table=table)
    filter_text, order = visit.query.get("filter", "")[:2000], visit.query.get("order", "")[:500]
    offset = int(visit.query["offset"]) if visit.query.get("offset", "").isdecimal() else 0
    filters: dict[str, Any] = {"where": _read_filters(filter_text)} if filter_text.strip() else {}
    rows = await visit.call(
        "data_list", app_id=app["id"], table=table, order=order, limit=_SHOWN + 1, offset=offset, **filters
    )
    key = description["key"][0] if len(description["key"]) == 1 else None
    return {
        "app": app,
        "title": table,
        "table": table,
        "columns": description["columns"],
        "writable": _list_writable(description),
        "checks": description["checks"],
        "query": description.get("query"),
        "own_text": description["own_text"],
        "key": key,
        "rows": [{name: _show(value) for name, value in row.items()} for row in rows[:_SHOWN]],
        "filter": filter_text,
        "order": order,
        "offset": offset,
        "following": offset + _SHOWN if len(rows) > _SHOWN else None,
    }


async def show_row(visit: Visit) -> Context:
    app, table, row_id = await read_app(visit), visit.parts["table"], visit.query.get("id", "")
    description = await visit.call("schema_describe", app_id=app["id"], table=table)
    row = await visit.call("data_get", app_id=app["id"], table=table, row_id=row_id)
    writable = _list_writable(description)
    return {
        "app": app,
        "title": f"A row of {table}",
        "table": table,
        "row_id": row_id,
        "text": json.dumps({name: row[name] for name in row if name in writable}, indent=2, ensure_ascii=True),
        # A value that is sent for these would be ignored.
        "generated": [
            (name, column["generated"], escape_json(row.get(name)))
            for name, column in description["columns"].items()
            if name not in writable
        ],
    }


async def change_row(visit: Visit) -> str:
    """Stores the columns that were changed on the page, and leaves the others, which somebody else may have changed
    since.
    """
    before = parse_object(visit.form.get("before", ""), "row") or {}
    after = parse_object(visit.form.get("row", ""), "row") or {}
    changes = {name: value for name, value in after.items() if name not in before or before[name] != value}
    if changes:
        place = {"app_id": visit.parts["app"], "table": visit.parts["table"], "row_id": visit.form.get("id", "")}
        await visit.call("data_update", **place, changes=changes)
    return PATH.format(**visit.parts)


async def add_row(visit: Visit) -> str:
    values = parse_object(visit.form.get("row", ""), "row")
    if values is None:
        raise refuse_field("row", "Type the new row as a JSON object.")
    await visit.call("data_insert", app_id=visit.parts["app"], table=visit.parts["table"], values=values)
    return PATH.format(**visit.parts)


async def delete_row(visit: Visit) -> str:
    place = {"app_id": visit.parts["app"], "table": visit.parts["table"], "row_id": visit.form.get("id", "")}
    await visit.call("data_delete", **place)
    return PATH.format(**visit.parts)


async def open_csv(visit: Visit) -> Stream:
    return await _export(visit, "csv")


async def open_json(visit: Visit) -> Stream:
    return await _export(visit, "jsonl")


async def _export(visit: Visit, file_format: str) -> Stream:
    """Returns the rows that the page's filters select. CSV cells are escaped, because spreadsheets would run formulas
    in them.
    """
    filter_text = visit.query.get("filter", "")[:2000]
    filters: dict[str, Any] = {"where": _read_filters(filter_text)} if filter_text.strip() else {}
    names = {"app_id": visit.parts["app"], "table": visit.parts["table"]}
    return await visit.follow(
        "data_export", **names, **filters, format=file_format, escape_formulas=file_format == "csv"
    )


async def show_import(visit: Visit) -> Context:
    table = visit.parts["table"]
    title = f"Import into {table}"
    return {"app": await read_app(visit), "title": title, "table": table, "report": None, "content": ""}


async def import_rows(visit: Visit) -> Context:
    form = visit.form
    # A textarea ends its lines with CRLF, which both formats know.
    report = await visit.call(
        "data_import",
        app_id=visit.parts["app"],
        table=visit.parts["table"],
        content=form.get("content", ""),
        format=form.get("format", "csv"),
        skip_errors="skip_errors" in form,
        dry_run="dry_run" in form,
    )
    return {
        **await show_import(visit),
        "report": report,
        "content": form.get("content", "") if report["dry_run"] else "",
    }


def _list_writable(description: Mapping[str, Any]) -> list[str]:
    """Returns the columns that can be written; the others are computed."""
    return [name for name, column in description["columns"].items() if not column.get("generated")]


def _read_filters(text: str) -> dict[str, list[str]]:
    """Parses filters as the address has them: `title=ilike.*a*&score=gt.3`."""
    filters: dict[str, list[str]] = {}
    for name, value in parse_qsl(quote(text, safe="=&()*,.%:><-"), keep_blank_values=True, max_num_fields=50):
        filters.setdefault(name.strip(), []).append(value)
    if not filters:
        raise refuse_field("filter", "Write filters as column=operator.value, several of them with & in between.")
    return filters


def _show(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:120]}…"


PAGES = (
    Page(PATH, "Rows", "table_rows.html", show_rows),
    Page(PATH + "/row", "A row", "table_row.html", show_row),
    Page(PATH + "/import", "Import", "table_import.html", show_import),
)
FEEDS = (
    Feed(PATH + "/rows.csv", open_csv, file_name="rows.csv"),
    Feed(PATH + "/rows.jsonl", open_json, file_name="rows.jsonl"),
)
FORMS = (
    Form(PATH + "/row/change", change_row),
    Form(PATH + "/row/add", add_row),
    Form(PATH + "/row/delete", delete_row),
    Form(PATH + "/import", import_rows, "table_import.html"),
)
