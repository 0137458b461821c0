"""Explains how the database would read rows, for those who run the app."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.core import Anonymous, Call, EndUser, Forbidden
from baobab.tools.data.actor import Actor
from baobab.tools.data.rows.row_requests import open_table, read_query
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import read_rows
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schemas import QueryPlan


async def explain_rows(
    call: Call,
    actor: Actor,
    table: str,
    query: Mapping[str, Any],
    options: tuple[str, ...] = (),
    *,
    as_text: bool = False,
) -> QueryPlan:
    """Returns the database's plan of the statement that reads a table. Related rows are read by further statements.

    query: the arguments of data_list. options: `analyze` also runs the statement, on Postgres. Raises Forbidden for
    users and visitors: a plan shows how many rows others have.
    """
    if isinstance(call.caller, EndUser | Anonymous):
        raise Forbidden("Only those who run the app can see how its rows are read.")

    def explain(rows: Rows, catalogue: Catalogue) -> QueryPlan:
        target = open_table(catalogue, rows, table, "SELECT")
        selection = read_query(catalogue, target, query["select"], query["where"])
        selection.order, selection.limit, selection.offset = query["order"], query["limit"], query["offset"]
        return rows.explain(selection, options, as_text=as_text)

    return await read_rows(call, actor, explain)
