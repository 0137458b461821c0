"""/v1/{app_id}/rls/simulate: shows side by side what visitors and single users would see of a table."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import to_json

from baobab.tools.core import AppId, AppOwner, Call, Rest, Text
from baobab.tools.data.actor import SERVICE, VISITOR, Actor
from baobab.tools.data.errors import ColumnNotFound, InvalidFilter, QueryRefused, QueryTimeout, TableNotFound
from baobab.tools.data.fields import Filters, OrderText, TableName
from baobab.tools.data.queries.selection import place_filters, read_selection
from baobab.tools.data.rows.claims import add_claims_of_all
from baobab.tools.data.rows.row_reader import RowReader
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import find_catalogue, read_rows
from baobab.tools.data.schema.catalogue import Catalogue, Expression
from baobab.tools.data.schemas import Simulated, SimulatedRow, Viewer
from baobab.tools.data.toolset import data

ViewerName = Annotated[
    str, Text(36, pattern=r"^(anon|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$"), Field(examples=["anon"])
]


@data.tool(
    "POST /rls/simulate",
    access=AppOwner(),
    effect="read",
    raises=(TableNotFound, ColumnNotFound, InvalidFilter, QueryTimeout, QueryRefused),
    taints=True,
    rest=Rest(
        examples={"table": "posts", "viewers": ["anon", "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"]},
    ),
)
async def rls_simulate(
    call: Call,
    app_id: AppId,
    table: TableName,
    viewers: Annotated[list[ViewerName], Field(min_length=1, max_length=5)],
    where: Filters | None = None,
    order: OrderText = "",
    limit: Annotated[int, Field(ge=1, le=100)] = 20,
) -> Simulated:
    """Show what visitors and users would read of a table or view, side by side: each row with who sees it.

    viewers: `anon` for visitors, or the ids of users.
    where: filters by column, as data_list has them; null for all rows.
    order: columns, each with `.asc` or `.desc`.
    limit: the most rows to compare; the counts cover all.
    """
    names = list(dict.fromkeys(viewers))
    chosen_viewers = [VISITOR if name == "anon" else Actor("user", name.lower()) for name in names]
    actors = await add_claims_of_all(call.services, app_id, await find_catalogue(call), chosen_viewers)

    def compare(rows: Rows, catalogue: Catalogue) -> Simulated:
        matching_rows = _read(rows, catalogue, table, where, order, limit)
        total = _count(rows, catalogue, table, where)
        viewer_rows: list[Viewer] = []
        simulated_rows: list[SimulatedRow] = [{"row": row, "seen_by": []} for row in matching_rows]
        for name, viewer in zip(names, actors, strict=True):
            seeing = rows.see_as(viewer)
            visible = _count(seeing, catalogue, table, where)
            viewer_rows.append({"viewer": name, "visible": visible})
            # The same rows are read once more as the viewer, so that those that a policy hides are missing.
            visible_rows = {to_json(row) for row in _read_among(seeing, catalogue, table, matching_rows)}
            for entry in simulated_rows:
                if to_json(entry["row"]) in visible_rows:
                    entry["seen_by"].append(name)
        return {"table": table, "total": total, "viewers": viewer_rows, "rows": simulated_rows}

    return await read_rows(call, SERVICE, compare)


def _read(
    rows: Rows, catalogue: Catalogue, table: str, where: Mapping[str, Any] | None, order: str, limit: int
) -> list[dict[str, Any]]:
    selection = read_selection(catalogue, catalogue.find_readable(table), None)
    place_filters(selection, where or {})
    selection.order, selection.limit = order, limit
    return rows.select(selection)


def _count(rows: RowReader, catalogue: Catalogue, table: str, where: Mapping[str, Any] | None) -> int:
    selection = read_selection(catalogue, catalogue.find_readable(table), None)
    place_filters(selection, where or {})
    return rows.count(selection)


def _read_among(rows: RowReader, catalogue: Catalogue, table: str, among: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns those of some rows that the actor sees, found by their keys. Rows of a view, which have no key, are found
    by all their values.
    """
    info = catalogue.find_readable(table)
    if not among:
        return []
    names = info.key or tuple(column.name for column in info.columns.values() if column.type.is_ordered)
    conditions: list[Expression] = []
    for row in among:
        parts: list[Expression] = []
        for name in names:
            kind = info.columns[name].type
            value = kind.clean(row[name], name)
            column: Expression = ["column", "", name]
            parts.append(["is", column, "null"] if value is None else ["=", column, ["value", kind.name, value]])
        conditions.append(["and", *parts] if parts else ["true"])
    selection = read_selection(catalogue, info, None)
    if len(names) == len(info.columns):
        # Many rows may be alike where no key tells them apart: each is read once.
        selection.groups = selection.items
    return rows.select(selection, key=["or", *conditions])
