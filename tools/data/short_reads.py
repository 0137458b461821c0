"""Which reads are known to be short, so that they run at once and without a thread where the database is a file."""

from baobab.tools.data.actor import Actor
from baobab.tools.data.catalogue import Catalogue, TableInfo
from baobab.tools.data.expression_trees import is_leakproof, list_names
from baobab.tools.data.expressions import allowed_rows


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
