"""Names the tables and views of which visitors, or any user, reach every row."""

from collections.abc import Iterable

from baobab.tools.data.actor import VISITOR, Actor
from baobab.tools.data.catalogue import Catalogue, Command, TableInfo, View
from baobab.tools.data.expressions import FALSE, TRUE, opened_rows
from baobab.tools.data.schemas import Finding

_COMMANDS: tuple[Command, ...] = ("SELECT", "INSERT", "UPDATE", "DELETE")
_SOMEBODY = Actor("user", "00000000-0000-4000-8000-000000000000", "user")
_CALLERS = (("anyone without signing in", VISITOR), ("any signed-in user", _SOMEBODY))


def find_open_tables(catalogue: Catalogue, names: Iterable[str] | None = None) -> list[Finding]:
    """What visitors, or any user, may do with every row of tables, and which views they read as a whole.

    names: the tables to look at, with the views that read them; None for all.
    """
    wanted = set(catalogue.tables if names is None else names)
    findings: list[Finding] = []
    for table in catalogue.tables.values():
        if table.name in wanted:
            for caller, actor in _CALLERS:
                may = [command for command in _COMMANDS if _is_open(table, command, actor)]
                if may:
                    message = f"`{table.name}`: {caller} may {', '.join(may)} any row."
                    findings.append({"table": table.name, "caller": actor.role, "may": list(may), "message": message})
    for view in catalogue.views.values():
        if wanted.intersection(view.tables):
            findings += _find_open_view(catalogue, view)
    return findings


def _find_open_view(catalogue: Catalogue, view: View) -> Iterable[Finding]:
    """A view opens no more than its tables do. It is named because one sees from none of them what it puts together."""
    for caller, actor in _CALLERS:
        # Where a table that is joined by `left join` is closed, its columns are null.
        needed = [each["table"] for each in view.query["tables"] if each["join"] != "LEFT JOIN"]
        if all(_is_open(catalogue.table(name), "SELECT", actor) for name in needed):
            tables = ", ".join(f"`{name}`" for name in view.tables)
            message = f"The view `{view.name}` of {tables}: {caller} may SELECT any row."
            yield {"table": view.name, "caller": actor.role, "may": ["SELECT"], "message": message}


def _is_open(table: TableInfo, command: Command, actor: Actor) -> bool:
    allowed = opened_rows(table, command, actor)
    return allowed == TRUE or (allowed != FALSE and allowed[0] == "or" and TRUE in allowed[1:])
