"""/v1/{app_id}/{table}: the rows of a table, for those who run the app, its users and its visitors."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call, GraphName
from baobab.tools.core.errors import BadRequest
from baobab.tools.core.stream import Stream
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import AppId, JsonObject, Text
from baobab.tools.data.access import OpenToPolicies, find_actor
from baobab.tools.data.actor import Role
from baobab.tools.data.catalogue import Catalogue, Command, TableInfo
from baobab.tools.data.csv_rows import MEDIA_TYPE, format_csv
from baobab.tools.data.errors import (
    AnswerTooLarge,
    ColumnNotFound,
    InvalidFilter,
    PolicyViolation,
    QueryTimeout,
    RowNotFound,
    SingleRowExpected,
    TableNotFound,
    TablesFull,
    UniqueViolation,
    UserRequired,
    Violation,
)
from baobab.tools.data.expressions import FALSE, allowed_rows
from baobab.tools.data.filters import FilterReader
from baobab.tools.data.policies import list_names
from baobab.tools.data.preferences import Preferences, read_preferences
from baobab.tools.data.rows import Rows, Upsert, key_condition
from baobab.tools.data.schemas import Deleted, Row, RowsOrRow
from baobab.tools.data.selection import Selection, place_filters, read_selection
from baobab.tools.data.toolset import data
from baobab.tools.data.transactions import find_catalogue, read_rows, write_rows

_OBJECT = "application/vnd.pgrst.object+json"
_CSV = "text/csv"
_MOST_ROWS = 1000
_READ = (TableNotFound, ColumnNotFound, InvalidFilter, UserRequired, QueryTimeout, AnswerTooLarge)
_WRITE = (*_READ, PolicyViolation, Violation, UniqueViolation, TablesFull)
_AS = {"as_role": "x-platform-as-role", "as_user": "x-platform-as-user"}
_WRITTEN = Audit("data.write", category="data", resource="table", tallied=True)
_ACCESS = OpenToPolicies()

TableName = Annotated[str, Text(63, min_length=1), Field(description="The table.", examples=["posts"])]
RowId = Annotated[str, Text(1000, min_length=1), Field(description="The row's primary key.")]
AsRole = Annotated[Role, Field(description="For those who run the app: see it as a visitor (`anon`) or as a user.")]
AsUser = Annotated[
    str,
    Text(36, pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"),
    Field(description="For those who run the app: be this user (a UUID)."),
]
FilterText = Annotated[str, Text(10_000)]
Filters = Annotated[
    dict[Annotated[str, Text(200)], FilterText | Annotated[list[FilterText], Field(max_length=50)]],
    Field(max_length=100, examples=[{"status": "eq.open", "or": "(price.lt.10,name.ilike.*sale*)"}]),
]
SelectText = Annotated[str, Text(10_000), Field(examples=["id,title,author(name)"])]
OrderText = Annotated[str, Text(100_000), Field(examples=["created_at.desc,id"])]
Limit = Annotated[int, Field(ge=0, le=1000)]
Offset = Annotated[int, Field(ge=0, le=10_000_000)]
Prefer = Annotated[str, Text(500), Field(examples=["count=exact"])]
MediaType = Annotated[str, Text(500)]
OneOrMore = Annotated[
    JsonObject | Annotated[list[JsonObject], Field(min_length=1, max_length=_MOST_ROWS)],
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "object"},
                {"type": "array", "items": {"type": "object"}, "minItems": 1, "maxItems": _MOST_ROWS},
            ]
        }
    ),
]


def _open_table(catalogue: Catalogue, rows: Rows, name: str, command: Command) -> TableInfo:
    """Raises UserRequired for a visitor to whom no policy opens anything."""
    table = catalogue.table(name)
    if rows.actor.role == "anon" and allowed_rows(table, command, rows.actor) == FALSE:
        raise UserRequired(f"No policy of `{name}` opens it to visitors.")
    return table


def _select(catalogue: Catalogue, table: TableInfo, select: str | None, where: Mapping[str, Any] | None) -> Selection:
    selection = read_selection(catalogue, table, select)
    place_filters(selection, where or {})
    return selection


@data.tool(
    "GET /{table}",
    access=_ACCESS,
    effect="read",
    raises=(*_READ, SingleRowExpected),
    taints=True,
    rest=Rest(
        further_query="where",
        query=("prefer", "media_type"),
        from_headers={**_AS, "prefer": "prefer", "media_type": "accept"},
        also=("/data/{table}",),
    ),
    mcp=Mcp(
        keywords=(
            "select rows, query a table, read records, filter, search, sort, list entries of the database, SQL; "
            "Zeilen lesen, Tabelle abfragen, Datensätze; "
            "consultar filas, leer tabla, registros"
        ),
        graph_names=(GraphName("query_table", {"where": "filter"}), GraphName("select_rows", {"where": "filter"})),
    ),
)
async def data_list(
    call: Call,
    app_id: AppId,
    table: TableName,
    select: SelectText | None = None,
    where: Filters | None = None,
    order: OrderText = "",
    limit: Limit = 100,
    offset: Offset = 0,
    prefer: Prefer = "",
    media_type: MediaType = "",
    as_role: AsRole | None = None,
    as_user: AsUser | None = None,
) -> RowsOrRow:
    """List rows of a table that the caller may see.

    select: columns, and related tables in parentheses; left out, all columns. Or aggregates, of rows that are alike in
      the columns beside them: `kind,count(),price.sum()`, and avg, min, max.
    where: filters by column, `operator.value` each: eq, neq, gt, gte, lt, lte, like, ilike, in.(a,b), is.null, fts, cs,
      cd, ov, each also after `not.`; beside them `or` and `and` with conditions in parentheses.
    order: columns, each with `.asc` or `.desc`; `embedding.cosine.{0.1,0.2}` for vectors nearest to one, or l2, inner.
    limit: rows of one answer.
    offset: rows to pass over.
    prefer: `count=exact` counts all rows that fulfil the filters, in the header Content-Range.
    media_type: `application/vnd.pgrst.object+json` for exactly one row, as an object; over REST also `text/csv`.
    """
    actor = find_actor(call, as_role, as_user)
    preferences = read_preferences(prefer)

    def read(rows: Rows, catalogue: Catalogue) -> tuple[Selection, list[Row], int | None]:
        opened = _open_table(catalogue, rows, table, "SELECT")
        selection = _select(catalogue, opened, select, where)
        selection.order, selection.limit, selection.offset = order, limit, offset
        return selection, rows.select(selection), rows.count(selection) if preferences.counts else None

    selection, found, total = await read_rows(call, actor, read)
    _tell_range(call, len(found), offset, total)
    if _CSV in media_type and call.context.streams:
        return Stream(_send_csv(selection, found), MEDIA_TYPE)
    return _shape(found, media_type)


@data.tool(
    "GET /{table}/{row_id}",
    access=_ACCESS,
    effect="read",
    raises=(*_READ, RowNotFound),
    taints=True,
    rest=Rest(from_headers=_AS, also=("/data/{table}/{row_id}",)),
    mcp=Mcp(
        keywords=(
            "read one row, record or entry by its key or id; Zeile nach Schlüssel lesen; leer una fila por su clave"
        )
    ),
)
async def data_get(
    call: Call,
    app_id: AppId,
    table: TableName,
    row_id: RowId,
    select: SelectText | None = None,
    as_role: AsRole | None = None,
    as_user: AsUser | None = None,
) -> Row:
    """Read one row by its primary key.

    select: columns, and related tables in parentheses; left out, all columns.
    """
    actor = find_actor(call, as_role, as_user)

    def read(rows: Rows, catalogue: Catalogue) -> list[Row]:
        opened = _open_table(catalogue, rows, table, "SELECT")
        return rows.select(_select(catalogue, opened, select, None), key=key_condition(opened, row_id))

    found = await read_rows(call, actor, read, quick=select is None)
    if not found:
        raise RowNotFound(f"`{table}` has no row with this key.")
    return found[0]


async def _preview_insert(call: Call, app_id: AppId, table: str, values: OneOrMore, **given: Any) -> str:
    del app_id
    (await find_catalogue(call)).table(table)
    rows = values if isinstance(values, list) else [values]
    conflict = ", or update those that are there" if given["on_conflict"] else ""
    return f"It would insert {len(rows)} rows into `{table}`{conflict}: {json.dumps(rows, ensure_ascii=False)}"[:4000]


@data.tool(
    "POST /{table}",
    access=_ACCESS,
    effect="write",
    raises=_WRITE,
    audit=_WRITTEN,
    rest=Rest(
        status=201,
        body="values",
        query=("on_conflict", "columns", "select", "prefer", "media_type", *_AS),
        from_headers={**_AS, "prefer": "prefer", "media_type": "accept"},
        also=("/data/{table}",),
        examples={"values": {"user_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", "title": "Hello"}},
    ),
    mcp=Mcp(
        keywords=(
            "insert row, add record, create entry, save to the database, upsert, bulk insert; "
            "Zeile einfügen, Datensatz anlegen; "
            "insertar fila, añadir registro"
        ),
        graph_names=(GraphName("insert_row", for_users=False),),
    ),
    guard=Guard(preview=_preview_insert),
)
async def data_insert(
    call: Call,
    app_id: AppId,
    table: TableName,
    values: OneOrMore,
    on_conflict: Annotated[str, Text(1000)] | None = None,
    columns: Annotated[str, Text(10_000)] | None = None,
    select: SelectText | None = None,
    prefer: Prefer = "",
    media_type: MediaType = "",
    as_role: AsRole | None = None,
    as_user: AsUser | None = None,
) -> list[Row] | Row | None:
    """Insert a row, or up to 1000 at once: all of them or none.

    values: the row as an object, or a list of rows. Keys that are no columns are left out.
    on_conflict: columns of a key or unique index; a row that has their values already is updated instead.
    columns: the only keys of `values` that count.
    select: the columns to answer; left out, all.
    prefer: `resolution=ignore-duplicates` leaves rows that are there as they are; `return=minimal` answers none.
    media_type: `application/vnd.pgrst.object+json` for the one row as an object.
    """
    actor = find_actor(call, as_role, as_user)
    preferences = read_preferences(prefer)
    given = values if isinstance(values, list) else [values]
    if columns is not None:
        named = {name.strip().strip('"') for name in columns.split(",")}
        given = [{name: value for name, value in row.items() if name in named} for row in given]

    def write(rows: Rows, catalogue: Catalogue) -> list[Row]:
        opened = _open_table(catalogue, rows, table, "INSERT")
        upsert = _find_upsert(opened, on_conflict, preferences)
        return rows.insert(opened, given, upsert, _find_answer(opened, select, preferences))

    inserted = await write_rows(call, actor, write)
    call.audit.resource_id = table
    if preferences.minimal:
        return None
    as_list = isinstance(values, list) or preferences.representation
    return _shape(inserted, media_type) if as_list else (inserted[0] if inserted else None)


async def _preview_update(
    call: Call,
    app_id: AppId,
    table: str,
    row_id: str,
    changes: Row,
    as_role: Role | None,
    as_user: str | None,
) -> str:
    row = await data_get(call, app_id, table, row_id, None, as_role, as_user)
    return _describe_changes(table, [row], changes)


def _describe_changes(table: str, rows: list[Row], changes: Row) -> str:
    """The columns that change, as they are and as they would be, of the first rows."""
    shown = []
    for row in rows[:10]:
        changed = {name: [row[name], value] for name, value in changes.items() if name in row and row[name] != value}
        key = next(iter(row.items()), ("", ""))
        shown.append(f"{key[0]} {key[1]}: {json.dumps(changed, ensure_ascii=False)[:500]}")
    return f"It would change {len(rows)} rows of `{table}`, from and to: {'; '.join(shown)}"[:4000]


@data.tool(
    "PATCH /{table}/{row_id}",
    access=_ACCESS,
    effect="write",
    raises=(*_WRITE, RowNotFound),
    audit=_WRITTEN,
    rest=Rest(
        body="changes",
        query=tuple(_AS),
        from_headers=_AS,
        also=("/data/{table}/{row_id}",),
        examples={"changes": {"title": "Hello"}},
    ),
    mcp=Mcp(
        keywords=("update, change or edit one row or record; Zeile ändern, Datensatz bearbeiten; modificar una fila"),
        graph_names=(GraphName("update_row", {"row_id": "id", "changes": "patch"}, for_users=False),),
    ),
    guard=Guard(preview=_preview_update),
)
async def data_update(
    call: Call,
    app_id: AppId,
    table: TableName,
    row_id: RowId,
    changes: JsonObject,
    as_role: AsRole | None = None,
    as_user: AsUser | None = None,
) -> Row:
    """Change columns of one row, and answer the row.

    changes: the new values by column. Keys that are no columns are left out.
    """
    actor = find_actor(call, as_role, as_user)

    def write(rows: Rows, catalogue: Catalogue) -> list[Row]:
        opened = _open_table(catalogue, rows, table, "UPDATE")
        return rows.update(opened, changes, [key_condition(opened, row_id)])

    changed = await write_rows(call, actor, write)
    call.audit.resource_id = table
    if not changed:
        raise RowNotFound(f"`{table}` has no row with this key that the caller may change.")
    return changed[0]


async def _preview_update_many(call: Call, app_id: AppId, table: str, changes: Row, **given: Any) -> str:
    del app_id
    actor = find_actor(call, given["as_role"], given["as_user"])

    def read(rows: Rows, catalogue: Catalogue) -> list[Row]:
        opened = _open_table(catalogue, rows, table, "UPDATE")
        _require_filters(opened, given["where"])
        selection = _select(catalogue, opened, None, given["where"])
        selection.limit = _MOST_ROWS
        return rows.select(selection)

    return _describe_changes(table, await read_rows(call, actor, read), changes)


@data.tool(
    "PATCH /{table}",
    access=_ACCESS,
    effect="write",
    raises=(*_WRITE, SingleRowExpected),
    audit=_WRITTEN,
    rest=Rest(
        status=lambda result: 204 if result is None else 200,
        statuses=(200, 204),
        body="changes",
        further_query="where",
        query=("select", "prefer", "media_type", *_AS),
        from_headers={**_AS, "prefer": "prefer", "media_type": "accept"},
        also=("/data/{table}",),
        examples={"changes": {"status": "done"}},
    ),
    mcp=Mcp(
        keywords=("update many rows, bulk change, set a column where; viele Zeilen ändern; modificar varias filas")
    ),
    guard=Guard(preview=_preview_update_many),
)
async def data_update_many(
    call: Call,
    app_id: AppId,
    table: TableName,
    changes: JsonObject,
    where: Filters | None = None,
    select: SelectText | None = None,
    prefer: Prefer = "",
    media_type: MediaType = "",
    as_role: AsRole | None = None,
    as_user: AsUser | None = None,
) -> list[Row] | Row | None:
    """Change columns of all rows that fulfil filters, at most 1000, and answer them.

    changes: the new values by column.
    where: filters by column, as data_list has them. At least one is needed.
    select: the columns to answer; left out, all.
    prefer: `return=minimal` answers no rows.
    media_type: `application/vnd.pgrst.object+json` for the one row as an object.
    """
    actor = find_actor(call, as_role, as_user)
    preferences = read_preferences(prefer)

    def write(rows: Rows, catalogue: Catalogue) -> list[Row]:
        opened = _open_table(catalogue, rows, table, "UPDATE")
        answer = _find_answer(opened, select, preferences)
        changed = rows.update(opened, changes, _require_filters(opened, where), answer)
        return _require_few(changed, preferences, media_type)

    changed = await write_rows(call, actor, write)
    call.audit.resource_id = table
    return None if preferences.minimal else _shape(changed, media_type)


async def _preview_delete(
    call: Call, app_id: AppId, table: str, row_id: str, as_role: Role | None, as_user: str | None
) -> str:
    row = await data_get(call, app_id, table, row_id, None, as_role, as_user)
    return f"It would delete this row of `{table}`: {str(row)[:1000]}"


@data.tool(
    "DELETE /{table}/{row_id}",
    access=_ACCESS,
    effect="destructive",
    raises=(*_WRITE, RowNotFound),
    audit=_WRITTEN,
    rest=Rest(query=tuple(_AS), from_headers=_AS, also=("/data/{table}/{row_id}",)),
    guard=Guard(preview=_preview_delete),
    mcp=Mcp(
        keywords=("delete or remove one row or record; Zeile löschen, Datensatz entfernen; borrar una fila"),
        graph_names=(GraphName("delete_row", {"row_id": "id"}, for_users=False),),
    ),
)
async def data_delete(
    call: Call,
    app_id: AppId,
    table: TableName,
    row_id: RowId,
    as_role: AsRole | None = None,
    as_user: AsUser | None = None,
) -> Deleted:
    """Delete one row by its primary key."""
    actor = find_actor(call, as_role, as_user)

    def write(rows: Rows, catalogue: Catalogue) -> int:
        opened = _open_table(catalogue, rows, table, "DELETE")
        return len(rows.delete(opened, [key_condition(opened, row_id)], ()))

    if not await write_rows(call, actor, write):
        raise RowNotFound(f"`{table}` has no row with this key that the caller may delete.")
    call.audit.resource_id = table
    return {"deleted": True}


async def _preview_delete_many(call: Call, app_id: AppId, table: str, **given: Any) -> str:
    del app_id
    actor = find_actor(call, given["as_role"], given["as_user"])

    def count(rows: Rows, catalogue: Catalogue) -> int:
        opened = _open_table(catalogue, rows, table, "DELETE")
        _require_filters(opened, given["where"])
        return rows.count(_select(catalogue, opened, None, given["where"]))

    return f"It would delete up to {await read_rows(call, actor, count)} rows of `{table}`: {given['where']}"[:1000]


@data.tool(
    "DELETE /{table}",
    access=_ACCESS,
    effect="destructive",
    guard=Guard(preview=_preview_delete_many),
    raises=(*_WRITE, SingleRowExpected),
    audit=_WRITTEN,
    rest=Rest(
        status=lambda result: 204 if result is None else 200,
        statuses=(200, 204),
        further_query="where",
        query=("select", "prefer", "media_type", *_AS),
        from_headers={**_AS, "prefer": "prefer", "media_type": "accept"},
        also=("/data/{table}",),
    ),
    mcp=Mcp(keywords=("delete many rows, bulk delete, remove where; viele Zeilen löschen; borrar varias filas")),
)
async def data_delete_many(
    call: Call,
    app_id: AppId,
    table: TableName,
    where: Filters | None = None,
    select: SelectText | None = None,
    prefer: Prefer = "",
    media_type: MediaType = "",
    as_role: AsRole | None = None,
    as_user: AsUser | None = None,
) -> list[Row] | Row | None:
    """Delete all rows that fulfil filters, at most 1000, and answer them as they were.

    where: filters by column, as data_list has them. At least one is needed.
    select: the columns to answer; left out, all.
    prefer: `return=minimal` answers no rows.
    media_type: `application/vnd.pgrst.object+json` for the one row as an object.
    """
    actor = find_actor(call, as_role, as_user)
    preferences = read_preferences(prefer)

    def write(rows: Rows, catalogue: Catalogue) -> list[Row]:
        opened = _open_table(catalogue, rows, table, "DELETE")
        answer = _find_answer(opened, select, preferences)
        deleted = rows.delete(opened, _require_filters(opened, where), answer)
        return _require_few(deleted, preferences, media_type)

    deleted = await write_rows(call, actor, write)
    call.audit.resource_id = table
    return None if preferences.minimal else _shape(deleted, media_type)


def _require_filters(table: TableInfo, where: Mapping[str, Any] | None) -> list[Any]:
    """The conditions of a write. BadRequest without any: nobody changes a whole table by leaving something out."""
    conditions = FilterReader(table).read(where or {})
    if not any(list_names(condition) for condition in conditions):
        raise BadRequest("Changing or deleting rows needs a filter.", remediation="Add one, such as `id=not.is.null`.")
    return conditions


def _require_few(rows: list[Row], preferences: Preferences, media_type: str) -> list[Row]:
    """Raises before the write is committed if it is about more rows than it may be."""
    most = _MOST_ROWS if preferences.max_affected is None else preferences.max_affected
    if len(rows) > most:
        raise BadRequest(f"This would change {len(rows)} rows, and {most} is the most.", details={"rows": len(rows)})
    if _OBJECT in media_type and len(rows) != 1:
        raise SingleRowExpected(f"This would change {len(rows)} rows, and one was asked for.")
    return rows


def _find_upsert(table: TableInfo, on_conflict: str | None, preferences: Preferences) -> Upsert | None:
    if on_conflict is None and preferences.resolution is None:
        return None
    columns = tuple(name.strip().strip('"') for name in on_conflict.split(",")) if on_conflict else table.key
    unique = {frozenset(table.key), *(frozenset((c.name,)) for c in table.columns.values() if c.unique)}
    unique |= {frozenset(index.columns) for index in table.indexes.values() if index.unique}
    if not columns or frozenset(columns) not in unique:
        raise BadRequest(
            f"`on_conflict` names columns of `{table.name}` that are no key and not unique.",
            details={"unique": sorted(sorted(each) for each in unique if each)},
        )
    return Upsert(columns, merge=preferences.resolution != "ignore-duplicates")


def _find_answer(table: TableInfo, select: str | None, preferences: Preferences) -> Sequence[str] | None:
    """The columns of rows that were written which the caller wants to have, plain ones here; None for all."""
    if preferences.minimal:
        return ()
    wanted = [name.strip().strip('"') for name in (select or "*").split(",")]
    return None if "*" in wanted else [name for name in dict.fromkeys(wanted) if name in table.columns] or None


def _shape(rows: list[Row], media_type: str) -> list[Row] | Row:
    if _OBJECT not in media_type:
        return rows
    if len(rows) != 1:
        raise SingleRowExpected(f"The result has {len(rows)} rows, and one was asked for.", details={"rows": len(rows)})
    return rows[0]


async def _send_csv(selection: Selection, rows: list[Row]) -> AsyncGenerator[bytes, None]:
    names = [item.name for item in selection.items] + [embed.name for embed in selection.embeds]
    yield "".join(format_csv(names, rows)).encode()


def _tell_range(call: Call, shown: int, offset: int, total: int | None) -> None:
    span = f"{offset}-{offset + shown - 1}" if shown else "*"
    call.headers = [(b"content-range", f"{span}/{'*' if total is None else total}".encode())]
    if total is not None:
        call.headers.append((b"x-total-count", str(total).encode()))
