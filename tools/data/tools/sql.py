"""One statement of SQL on the app's own tables, for the app's own code."""

import asyncio
from typing import Annotated, Any, Unpack

from pydantic import Field

from baobab.tools.core import AppId, Call, Guard, Mcp, Text
from baobab.tools.data.access import ACCESS, find_actor
from baobab.tools.data.errors import (
    ForeignKeyViolation,
    NotNullViolation,
    SqlInvalid,
    SqlNotAllowed,
    SqlNotOffered,
    SqlTooLarge,
)
from baobab.tools.data.expressions.compiler import load_parser
from baobab.tools.data.fields import UNDO, WRITE_ERRORS, WRITTEN
from baobab.tools.data.schemas import ActingAs, SqlAnswer
from baobab.tools.data.sql.running import run_query, run_write
from baobab.tools.data.sql.statements import LONGEST, parse_statement
from baobab.tools.data.toolset import data

_MOST_PARAMS = 2000


@data.tool(
    access=ACCESS,
    effect="write",
    raises=(
        *WRITE_ERRORS,
        NotNullViolation,
        ForeignKeyViolation,
        SqlInvalid,
        SqlNotAllowed,
        SqlTooLarge,
        SqlNotOffered,
    ),
    audit=WRITTEN,
    # The app's own code calls it (`ctx.db.query`). Who may send what to a table is easier to see in the tools for rows,
    # so neither REST nor models are offered it.
    mcp=Mcp(offered=False),
    guard=Guard(
        destructive_when="if the statement deletes rows",
        undone_by=UNDO,
        consequence="It changes or deletes rows. data_undo can bring them back within the days of undo.",
    ),
)
async def data_sql(
    call: Call,
    app_id: AppId,
    sql: Annotated[str, Text(LONGEST, min_length=1)],
    params: Annotated[list[Any], Field(max_length=_MOST_PARAMS)] | None = None,
    read_only: bool = False,
    **options: Unpack[ActingAs],
) -> SqlAnswer:
    """Run one statement of SQL on the app's tables, as the caller.

    sql: one SELECT, INSERT, UPDATE or DELETE in the SQL of Postgres, with `$1`, or `?`, for each value.
    params: the values.
    read_only: whether only a SELECT is run.
    """
    del app_id
    actor = find_actor(call, options)
    parser = await load_parser()
    statement = await asyncio.to_thread(parse_statement, parser, sql)
    if statement.kind == "select":
        rows = await run_query(call, actor, statement, params or [])
        return {"rows": rows, "rowCount": len(rows)}
    if read_only:
        raise SqlNotAllowed(
            f"Only a SELECT is run here, and this is {statement.kind.upper()}: the call may read, and write nothing.",
        )
    if statement.kind == "delete":
        call.declare_destructive()
    return await run_write(call, actor, statement, params or [])
