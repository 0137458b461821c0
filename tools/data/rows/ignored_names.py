"""Names what a request for rows has and the table does not: keys and columns. They are left out, but a run of an agent
must not write such keys.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from baobab.tools.core import Call
from baobab.tools.data.errors import ColumnNotFound
from baobab.tools.data.queries.selection import Selection, read_selection
from baobab.tools.data.rows.transactions import find_catalogue
from baobab.tools.data.schema.catalogue import TableInfo

_MOST_NAMES = 10


def require_known_keys(call: Call, table: TableInfo, rows: Iterable[Mapping[str, Any]]) -> None:
    """Raises ColumnNotFound if a run of an agent would write keys that are no columns.

    Nobody reads the warnings of a run before its values are lost. For programs, the contract leaves such keys out.
    """
    if call.context.name != "agent":
        return
    for row in rows:
        for name in row:
            if name not in table.columns:
                raise ColumnNotFound(
                    f"`{table.name}` has no column `{name[:63]}`, so the run wrote nothing.{_guess(name, table)}",
                    remediation="Use one of details.columns. If the agent's graph names the column, change the graph "
                    "(op:agents_update).",
                    details={"table": table.name, "column": name[:63], "columns": list(table.columns)},
                )


async def warn_of_ignored_keys(call: Call, table_name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Warns of keys of rows that are no columns. Those of generated columns are left out too, as documented."""
    table = (await find_catalogue(call)).tables.get(table_name)
    if table is not None:
        known_names = table.columns.keys()
        keys = dict.fromkeys(key for row in rows if not row.keys() <= known_names for key in row)
        _warn(call, table, [key for key in keys if key not in known_names], "what you sent for it")


async def warn_of_ignored_columns(call: Call, table_name: str, select: str | None) -> None:
    """Warns of columns that `select` names and the table or view does not have."""
    if select:
        catalogue = await find_catalogue(call)
        warn_of_ignored_items(call, read_selection(catalogue, catalogue.find_readable(table_name), select))


def warn_of_ignored_items(call: Call, selection: Selection) -> None:
    """Warns of columns that a selection, or one of its related tables, does not have."""
    _warn(call, selection.table, selection.ignored_names, "it")
    for embed in selection.embeds:
        warn_of_ignored_items(call, embed.selection)


def _warn(call: Call, table: TableInfo, names: list[str], what: str) -> None:
    for name in names[:_MOST_NAMES]:
        call.warn(f"`{table.name}` has no column `{name[:63]}`, so {what} was left out.{_guess(name, table)}")
    if len(names) > _MOST_NAMES:
        call.warn(f"`{table.name}` has no column of {len(names) - _MOST_NAMES} more names, which were left out too.")


def _guess(name: str, table: TableInfo) -> str:
    close_names = get_close_matches(name[:63], table.columns, 1)
    return f" Did you mean `{close_names[0]}`?" if close_names else ""
