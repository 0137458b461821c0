"""Finds the tables and views in which visitors, or all users, reach every row: by proof, or by counting."""

from collections.abc import Callable, Iterable

from baobab.tools.data.actor import VISITOR, Actor
from baobab.tools.data.expressions.caller_expressions import SIGNED_IN
from baobab.tools.data.expressions.expressions import FALSE, TRUE, opened_rows
from baobab.tools.data.schema.catalogue import Catalogue, Command, Expression, TableInfo, View
from baobab.tools.data.schemas import Finding

_COMMANDS: tuple[Command, ...] = ("SELECT", "INSERT", "UPDATE", "DELETE")
SOMEBODY = Actor("user", "00000000-0000-4000-8000-000000000000", "user")
MOST_COUNTED = 10_000
"""Rows of a table are counted up to this number."""
_CALLERS = (("anyone without signing in", VISITOR), ("any signed-in user", SOMEBODY))


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


def find_full_views(
    catalogue: Catalogue, findings: Iterable[Finding], count: Callable[[TableInfo, Expression, Actor], int]
) -> list[Finding]:
    """Returns tables whose rows visitors, or all users, see without exception today, although no policy's text says so.
    Tables of more than 10 000 rows are left out.

    findings: what is known already. count: counts the rows that fulfil a condition, up to `MOST_COUNTED`.
    """
    known_findings = {(finding["table"], finding["caller"]) for finding in findings if "SELECT" in finding["may"]}
    full_views: list[Finding] = []
    for table in catalogue.tables.values():
        for caller, actor in _CALLERS:
            condition = opened_rows(table, "SELECT", actor)
            if condition == FALSE or (table.name, actor.role) in known_findings:
                continue
            total = count(table, TRUE, actor)
            if 0 < total < MOST_COUNTED and count(table, condition, actor) == total:
                full_views.append(describe_full_view(table.name, caller, actor, total))
    return full_views


def describe_full_view(table: str, caller: str, actor: Actor, total: int) -> Finding:
    rows = "the only row" if total == 1 else f"all {total} rows"
    message = f"`{table}`: {caller} sees {rows} that it has now. Narrow the policy if some are not meant for everybody."
    return {"table": table, "caller": actor.role, "may": ["SELECT"], "message": message}


def _is_open(table: TableInfo, command: Command, actor: Actor) -> bool:
    return _holds(opened_rows(table, command, actor), table, actor)


def _holds(tree: Expression, table: TableInfo, actor: Actor) -> bool:
    """Returns whether a condition is provably true for every row and every caller of this kind, whatever its text."""
    match tree:
        case ["or", *parts]:
            return any(_holds(part, table, actor) for part in parts) or any(
                part[0] == "is" and ["not", part] in parts for part in parts
            )
        case ["and", *parts]:
            return all(_holds(part, table, actor) for part in parts)
        case ["not", ["is", ["column", _, str(name)], "null"]]:
            return _needs_value(table, name)
        case ["=" | "<=" | ">=", ["column", _, str(name)] as left, right]:
            return left == right and _needs_value(table, name)
        case ["=", ["literal", *left], ["literal", *right]]:
            return left == right
    return tree == TRUE or (actor.role == "user" and tree == SIGNED_IN)


def _needs_value(table: TableInfo, name: str) -> bool:
    return name in table.columns and table.columns[name].needs_value
