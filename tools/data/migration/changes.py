"""Changes an app's catalogue and the tables that it describes, in one transaction."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlalchemy.exc import IntegrityError

from baobab.storage.sql.database import LockTimeout
from baobab.storage.sql.statements import Statements
from baobab.tools.core import Call
from baobab.tools.data.actor import VISITOR, Actor
from baobab.tools.data.errors import InvalidExpression, InvalidSchema, TablesBusy, ViewNotFollowed
from baobab.tools.data.expressions.expressions import SqlWriter, quote
from baobab.tools.data.expressions.trees import list_names
from baobab.tools.data.history.usage import measure_tables, require_within_plan
from baobab.tools.data.migration.own_tables import create_own_tables
from baobab.tools.data.queries.views import write_view_rows
from baobab.tools.data.rows.own_text import end_own_text, warn_of_ended_marks
from baobab.tools.data.rows.row_security import raise_guard
from baobab.tools.data.rows.transactions import format_moment, require_thawed
from baobab.tools.data.rows.violations import translate_violation
from baobab.tools.data.schema.catalogue import (
    NOTICE,
    Catalogue,
    Expression,
    Policy,
    TableInfo,
    read_catalogue,
    write_catalogue,
)

Change = Callable[[Statements, Catalogue], Catalogue]
_MOST_CHARACTERS = 8_000_000
"""The most characters of a stored catalogue, with the trees of its expressions."""


async def change_catalogue(call: Call, change: Change) -> Catalogue:
    """Changes the catalogue and tells every process.

    change: takes the current catalogue and returns the new one.
    """
    app_id, store = call.require_app().id, call.stores.data
    ended_marks: list[str] = []

    def run(statements: Statements) -> Catalogue:
        create_own_tables(statements, store, app_id)
        require_thawed(statements, store, app_id)
        current = read_catalogue(statements, store, app_id)
        bytes_before = measure_tables(statements, store, app_id)
        result = change(statements, current)
        require_within_plan(call, statements, bytes_before)
        result, ended_marks[:] = end_own_text(result)
        _require_room(current, result)
        result = raise_guard(statements, store, app_id, replace(current, guard=result.guard), result)
        write_catalogue(statements, store, app_id, result)
        return result

    try:
        result = await store.alter(app_id, run, call.unit)
    except IntegrityError as exc:
        raise translate_violation(exc, Catalogue()) from exc
    except LockTimeout as exc:
        raise TablesBusy from exc
    warn_of_ended_marks(call, ended_marks)
    await call.services.notices.publish(call.unit, NOTICE, app_id)
    return result


def _require_room(current: Catalogue, result: Catalogue) -> None:
    """Raises InvalidSchema for a catalogue that would take too much memory, since every process caches it."""
    size = len(result.encode())
    if size > _MOST_CHARACTERS and size > len(current.encode()):
        raise InvalidSchema(
            f"The tables, policies and views have {size} characters as they are kept, and may have {_MOST_CHARACTERS}.",
            remediation="Write fewer or shorter expressions.",
        )


def try_policies(call: Call, statements: Statements, catalogue: Catalogue) -> None:
    """Runs each policy on no rows. Raises InvalidExpression for one that does not fit its table or refers to itself in
    a circle.
    """
    for table in catalogue.tables.values():
        for policy in table.policies.values():
            for tree in (policy.using_tree, policy.check_tree):
                if tree is not None:
                    _try_policy(call, statements, catalogue, table, policy, tree)


def try_views(call: Call, statements: Statements, catalogue: Catalogue) -> None:
    """Reads no row of each view, as a user. Raises InvalidSchema, which names the view that cannot be read."""
    for view in catalogue.views.values():
        try:
            count_rows(
                call, statements, catalogue, catalogue.find_readable(view.name), ["true"], Actor("user", None), limit=0
            )
        except InvalidExpression as exc:
            raise InvalidSchema(f"The view `{view.name}`: {exc.message}") from exc


def _try_policy(
    call: Call, statements: Statements, catalogue: Catalogue, table: TableInfo, policy: Policy, tree: Expression
) -> None:
    missing = sorted(name for alias, name in list_names(tree) if alias == "" and name not in table.columns)
    if missing:
        raise InvalidExpression(
            f"The policy `{policy.name}` of `{table.name}` names `{missing[0]}`, which does not exist."
        )
    # As a user and as a visitor, so that their policies of other tables are tried as well.
    try:
        for actor in (Actor("user", None), VISITOR):
            count_rows(call, statements, catalogue, table, tree, actor, limit=0)
    except InvalidExpression as exc:
        message = f"The policy `{policy.name}` of `{table.name}`: {exc.message}"
        raise InvalidExpression(message, remediation=exc.remedy) from exc


def count_rows(
    call: Call,
    statements: Statements,
    catalogue: Catalogue,
    table: TableInfo,
    condition: Expression,
    actor: Actor,
    *,
    limit: int = 10_000,
) -> int:
    """Counts the rows of a table that fulfil a condition and that the actor may read, up to a limit."""
    writer = SqlWriter(call.stores.data, call.require_app().id, catalogue, actor, format_moment(call))
    alias = quote(table.name)
    if table.view is None:
        source, where = f"{writer.name_table(table.name)} AS {alias}", writer.write(condition, {"": alias})
    else:
        source, where = write_view_rows(writer, table, actor, alias, [condition])
    text = f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT {limit}) AS _n"
    return int(statements.rows(text, *writer.values)[0][0])


def require_followable(catalogue: Catalogue, name: str) -> TableInfo:
    """Returns the table of a name. Raises TableNotFound, or ViewNotFollowed for a view."""
    view = catalogue.views.get(name)
    if view is not None:
        tables = " and ".join(f"`{table}`" for table in view.tables)
        raise ViewNotFollowed(
            f"`{name}` is a view, and views publish no changes.",
            remediation=f"Follow {tables}, and read the view again when something has changed.",
        )
    return catalogue.table(name)


async def change_tables(call: Call, names: Sequence[str], find_since: Callable[[TableInfo], str | None]) -> None:
    """Turns the sending of changes on or off.

    find_since: returns since when the changes of a table are sent; None turns it off.
    """

    def change(statements: Statements, catalogue: Catalogue) -> Catalogue:
        del statements
        for name in names:
            table = require_followable(catalogue, name)
            catalogue = catalogue.with_table(replace(table, live_since=find_since(table)))
        return catalogue

    await change_catalogue(call, change)
