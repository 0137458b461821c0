"""Finds columns by which rows are looked up often and with which no index begins."""

from collections.abc import Iterator
from typing import Any

from baobab.tools.data.schema.catalogue import Catalogue, TableInfo
from baobab.tools.data.schemas import MissingIndex

_WHO = (["user"], ["user_uuid"], ["role"])


def find_missing_indexes(catalogue: Catalogue) -> list[MissingIndex]:
    """Returns one finding for each column that a reference or a policy needs an index for."""
    findings: dict[tuple[str, str], MissingIndex] = {}
    for name, column, reason in _list_lookups(catalogue):
        table = catalogue.tables.get(name)
        if table is not None and column in table.columns and not has_index(table, column):
            message = f"`{name}.{column}` has no index: {reason}."
            findings.setdefault((name, column), {"table": name, "column": column, "message": message})
    return list(findings.values())


def _list_lookups(catalogue: Catalogue) -> Iterator[tuple[str, str, str]]:
    """Yields the columns by which rows are looked up: table, column, and the reason."""
    for table in catalogue.tables.values():
        for column in table.columns.values():
            if column.references is not None:
                parent = column.references.table
                yield table.name, column.name, f"deleting a row of `{parent}` looks for rows that refer to it"
        if table.secured:
            for policy in table.policies.values():
                for tree in (policy.using_tree, policy.check_tree):
                    for name, column_name in _list_compared(tree, {"": table.name}):
                        yield name, column_name, f"the policy `{policy.name}` of `{table.name}` compares it"


def _list_compared(tree: Any, aliases: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yields the columns that a condition compares with the caller or with a column of another table."""
    match tree:
        case ["=", left, right]:
            for side, opposite in ((left, right), (right, left)):
                if side[0] == "column" and (opposite in _WHO or (opposite[0] == "column" and opposite[1] != side[1])):
                    yield aliases[side[1]], side[2]
        case ["in_rows", left, rows]:
            if left[0] == "column":
                yield aliases[left[1]], left[2]
            yield from _list_compared(rows, aliases)
        case {"where": where, "joins": joins}:
            sources = [tree, *joins]
            inner = {**aliases, **{source["alias"]: source["table"] for source in sources}}
            for source in sources:
                if "own" in source:
                    yield source["table"], source["own"]
            for condition in (where, *(join["on"] for join in joins)):
                yield from _list_compared(condition, inner)
        case list():
            for part in tree:
                yield from _list_compared(part, aliases)


def has_index(table: TableInfo, column: str) -> bool:
    if table.key[:1] == (column,) or table.columns[column].unique:
        return True
    return any(index.columns[0] == column and index.method in ("btree", "hash") for index in table.indexes.values())
