"""Finds the tables and views in which visitors, or all users, reach every row."""

from collections.abc import Iterable

from baobab.tools.data.actor import VISITOR, Actor
from baobab.tools.data.caller_expressions import SIGNED_IN
from baobab.tools.data.catalogue import Catalogue, Command, TableInfo, View
from baobab.tools.data.expressions import TRUE, opened_rows
from baobab.tools.data.schemas import Finding

_COMMANDS: tuple[Command, ...] = ("SELECT", "INSERT", "UPDATE", "DELETE")
_SOMEBODY = Actor("user", "00000000-0000-4000-8000-000000000000", "user")
_CALLERS = (("anyone without signing in", VISITOR), ("any signed-in user", _SOMEBODY))


def find_open_tables(catalogue: Catalogue, names: Iterable[str] | None = None) -> list[Finding]:
    """Returns what visitors, or all users, may do with every row of a table, and which views they can read in full.

    names: the tables to look at, with the views that read them; None for all tables.
    """
    chosen_names = set(catalogue.tables if names is None else names)
    findings: list[Finding] = []
    for table in catalogue.tables.values():
        if table.name in chosen_names:
            for caller, actor in _CALLERS:
                may = [command for command in _COMMANDS if _is_open(table, command, actor)]
                if may:
                    message = f"`{table.name}`: {caller} may {', '.join(may)} any row."
                    findings.append({"table": table.name, "caller": actor.role, "may": list(may), "message": message})
    for view in catalogue.views.values():
        if chosen_names.intersection(view.tables):
            findings += _find_open_view(catalogue, view)
    return findings


def _find_open_view(catalogue: Catalogue, view: View) -> Iterable[Finding]:
    """Checks one view. It opens no more than its tables do, but that cannot be seen from a single table."""
    for caller, actor in _CALLERS:
        # If a table joined by `left join` is closed, its columns are null.
        inner_tables = [each["table"] for each in view.query["tables"] if each["join"] != "LEFT JOIN"]
        if all(_is_open(catalogue.table(name), "SELECT", actor) for name in inner_tables):
            tables = ", ".join(f"`{name}`" for name in view.tables)
            message = f"The view `{view.name}` of {tables}: {caller} may SELECT any row."
            yield {"table": view.name, "caller": actor.role, "may": ["SELECT"], "message": message}


def _is_open(table: TableInfo, command: Command, actor: Actor) -> bool:
    condition = opened_rows(table, command, actor)
    alternatives = condition[1:] if condition[0] == "or" else [condition]
    return TRUE in alternatives or (actor.role == "user" and SIGNED_IN in alternatives)
