"""/v1/{app_id}/{table}: writing the rows of a table, for the owner and keys of the app, its users and its visitors."""

import json
from dataclasses import replace
from typing import Annotated, Any, Unpack

from baobab.tools.core import AppId, Call, Guard, JsonObject, Mcp, Rest, Text
from baobab.tools.core.call import GraphName, Preview
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.core.guard.changes import Change
from baobab.tools.data.access import ACCESS, find_actor
from baobab.tools.data.errors import (
    MediaTypeRefused,
    PolicyViolation,
    RowNotFound,
    SingleRowExpected,
)
from baobab.tools.data.expressions.expressions import FALSE, opened_rows
from baobab.tools.data.fields import (
    ANSWER_HEADERS,
    AS_HEADERS,
    KEY_HEADER,
    MOST_ROWS,
    UNDO,
    UNDOABLE,
    WRITE_ERRORS,
    WRITTEN,
    Filters,
    OneOrMore,
    RowId,
    TableName,
)
from baobab.tools.data.queries.preferences import Preferences, read_preferences
from baobab.tools.data.rows.attempts import read_attempt
from baobab.tools.data.rows.foresight import FILTERED_ANEW, Foresight
from baobab.tools.data.rows.ignored_names import require_known_keys, warn_of_ignored_columns, warn_of_ignored_keys
from baobab.tools.data.rows.outcomes import say_deletion, say_insertion, say_update
from baobab.tools.data.rows.row_reader import key_condition
from baobab.tools.data.rows.row_requests import (
    find_upsert,
    open_table,
    read_query,
    read_written_form,
    require_few,
    require_filters,
    shape_answer,
)
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import read_rows, write_rows
from baobab.tools.data.rows.written_rows import WrittenRows
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schemas import AnswerOptions, Deleted, Row, WriteOptions
from baobab.tools.data.tools.rows import data_get
from baobab.tools.data.toolset import WRITTEN_ROWS, data


def _list_answer_options(options: AnswerOptions) -> list[str | None]:
    """Returns the options that are part of the request for which an idempotency key stands."""
    return [options["select"], options["prefer"], options["media_type"]]


async def _preview_insert(
    call: Call,
    app_id: AppId,
    table: str,
    values: OneOrMore,
    on_conflict: str | None,
    columns: str | None,
    **options: Unpack[AnswerOptions],
) -> Preview:
    rows = values if isinstance(values, list) else [values]
    picked_rows = _pick_named(rows, columns)

    def foresee(rows: Rows, catalogue: Catalogue) -> list[Change]:
        target = open_table(catalogue, rows, table, "INSERT")
        if opened_rows(target, "INSERT", rows.actor) == FALSE:
            raise PolicyViolation(f"No policy of `{table}` lets users insert rows.")
        upsert = find_upsert(target, on_conflict, read_preferences(options["prefer"]))
        return Foresight(rows, catalogue).foresee_insert(target, picked_rows, upsert)

    changes = await read_rows(call, find_actor(call, options), foresee)
    await data_insert(call, app_id, table, values, on_conflict, columns, **options)
    conflict = ", or update those that are there" if on_conflict else ""
    text = f"It would insert {_count(rows)} into `{table}`{conflict}.\n{json.dumps(rows, ensure_ascii=False)}"
    return Preview(text[:4000], changes)


class _Count:
    """How many rows a write wrote, for `Prefer: count=exact`."""

    def __init__(self, preferences: Preferences) -> None:
        self.count: int | None = None
        self._is_asked = preferences.counts

    def tell(self, call: Call, result: list[Row] | Row | None) -> None:
        """Tells the number to the call, and in the header Content-Range where that was asked for.

        result: the answer, which also has the number if the call is repeated.
        """
        if self.count is None and result is not None:
            self.count = len(result) if isinstance(result, list) else 1
        if self.count is None:
            return
        call.count_list(self.count)
        if self._is_asked:
            call.headers = [*(call.headers or ()), (b"content-range", b"*/%d" % self.count)]


def _pick_named(rows: list[Row], columns: str | None) -> list[Row]:
    """Returns the rows with only the keys that `columns` names; with all keys if it is left out."""
    if columns is None:
        return rows
    names = {name.strip().strip('"') for name in columns.split(",")}
    return [{name: value for name, value in row.items() if name in names} for row in rows]


def _count(rows: list[Row]) -> str:
    return "1 row" if len(rows) == 1 else f"{len(rows)} rows"


@data.tool(
    "POST /{table}",
    access=ACCESS,
    effect="write",
    raises=(*WRITE_ERRORS, SingleRowExpected, MediaTypeRefused),
    audit=WRITTEN,
    listing=WRITTEN_ROWS,
    rest=Rest(
        status=201,
        body="values",
        query=("on_conflict", "columns", "select", "prefer", "media_type", *KEY_HEADER, *AS_HEADERS),
        from_headers={**ANSWER_HEADERS, **KEY_HEADER},
        also=("/data/{table}",),
        examples={"values": {"user_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", "title": "Hello"}},
    ),
    mcp=Mcp(start=True, graph_names=(GraphName("insert_row", for_users=False),)),
    guard=Guard(
        overwrites=True,
        preview=_preview_insert,
        undone_by=UNDO,
        outcome=say_insertion,
        as_app=AsApp(
            literal=("table", "on_conflict", "columns", "select", "prefer"), fills=("values",), columns=("values",)
        ),
    ),
)
async def data_insert(
    call: Call,
    app_id: AppId,
    table: TableName,
    values: OneOrMore,
    on_conflict: Annotated[str, Text(1000)] | None = None,
    columns: Annotated[str, Text(10_000)] | None = None,
    **options: Unpack[AnswerOptions],
) -> list[Row] | Row | None:
    """Insert a row, or up to 1000 at once: all of them or none.

    values: the row as an object, or a list of rows. Keys that are no columns are left out.
    on_conflict: columns of a key or unique index; a row with the same values is updated instead.
    columns: the only keys of `values` to use.
    prefer: `resolution=ignore-duplicates` keeps existing rows as they are; `return=minimal` returns none.
    """
    actor = find_actor(call, options)
    preferences, media = read_preferences(options["prefer"]), read_written_form(options["media_type"])
    picked_rows = _pick_named(values if isinstance(values, list) else [values], columns)
    row_count = _Count(preferences)

    def write(rows: Rows, catalogue: Catalogue) -> list[Row] | Row | None:
        target = open_table(catalogue, rows, table, "INSERT")
        upsert = find_upsert(target, on_conflict, preferences)
        answer = WrittenRows(catalogue, target, options["select"], preferences)
        require_known_keys(call, target, picked_rows)
        new_rows = rows.insert(target, picked_rows, upsert, answer.names)
        row_count.count = len(new_rows)
        new_rows = answer.read(rows, new_rows)
        if preferences.minimal:
            return None
        as_list = isinstance(values, list) or preferences.representation
        if as_list:
            return shape_answer(new_rows, media)
        return shape_answer(new_rows[:1], replace(media, kind="object")) if new_rows else None

    request = [table, values, on_conflict, columns, *_list_answer_options(options)]
    attempt = read_attempt(call, actor, options, request)
    result = await write_rows(call, actor, write, attempt, inserts_into=table)
    row_count.tell(call, result)
    await warn_of_ignored_keys(call, table, picked_rows)
    await warn_of_ignored_columns(call, table, options["select"])
    call.audit.resource_id = table
    return result


async def _preview_update(
    call: Call, app_id: AppId, table: str, row_id: str, changes: Row, **options: Unpack[WriteOptions]
) -> Preview:
    row = await data_get(call, app_id, table, row_id, None, as_role=options["as_role"], as_user=options["as_user"])

    def foresee(rows: Rows, catalogue: Catalogue) -> tuple[list[Change], str | None]:
        target, foresight = open_table(catalogue, rows, table, "UPDATE"), Foresight(rows, catalogue)
        return foresight.foresee_row(target, row_id, changes), foresight.find_label(target, row_id, changes)

    changes_of_row, label = await read_rows(call, find_actor(call, options), foresee)
    await data_update(call, app_id, table, row_id, changes, **options)
    return Preview(_describe_changes(table, [row], changes), changes_of_row, label=label)


def _describe_changes(table: str, rows: list[Row], changes: Row) -> str:
    """Describes the columns that change in the first rows: the value now and the value then."""
    lines = []
    for row in rows[:10]:
        pairs = {name: [row[name], value] for name, value in changes.items() if name in row and row[name] != value}
        key = next(iter(row.items()), ("", ""))
        lines.append(f"{key[0]} {key[1]}: {json.dumps(pairs, ensure_ascii=False)[:500]}")
    return f"This changes {_count(rows)} in {table}. Before and after:\n{'; '.join(lines)}"[:4000]


@data.tool(
    "PATCH /{table}/{row_id}",
    access=ACCESS,
    effect="write",
    raises=(*WRITE_ERRORS, RowNotFound),
    audit=WRITTEN,
    listing=WRITTEN_ROWS,
    rest=Rest(
        body="changes",
        query=(*KEY_HEADER, *AS_HEADERS),
        from_headers={**AS_HEADERS, **KEY_HEADER},
        also=("/data/{table}/{row_id}",),
        examples={"changes": {"title": "Hello"}},
    ),
    mcp=Mcp(start=True, graph_names=(GraphName("update_row", {"row_id": "id", "changes": "patch"}, for_users=False),)),
    guard=Guard(
        preview=_preview_update,
        undone_by=UNDO,
        outcome=say_update,
        as_app=AsApp(literal=("table",), fills=("row_id", "changes"), columns=("changes",)),
    ),
)
async def data_update(
    call: Call,
    app_id: AppId,
    table: TableName,
    row_id: RowId,
    changes: JsonObject,
    **options: Unpack[WriteOptions],
) -> Row:
    """Change columns of one row, and return the row.

    changes: the new values by column. Keys that are no columns are left out.
    """
    actor = find_actor(call, options)

    def write(rows: Rows, catalogue: Catalogue) -> Row:
        target = open_table(catalogue, rows, table, "UPDATE")
        require_known_keys(call, target, [changes])
        updated_rows = rows.update(target, changes, [key_condition(target, row_id)])
        if not updated_rows:
            # This error is not stored for the idempotency key: the same call may find the row later.
            raise RowNotFound(f"`{table}` has no row with this key that the caller may change.")
        return updated_rows[0]

    attempt = read_attempt(call, actor, options, [table, row_id, changes])
    result = await write_rows(call, actor, write, attempt)
    await warn_of_ignored_keys(call, table, [changes])
    call.audit.resource_id = table
    return result


async def _preview_update_many(
    call: Call, app_id: AppId, table: str, changes: Row, where: Any, **options: Unpack[AnswerOptions]
) -> Preview:
    def foresee(rows: Rows, catalogue: Catalogue) -> tuple[list[Row], list[Change]]:
        target = open_table(catalogue, rows, table, "UPDATE")
        require_filters(target, where)
        selection = read_query(catalogue, target, None, where)
        selection.limit = MOST_ROWS
        return rows.select(selection), Foresight(rows, catalogue).foresee_update(target, where, changes)

    present_rows, changes_of_rows = await read_rows(call, find_actor(call, options), foresee)
    await data_update_many(call, app_id, table, changes, where, **options)
    return Preview(f"{_describe_changes(table, present_rows, changes)}\n{FILTERED_ANEW}", changes_of_rows)


@data.tool(
    "PATCH /{table}",
    access=ACCESS,
    effect="write",
    raises=(*WRITE_ERRORS, SingleRowExpected, MediaTypeRefused),
    audit=WRITTEN,
    listing=WRITTEN_ROWS,
    rest=Rest(
        status=lambda result: 204 if result is None else 200,
        statuses=(200, 204),
        body="changes",
        further_query="where",
        query=("select", "prefer", "media_type", *AS_HEADERS),
        from_headers={**ANSWER_HEADERS, **KEY_HEADER},
        also=("/data/{table}",),
        examples={"changes": {"status": "done"}, "where": {"due": "lt.2030-01-01"}},
    ),
    guard=Guard(
        preview=_preview_update_many,
        undone_by=UNDO,
        outcome=say_update,
        as_app=AsApp(
            literal=("table", "select", "prefer"), fills=("changes", "where"), columns=("changes",), filters=("where",)
        ),
    ),
)
async def data_update_many(
    call: Call,
    app_id: AppId,
    table: TableName,
    changes: JsonObject,
    where: Filters | None = None,
    **options: Unpack[AnswerOptions],
) -> list[Row] | Row | None:
    """Change columns of all rows that match filters, at most 1000, and return them.

    Values are set, not computed: to lower a number by one, read the row and name the value that you have read in
    `where`, such as {"id": "eq.7", "stock": "eq.5"} for {"stock": 4}. If no row comes back, somebody was faster: read
    again. op:kv_incr and op:kv_decr count in one call.

    changes: the new values by column.
    where: filters by column, as data_list has them. At least one is needed.
    """
    actor = find_actor(call, options)
    preferences, media = read_preferences(options["prefer"]), read_written_form(options["media_type"])
    row_count = _Count(preferences)

    def write(rows: Rows, catalogue: Catalogue) -> list[Row] | Row | None:
        target = open_table(catalogue, rows, table, "UPDATE")
        answer = WrittenRows(catalogue, target, options["select"], preferences)
        require_known_keys(call, target, [changes])
        updated_rows = rows.update(target, changes, require_filters(target, where), answer.names)
        row_count.count = len(require_few(updated_rows, preferences, media))
        updated_rows = answer.read(rows, updated_rows)
        return None if preferences.minimal else shape_answer(updated_rows, media)

    request = [table, changes, where, *_list_answer_options(options)]
    result = await write_rows(call, actor, write, read_attempt(call, actor, options, request))
    row_count.tell(call, result)
    await warn_of_ignored_keys(call, table, [changes])
    await warn_of_ignored_columns(call, table, options["select"])
    call.audit.resource_id = table
    return result


async def _preview_delete(
    call: Call, app_id: AppId, table: str, row_id: str, **options: Unpack[WriteOptions]
) -> Preview:
    row = await data_get(call, app_id, table, row_id, None, as_role=options["as_role"], as_user=options["as_user"])

    def foresee(rows: Rows, catalogue: Catalogue) -> list[Change]:
        return Foresight(rows, catalogue).foresee_row(open_table(catalogue, rows, table, "DELETE"), row_id, None)

    changes = await read_rows(call, find_actor(call, options), foresee)
    await data_delete(call, app_id, table, row_id, **options)
    return Preview(f"It would delete this row of `{table}`:\n{str(row)[:1000]}", changes)


@data.tool(
    "DELETE /{table}/{row_id}",
    access=ACCESS,
    effect="destructive",
    raises=(*WRITE_ERRORS, RowNotFound),
    audit=WRITTEN,
    rest=Rest(
        query=(*KEY_HEADER, *AS_HEADERS),
        from_headers={**AS_HEADERS, **KEY_HEADER},
        also=("/data/{table}/{row_id}",),
    ),
    guard=Guard(
        consequence=UNDOABLE,
        undone_by=UNDO,
        preview=_preview_delete,
        outcome=say_deletion,
        as_app=AsApp(literal=("table",), fills=("row_id",)),
    ),
    mcp=Mcp(graph_names=(GraphName("delete_row", {"row_id": "id"}, for_users=False),)),
)
async def data_delete(
    call: Call,
    app_id: AppId,
    table: TableName,
    row_id: RowId,
    **options: Unpack[WriteOptions],
) -> Deleted:
    """Delete one row by its primary key."""
    actor = find_actor(call, options)

    def write(rows: Rows, catalogue: Catalogue) -> Deleted:
        target = open_table(catalogue, rows, table, "DELETE")
        if not rows.delete(target, [key_condition(target, row_id)], ()):
            raise RowNotFound(f"`{table}` has no row with this key that the caller may delete.")
        return {"deleted": True}

    result = await write_rows(call, actor, write, read_attempt(call, actor, options, [table, row_id]))
    call.audit.resource_id = table
    return result


async def _preview_delete_many(
    call: Call, app_id: AppId, table: str, where: Any, **options: Unpack[AnswerOptions]
) -> Preview:
    def foresee(rows: Rows, catalogue: Catalogue) -> tuple[int, list[Change]]:
        target = open_table(catalogue, rows, table, "DELETE")
        require_filters(target, where)
        count = rows.count(read_query(catalogue, target, None, where))
        return count, Foresight(rows, catalogue).foresee_delete(target, where)

    count, changes = await read_rows(call, find_actor(call, options), foresee)
    await data_delete_many(call, app_id, table, where, **options)
    text = f"It would delete up to {count} rows of `{table}`. {FILTERED_ANEW}\n{where}"
    return Preview(text[:1000], changes)


@data.tool(
    "DELETE /{table}",
    access=ACCESS,
    effect="destructive",
    guard=Guard(
        consequence=UNDOABLE,
        undone_by=UNDO,
        preview=_preview_delete_many,
        outcome=say_deletion,
        as_app=AsApp(literal=("table", "select", "prefer"), fills=("where",), filters=("where",)),
    ),
    raises=(*WRITE_ERRORS, SingleRowExpected, MediaTypeRefused),
    audit=WRITTEN,
    listing=WRITTEN_ROWS,
    rest=Rest(
        status=lambda result: 204 if result is None else 200,
        statuses=(200, 204),
        further_query="where",
        query=("select", "prefer", "media_type", *AS_HEADERS),
        from_headers={**ANSWER_HEADERS, **KEY_HEADER},
        also=("/data/{table}",),
        examples={"where": {"status": "eq.done"}},
    ),
)
async def data_delete_many(
    call: Call,
    app_id: AppId,
    table: TableName,
    where: Filters | None = None,
    **options: Unpack[AnswerOptions],
) -> list[Row] | Row | None:
    """Delete all rows that match filters, at most 1000, and return them as they were.

    where: filters by column, as data_list has them. At least one is needed.
    """
    actor = find_actor(call, options)
    preferences, media = read_preferences(options["prefer"]), read_written_form(options["media_type"])
    row_count = _Count(preferences)

    def write(rows: Rows, catalogue: Catalogue) -> list[Row] | Row | None:
        target = open_table(catalogue, rows, table, "DELETE")
        answer = WrittenRows(catalogue, target, options["select"], preferences)
        conditions = require_filters(target, where)
        rows_before = answer.read_before(rows, conditions)
        deleted_rows = rows.delete(target, conditions, answer.names)
        row_count.count = len(require_few(deleted_rows, preferences, media))
        deleted_rows = answer.pick_deleted(rows_before, deleted_rows)
        return None if preferences.minimal else shape_answer(deleted_rows, media)

    request = [table, where, *_list_answer_options(options)]
    result = await write_rows(call, actor, write, read_attempt(call, actor, options, request))
    row_count.tell(call, result)
    await warn_of_ignored_columns(call, table, options["select"])
    call.audit.resource_id = table
    return result
