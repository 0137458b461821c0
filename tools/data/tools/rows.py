"""/v1/{app_id}/{table}: reading the rows of a table, for the owner and keys of the app, its users and its visitors."""

from collections.abc import AsyncGenerator
from typing import Unpack

from baobab.tools.core import AppId, AppOwner, Call, Mcp, Rest
from baobab.tools.core.call import GraphName
from baobab.tools.core.stream import Stream
from baobab.tools.data.access import ACCESS, find_actor
from baobab.tools.data.errors import (
    INSTEAD_OF_FILTERING_A_ROW,
    INSTEAD_OF_POST_TO_A_ROW,
    AnswerTooLarge,
    MediaTypeRefused,
    RowNotFound,
    SingleRowExpected,
)
from baobab.tools.data.exchange.csv_rows import MEDIA_TYPE, format_csv
from baobab.tools.data.fields import (
    ANSWER_HEADERS,
    AS_HEADERS,
    READ_ERRORS,
    Filters,
    Limit,
    MediaType,
    Offset,
    OrderText,
    Prefer,
    RowId,
    SelectText,
    TableName,
)
from baobab.tools.data.queries.media_types import read_media_type
from baobab.tools.data.queries.preferences import read_preferences
from baobab.tools.data.queries.selection import Selection
from baobab.tools.data.rows.ignored_names import warn_of_ignored_columns, warn_of_ignored_items
from baobab.tools.data.rows.own_text import describe_rows
from baobab.tools.data.rows.plans import explain_rows
from baobab.tools.data.rows.row_reader import MOST_BYTES, key_condition
from baobab.tools.data.rows.row_requests import (
    is_short_to_read,
    open_table,
    read_query,
    shape_answer,
)
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import find_catalogue, read_rows
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schemas import ActingAs, QueryPlan, Row, RowsOrRow
from baobab.tools.data.toolset import ROWS, data

_PLAN_TEXT = "application/vnd.pgrst.plan+text; charset=utf-8"
_SHORT, _SHORT_BYTES = 100, 2**18
"""Of a list that is read at once, without a thread: what takes long is stopped and begins anew in one."""
_NOT_SHORT = frozenset("({>")
"""The characters with which related tables, aggregates, vectors and places in JSON are written."""
_MOST_COUNTED = 10_000
"""Where counting stops if nobody has asked for the exact number of rows."""


@data.tool(
    "GET /{table}",
    access=ACCESS,
    effect="read",
    raises=(*READ_ERRORS, SingleRowExpected, MediaTypeRefused),
    taints=True,
    listing=ROWS,
    rest=Rest(
        further_query="where",
        query=("prefer", "media_type", *AS_HEADERS),
        from_headers=ANSWER_HEADERS,
        also=("/data/{table}",),
        examples={"select": "id,title", "where": {"title": "ilike.hel*", "id": "gt.10"}, "order": "title.asc"},
    ),
    mcp=Mcp(
        start=True,
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
    **acting: Unpack[ActingAs],
) -> RowsOrRow:
    """List rows of a table that the caller may see.

    select: columns, and related tables in parentheses; by default, all columns. Or aggregates, grouped by the other
      columns: `kind,count(),price.sum()`, and avg, min, max.
    where: filters by column, as `operator.value`: eq, neq, gt, gte, lt, lte, like, ilike, in.(a,b), is.null, wfts, cs,
      cd, ov, negated by `not.`; also `or` and `and`, with conditions in parentheses.
    order: columns, or `author(name)` of a related row, each with `.asc` or `.desc`; `embedding.cosine.{0.1,0.2}`, l2
      or inner for the nearest vectors.
    limit: how many rows at most.
    offset: how many rows to skip.
    prefer: `count=exact` counts all matching rows, however many there are.
    media_type: `application/vnd.pgrst.object+json` for exactly one row, as an object; over REST also `text/csv`.
      `;nulls=stripped` behind either leaves out keys without a value.
    """
    actor = find_actor(call, acting)
    preferences, media = read_preferences(prefer), read_media_type(media_type)
    if media.is_plan:
        query = {"select": select, "where": where, "order": order, "limit": limit, "offset": offset}
        plan = await explain_rows(call, actor, table, query, media.plan_options, as_text=media.kind == "plan_text")
        if media.kind == "plan" or not call.context.streams:
            return plan["plan"]
        return Stream(_send_plan(plan), _PLAN_TEXT)

    def read(rows: Rows, catalogue: Catalogue) -> tuple[Selection, list[Row], int | None]:
        target = open_table(catalogue, rows, table, "SELECT")
        selection = read_query(catalogue, target, select, where)
        selection.order, selection.limit, selection.offset = order, limit, offset
        matching_rows = rows.select(selection)
        if preferences.counts:
            return selection, matching_rows, rows.count(selection)
        # A page that is not full is the last one, which tells the total by itself.
        is_full = len(matching_rows) >= limit or (offset > 0 and not matching_rows)
        is_counted = call.context.counts_lists and media.kind == "rows" and is_full
        return selection, matching_rows, rows.count(selection, _MOST_COUNTED) if is_counted else None

    is_single = not preferences.counts and not call.context.counts_lists and "(" not in (select or "")
    is_short = (
        limit <= _SHORT
        and where is None
        and not preferences.counts
        and not _NOT_SHORT & {*(select or ""), *order}
        and is_short_to_read(await find_catalogue(call), table, actor, order)
    )
    try:
        selection, answer_rows, total = await read_rows(
            call, actor, read, quick=is_short, single=is_single, most_bytes=_SHORT_BYTES if is_short else MOST_BYTES
        )
    except AnswerTooLarge:
        if not is_short:
            raise
        selection, answer_rows, total = await read_rows(call, actor, read)
    _tell_range(call, len(answer_rows), offset, total)
    if total is not None:
        call.count_list(total, is_exact=preferences.counts or total < _MOST_COUNTED)
    warn_of_ignored_items(call, selection)
    await describe_rows(call, await find_catalogue(call), selection, answer_rows)
    if media.kind == "csv" and call.context.streams:
        return Stream(_send_csv(selection, answer_rows), MEDIA_TYPE)
    return shape_answer(answer_rows, media)


@data.tool(
    "GET /data-explain/{table}",
    access=AppOwner(),
    effect="read",
    raises=READ_ERRORS,
    rest=Rest(
        further_query="where",
        query=("analyze", *AS_HEADERS),
        from_headers=AS_HEADERS,
        examples={"where": {"title": "ilike.hel*"}},
    ),
)
async def data_explain(
    call: Call,
    app_id: AppId,
    table: TableName,
    select: SelectText | None = None,
    where: Filters | None = None,
    order: OrderText = "",
    limit: Limit = 100,
    offset: Offset = 0,
    analyze: bool = False,
    **acting: Unpack[ActingAs],
) -> QueryPlan:
    """Show how the database would read rows: which indexes it uses, and what it sorts or searches through.

    Related rows are read by further statements, which are not shown.

    select: columns, as data_list has them.
    where: filters by column, as data_list has them.
    order: columns, as data_list has them.
    limit: how many rows at most.
    offset: how many rows to skip.
    analyze: on Postgres, also run the statement and show how long each step took.
    """
    query = {"select": select, "where": where, "order": order, "limit": limit, "offset": offset}
    return await explain_rows(call, find_actor(call, acting), table, query, ("analyze",) if analyze else ())


@data.tool(
    "GET /{table}/{row_id}",
    access=ACCESS,
    effect="read",
    raises=(*READ_ERRORS, RowNotFound),
    taints=True,
    rest=Rest(
        from_headers=AS_HEADERS,
        also=("/data/{table}/{row_id}",),
        instead={"POST": INSTEAD_OF_POST_TO_A_ROW},
        instead_of_query=INSTEAD_OF_FILTERING_A_ROW,
    ),
)
async def data_get(
    call: Call,
    app_id: AppId,
    table: TableName,
    row_id: RowId,
    select: SelectText | None = None,
    **acting: Unpack[ActingAs],
) -> Row:
    """Read one row by its primary key.

    select: columns, and related tables in parentheses; left out, all columns.
    """
    actor = find_actor(call, acting)

    def read(rows: Rows, catalogue: Catalogue) -> Row | None:
        target = open_table(catalogue, rows, table, "SELECT")
        if select is None and target.view is None:
            return rows.read_by_key(target, row_id)
        selection = read_query(catalogue, target, select, None)
        selection.limit = 1
        matching_rows = rows.select(selection, key=key_condition(target, row_id))
        return matching_rows[0] if matching_rows else None

    is_short = select is None and is_short_to_read(await find_catalogue(call), table, actor)
    row = await read_rows(call, actor, read, quick=is_short, single="(" not in (select or ""))
    if row is None:
        raise RowNotFound(f"`{table}` has no row with this key.")
    if call.context.step is not None:
        catalogue = await find_catalogue(call)
        selection = read_query(catalogue, catalogue.find_readable(table), select, None)
        await describe_rows(call, catalogue, selection, [row])
    await warn_of_ignored_columns(call, table, select)
    return row


async def _send_csv(selection: Selection, rows: list[Row]) -> AsyncGenerator[bytes, None]:
    yield "".join(format_csv(selection.names, rows)).encode()


async def _send_plan(plan: QueryPlan) -> AsyncGenerator[bytes, None]:
    yield "\n".join([row["QUERY PLAN"] for row in plan["plan"]]).encode()


def _tell_range(call: Call, count: int, offset: int, total: int | None) -> None:
    span = f"{offset}-{offset + count - 1}" if count else "*"
    call.headers = [(b"content-range", f"{span}/{'*' if total is None else total}".encode())]
    if total is not None:
        call.headers.append((b"x-total-count", str(total).encode()))
