"""Describes in one sentence what a write does, for the person who approves it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.core.guard.titles import quote_line
from baobab.tools.core.guard.wording import LABEL, list_names, quote_plain, quote_text

_MOST_GROUPS = 4
_VERBS = {"insert": "insert", "update": "change", "delete": "delete"}
# The title of a deletion has no free text: a value of several words could say what the call does not do.
_PLAIN_FILTERS = re.compile(r"[A-Za-z0-9_.:@/+=&,()*-]{1,100}", re.ASCII)


def say_insertion(arguments: Mapping[str, Any]) -> str:
    amount = _count_rows([arguments.get("values")])
    merges = arguments.get("on_conflict") is not None and "ignore-duplicates" not in str(arguments.get("prefer", ""))
    return f"{'Insert or change' if merges else 'Insert'} {amount} in {_name_table(arguments)}"


def say_update(arguments: Mapping[str, Any]) -> str:
    columns, table = list_names(list(arguments.get("changes") or {})), _name_table(arguments)
    if "row_id" not in arguments:
        return f"Change {columns} of the rows in {table} that match {_say_filters(arguments)}"
    if (label := arguments.get(LABEL)) is not None:
        return f"Change {columns} of {quote_line(label)} in {table}"
    return f"Change {columns} of the row {quote_text(arguments['row_id'])} in {table}"


def say_deletion(arguments: Mapping[str, Any]) -> str:
    table = _name_table(arguments)
    if "row_id" in arguments:
        row = quote_plain(arguments["row_id"], "")
        return f"Delete the row {row} from {table}" if row else f"Delete one row from {table}"
    filters = _write_filters(arguments)
    if filters and not _PLAIN_FILTERS.fullmatch(filters):
        return f"Delete the rows from {table} that match a filter"
    return f"Delete the rows from {table} that match {_say_filters(arguments)}"


def say_batch(arguments: Mapping[str, Any]) -> str:
    """Names the deletions first, because a person must not overlook them."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for write in arguments.get("writes") or ():
        groups.setdefault((str(write.get("op")), str(write.get("table"))), []).append(write)
    sorted_groups = sorted(groups, key=lambda group: group[0] != "delete")
    phrases = [_say_writes(op, table, groups[op, table]) for op, table in sorted_groups[:_MOST_GROUPS]]
    words = ", ".join(phrases)
    if len(sorted_groups) > _MOST_GROUPS:
        words += f" and write to {len(sorted_groups) - _MOST_GROUPS} more tables"
    return f"{words[:1].upper()}{words[1:]}"


def _say_writes(op: str, table: str, writes: Sequence[Mapping[str, Any]]) -> str:
    rows = _count_rows([write.get("values") for write in writes]) if op == "insert" else "rows"
    return f"{_VERBS.get(op, 'write')} {rows} {'from' if op == 'delete' else 'in'} {escape_name(table)}"


def _name_table(arguments: Mapping[str, Any]) -> str:
    return escape_name(str(arguments.get("table")))


def _count_rows(bodies: Sequence[Any]) -> str:
    count = sum(len(values) if isinstance(values, list) else 1 for values in bodies)
    return "1 row" if count == 1 else f"{count} rows"


def _say_filters(arguments: Mapping[str, Any]) -> str:
    filters = _write_filters(arguments)
    return quote_text(filters) if filters else "no filter"


def _write_filters(arguments: Mapping[str, Any]) -> str:
    """Writes the filters as they stand in a URL."""
    where: Mapping[str, Any] = arguments.get("where") or {}
    pairs = [(name, each) for name, texts in where.items() for each in (texts if isinstance(texts, list) else [texts])]
    return "&".join(f"{name}={value}" for name, value in pairs)
