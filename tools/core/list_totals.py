"""How many entries a list has in all, for interfaces that say it."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Select, func, literal_column, select

from baobab.storage.sql.database import Execute
from baobab.tools.core.call import Call

MOST_COUNTED = 1000
"""Where counting stops: with more, an answer says that there are more than so many."""


async def count_list(
    call: Call,
    execute: Execute,
    query: Select[Any],
    *,
    is_all: bool,
    values: Mapping[str, Any] | None = None,
) -> None:
    """Counts what a list holds in all, and tells it to the call: only where the interface shows totals and the page
    does not tell it by itself.

    query: the list without where its page begins and ends. is_all: whether the page is the whole list. values: those of
    the query's parameters.
    """
    if is_all or not call.context.counts_lists:
        return
    one: Any = literal_column("1").label("one")
    entries = query.with_only_columns(one, maintain_column_froms=True).order_by(None).limit(MOST_COUNTED + 1)
    statement = select(func.count()).select_from(entries.subquery())
    count = (await execute(statement, values)).scalar_one()
    call.count_list(count, is_exact=count <= MOST_COUNTED)
