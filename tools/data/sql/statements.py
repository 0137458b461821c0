"""Reads the text of a statement: one SELECT, INSERT, UPDATE or DELETE, as a tree that nothing has evaluated yet."""

from dataclasses import dataclass
from typing import Any, Literal

from baobab.tools.data.errors import SqlInvalid, SqlNotAllowed

Kind = Literal["select", "insert", "update", "delete"]
LONGEST = 10_000
"""Characters of a statement."""
_DEEPEST = 60
"""How deep a tree may be: each level is a call of several functions."""
_KINDS: dict[str, Kind] = {
    "Select": "select",
    "Union": "select",
    "Intersect": "select",
    "Except": "select",
    "Values": "select",
    "Subquery": "select",
    "Insert": "insert",
    "Update": "update",
    "Delete": "delete",
}
_CONNECTIVES = ("And", "Or")


@dataclass(frozen=True, slots=True)
class Statement:
    kind: Kind
    tree: Any


def parse_statement(parser: Any, text: str) -> Statement:
    """Parses a statement in the SQL of Postgres. Raises SqlInvalid or SqlNotAllowed, which say what is wrong.

    parser: the module sqlglot.
    """
    if len(text) > LONGEST:
        raise SqlInvalid(f"A statement has at most {LONGEST} characters: give values in `params`.")
    if "\x00" in text:
        raise SqlInvalid("The statement holds a NUL character.")
    try:
        trees = [tree for tree in parser.parse(text, dialect="postgres") if tree is not None]
    except parser.errors.SqlglotError as exc:
        raise SqlInvalid(f"The statement cannot be parsed: {_explain(exc)}") from exc
    except RecursionError as exc:
        raise SqlInvalid("The statement is nested too deeply.") from exc
    if len(trees) != 1:
        raise SqlInvalid(f"`sql` holds {len(trees)} statements: send one a call.")
    [tree] = trees
    kind = _KINDS.get(type(tree).__name__)
    if kind is None:
        word = text.split(maxsplit=1)[0][:20]
        raise SqlNotAllowed(f"`{word}` is not a statement that may be run: SELECT, INSERT, UPDATE and DELETE are.")
    if _measure_depth(tree) > _DEEPEST:
        raise SqlInvalid("The statement is nested too deeply.")
    return Statement(kind, tree)


def _explain(error: Any) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return "a text, a name or a comment does not end."
    first = details[0]
    description = str(first.get("description") or "it is not valid").rstrip(".")
    return f"{description[:200]}, at line {first.get('line')}, column {first.get('col')}."


def _measure_depth(tree: Any) -> int:
    """Returns how deep a tree is, in which `a and b and c` counts as one level."""
    deepest, waiting = 0, [(tree, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        name = type(node).__name__
        for child in node.iter_expressions():
            is_chain = name in _CONNECTIVES and type(child).__name__ == name
            waiting.append((child, depth if is_chain else depth + 1))
    return deepest
