"""Reads what a request asks of rows: the table, the filters, and the columns of the answer."""

from collections.abc import Iterator, Mapping
from typing import Any

from baobab.tools.core import BadRequest
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import MediaTypeRefused, SingleRowExpected, TableNotFound, UserRequired, ViewReadOnly
from baobab.tools.data.expressions.expressions import FALSE, allowed_rows, opened_rows
from baobab.tools.data.expressions.trees import is_leakproof, list_names
from baobab.tools.data.fields import MOST_ROWS
from baobab.tools.data.queries.filters import FilterReader, require_few_searches
from baobab.tools.data.queries.media_types import MediaRequest, read_media_type, strip_nulls
from baobab.tools.data.queries.preferences import Preferences
from baobab.tools.data.queries.selection import Selection, place_filters, read_selection
from baobab.tools.data.rows.rows import Rows, Upsert
from baobab.tools.data.schema.catalogue import Catalogue, Command, Expression, TableInfo
from baobab.tools.data.schemas import Row

_VERBS: Mapping[Command, str] = {"SELECT": "read", "INSERT": "insert", "UPDATE": "change", "DELETE": "delete"}


def open_table(catalogue: Catalogue, rows: Rows, name: str, command: Command) -> TableInfo:
    """Returns a table, or a view for reading. Raises UserRequired for a visitor to whom no policy opens it, and
    TableNotFound, which names the other tables only to those who run the app.
    """
    view = catalogue.views.get(name)
    if view is not None:
        if command != "SELECT":
            raise ViewReadOnly(f"`{name}` is a view, and cannot be written.")
        open_table(catalogue, rows, view.query["tables"][0]["table"], "SELECT")
        return catalogue.find_readable(name)
    try:
        table = catalogue.table(name)
    except TableNotFound as exc:
        if rows.actor.role == "service":
            raise
        raise TableNotFound(f"The app has no table `{name[:63]}`.", remediation=exc.remedy) from None
    if rows.actor.role == "anon" and opened_rows(table, command, rows.actor) == FALSE:
        raise UserRequired(f"No policy of `{name}` lets visitors {_VERBS[command]} rows.")
    return table


def read_query(
    catalogue: Catalogue, table: TableInfo, select: str | None, where: Mapping[str, Any] | None
) -> Selection:
    selection = read_selection(catalogue, table, select)
    place_filters(selection, where or {})
    if selection.embeds:
        require_few_searches(_list_conditions(selection))
    return selection


def _list_conditions(selection: Selection) -> Iterator[Expression]:
    yield from FilterReader(selection.table).read(selection.where)
    for embed in selection.embeds:
        yield from _list_conditions(embed.selection)


def require_filters(table: TableInfo, where: Mapping[str, Any] | None) -> list[Any]:
    """Returns the conditions of a write. Raises BadRequest without any, so that nobody changes a whole table by
    mistake.
    """
    conditions = FilterReader(table).read(where or {})
    if not any(list_names(condition) for condition in conditions):
        name = next(iter(table.key), next(iter(table.columns)))
        raise BadRequest(
            "Changing or deleting rows needs a filter.",
            remediation=f"Say which rows you mean: `{name}` with `eq.` and a value, or `in.(...)` with several.",
        )
    return conditions


def require_few(rows: list[Row], preferences: Preferences, media: MediaRequest) -> list[Row]:
    """Raises BadRequest before the commit if a write changes more rows than it may."""
    limit = MOST_ROWS if preferences.max_affected is None else preferences.max_affected
    if len(rows) > limit:
        raise BadRequest(
            f"This would change {len(rows)} rows, but the limit is {limit}.",
            details={"rows": len(rows), "limit": limit},
            remediation="Narrow the filter. If you mean all of them, say so with the header "
            f"`Prefer: max-affected={len(rows)}` (the argument `prefer` over MCP); nothing was changed yet.",
        )
    if media.kind == "object" and len(rows) != 1:
        raise SingleRowExpected(f"This would change {len(rows)} rows, but the request asks for one.")
    return rows


def find_upsert(table: TableInfo, on_conflict: str | None, preferences: Preferences) -> Upsert | None:
    if on_conflict is None and preferences.resolution is None:
        return None
    columns = tuple(name.strip().strip('"') for name in on_conflict.split(",")) if on_conflict else table.key
    unique = {frozenset(table.key), *(frozenset((c.name,)) for c in table.columns.values() if c.unique)}
    unique |= {frozenset(index.columns) for index in table.indexes.values() if index.unique}
    writable_names = {column.name for column in table.writable_columns}
    unique = {columns for columns in unique if columns <= writable_names}
    if not columns or frozenset(columns) not in unique:
        raise BadRequest(
            f"`on_conflict` names columns of `{table.name}` that are no key and not unique.",
            details={"unique": sorted(sorted(each) for each in unique if each)},
        )
    return Upsert(columns, merge=preferences.resolution != "ignore-duplicates")


def read_written_form(text: str) -> MediaRequest:
    """Reads the form in which a write answers its rows. Raises MediaTypeRefused for a plan, because the write would be
    made.
    """
    media = read_media_type(text)
    if media.is_plan:
        raise MediaTypeRefused("Only the plan of a read is shown: this write would be made.")
    return media


def shape_answer(rows: list[Row], media: MediaRequest) -> list[Row] | Row:
    if media.strips_nulls:
        rows = strip_nulls(rows)
    if media.kind != "object":
        return rows
    if len(rows) != 1:
        raise SingleRowExpected(
            f"The result has {len(rows)} rows, but the request asks for one.", details={"rows": len(rows)}
        )
    return rows[0]


def is_short_to_read(catalogue: Catalogue, name: str, actor: Actor, order: str = "") -> bool:
    """Returns whether a read of a table without filters is short for every content of the table: its policies compare
    small values with small values, and so does its order.

    SQLite counts the steps of a statement, and a call of a function or the comparison of two texts is one, however long
    they are. False also for a view, which may join, and for a table or an order that is not there.
    """
    table = catalogue.tables.get(name)
    if table is None:
        return False
    policy = allowed_rows(table, "SELECT", actor)
    if not is_leakproof(policy) or not all(_is_small(table, column) for _, column in list_names(policy)):
        return False
    names = [part.strip().partition(".")[0].strip('"') for part in order.split(",")] if order else []
    return all(_is_small(table, column) for column in (*names, *(table.key if names else ())))


def _is_small(table: TableInfo, name: str) -> bool:
    column = table.columns.get(name)
    # Numbers with decimals are compared by a function.
    return column is not None and column.type.is_small and column.type.name != "numeric"
