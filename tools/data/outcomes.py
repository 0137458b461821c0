"""Describes in one sentence what a write does, for the person who approves it."""

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.tools.core.wording import list_texts, quote_text

_MOST_GROUPS = 4
_VERBS = {"insert": "inserts", "update": "changes", "delete": "deletes"}


def say_insertion(arguments: Mapping[str, Any]) -> str:
    amount = _count_rows([arguments.get("values")])
    merges = arguments.get("on_conflict") is not None and "ignore-duplicates" not in str(arguments.get("prefer", ""))
    return f"{'Inserts or changes' if merges else 'Inserts'} {amount} in {quote_text(arguments.get('table'))}"


def say_update(arguments: Mapping[str, Any]) -> str:
    columns, table = list_texts(list(arguments.get("changes") or {})), quote_text(arguments.get("table"))
    if "row_id" in arguments:
        return f"Changes {columns} of the row {quote_text(arguments['row_id'])} in {table}"
    return f"Changes {columns} of the rows in {table} that match {_say_filters(arguments)}"


def say_deletion(arguments: Mapping[str, Any]) -> str:
    table = quote_text(arguments.get("table"))
    if "row_id" in arguments:
        return f"Deletes the row {quote_text(arguments['row_id'])} from {table}"
    return f"Deletes the rows from {table} that match {_say_filters(arguments)}"


def say_batch(arguments: Mapping[str, Any]) -> str:
    """Names the deletions first, because a person must not overlook them."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for write in arguments.get("writes") or ():
        groups.setdefault((str(write.get("op")), str(write.get("table"))), []).append(write)
    sorted_groups = sorted(groups, key=lambda group: group[0] != "delete")
    phrases = [_say_writes(op, table, groups[op, table]) for op, table in sorted_groups[:_MOST_GROUPS]]
    words = ", ".join(phrases)
    if len(sorted_groups) > _MOST_GROUPS:
        words += f" and writes to {len(sorted_groups) - _MOST_GROUPS} more tables"
    return f"{words[:1].upper()}{words[1:]}"


def _say_writes(op: str, table: str, writes: Sequence[Mapping[str, Any]]) -> str:
    rows = _count_rows([write.get("values") for write in writes]) if op == "insert" else "rows"
    return f"{_VERBS.get(op, 'writes')} {rows} {'from' if op == 'delete' else 'in'} {quote_text(table)}"


def _count_rows(bodies: Sequence[Any]) -> str:
    count = sum(len(values) if isinstance(values, list) else 1 for values in bodies)
    return "1 row" if count == 1 else f"{count} rows"


def _say_filters(arguments: Mapping[str, Any]) -> str:
    """Writes the filters as they stand in a URL."""
    where: Mapping[str, Any] = arguments.get("where") or {}
    pairs = [(name, each) for name, texts in where.items() for each in (texts if isinstance(texts, list) else [texts])]
    return quote_text("&".join(f"{name}={value}" for name, value in pairs)) if pairs else "no filter"
