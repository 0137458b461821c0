"""Trees of expressions: the tables and columns that one names, and the types of its values."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from baobab.tools.core import BadRequest
from baobab.tools.data.errors import MismatchedTypes
from baobab.tools.data.schema.catalogue import Expression
from baobab.tools.data.values.column_types import ColumnType, parse_type

_PLAIN = {"column", "value", "number", "user", "user_uuid", "role", "now", "claim"}
_COMPARISONS = {"=", "<>", "<", "<=", ">", ">=", "isdistinct"}


def list_names(tree: Any) -> set[tuple[str, str]]:
    """Returns the tables and columns that a tree names, as `(alias, column)`. A table has no column."""
    match tree:
        case ["column", str(alias), str(name)]:
            return {(alias, name)}
        case ["json", inner, _, _]:
            # The names of its steps are those of the JSON.
            return list_names(inner)
        case list():
            return set().union(*map(list_names, tree)) if tree else set()
        case {"table": table, **others}:
            return {(table, "")}.union(*(list_names(part) for part in others.values()))
    return set()


def is_leakproof(tree: Expression, computed: Collection[str] = ()) -> bool:
    """Returns whether evaluating a condition tells nothing of a row but whether it is fulfilled: it compares columns
    with each other or with values.

    computed: the columns that are expressions themselves, of a view.
    """
    kind = tree[0]
    if kind in ("and", "or", "not"):
        return all(is_leakproof(part, computed) for part in tree[1:])
    if kind == "in":
        return all(_is_plain(part, computed) for part in (tree[1], *tree[2]))
    if kind == "is":
        return _is_plain(tree[1], computed)
    if kind == "among":
        return tree[1] not in computed
    if kind in _COMPARISONS:
        return all(_is_plain(part, computed) for part in tree[1:])
    return kind in ("true", "false")


def _is_plain(tree: Expression, computed: Collection[str]) -> bool:
    return tree[0] in _PLAIN and not (tree[0] == "column" and tree[2] in computed)


def is_exact(tree: Expression, find_type: Callable[[str, str], ColumnType]) -> bool:
    """Returns whether a number is an integer or a numeric, which both databases compute exactly.

    find_type: returns the type of a column.
    """
    match tree:
        case ["number", _] | ["exact", *_] | ["call", "length", _] | ["count_rows", _]:
            return True
        case ["exact_choice", ["call", "coalesce", *parts]]:
            return all(is_exact(part, find_type) for part in parts)
        case ["exact_choice", ["case", pairs, default]]:
            parts = [default, *(value for _, value in pairs)]
            return all(part is None or is_exact(part, find_type) for part in parts)
        case ["column", alias, name]:
            return find_type(alias, name).is_exact
    return False


def infer_type(
    tree: Expression, family: str | None, find_type: Callable[[str, str], ColumnType]
) -> tuple[Expression, ColumnType]:
    """Returns an expression as a column of a view computes it, and the type of that column."""
    if tree[0] == "literal":
        family = "text" if tree[2] else "number"
        tree = read_literal(tree, family)
    if tree[0] == "column":
        return tree, replace(find_type(tree[1], tree[2]), serial=False)
    if family != "number":
        return tree, parse_type(family or "text")
    integers = _list_integers(tree, find_type)
    if integers:
        return tree, max(integers, key=lambda kind: int(kind.bounds[1]) if kind.bounds else 0)
    return tree, ColumnType("numeric" if is_exact(tree, find_type) else "double precision")


def _list_integers(tree: Expression, find_type: Callable[[str, str], ColumnType]) -> list[ColumnType]:
    """Returns the types of the integers that the expression chooses from; empty if it may be something else."""
    match tree:
        case ["call", "length", _]:
            return [ColumnType("integer")]
        case ["column", alias, name] if find_type(alias, name).is_integer:
            return [replace(find_type(alias, name), serial=False)]
        case ["number", text] if "." not in text and len(text) < 10:
            return [ColumnType("integer")]
        case ["exact_choice", ["call", "coalesce", *parts]]:
            kinds_of_parts = [_list_integers(part, find_type) for part in parts]
            return [kind for kinds in kinds_of_parts for kind in kinds] if all(kinds_of_parts) else []
    return []


def read_literal(tree: Expression, family: str) -> Expression:
    """Turns a literal into a value of a family. Other trees are returned unchanged."""
    if tree[0] != "literal":
        return tree
    kind = ColumnType("numeric") if family == "number" else parse_type(family)
    try:
        if family == "number":
            return ["number", kind.parse(tree[1], "the expression")]
        value = kind.parse(tree[1], "the expression")
        if kind.name in ("json", "jsonb") and not kind.array:
            value = kind.clean(value, "the expression")
    except BadRequest as exc:
        raise MismatchedTypes(f"`{tree[1][:40]}` is not a valid {kind}.") from exc
    return ["value", str(kind), value]
