"""The names in a statement: of tables, of subqueries, and of their columns."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from baobab.tools.data.errors import SqlInvalid, SqlNotAllowed
from baobab.tools.data.sql.pieces import Piece
from baobab.tools.data.values.column_types import ColumnType

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ -]{0,59}")
UNNAMED = "?column?"
"""How Postgres calls a column that has no name."""


class Shown(NamedTuple):
    """A column of a source of rows. kind: its type; None if it is not known. weight: that of what it stands for."""

    kind: ColumnType | None
    weight: int = 1


Columns = Mapping[str, Shown]
"""The columns of a source of rows, by name."""


def quote(name: str) -> str:
    return f'"{name}"'


def read_name(node: Any) -> str:
    """Returns a name as Postgres reads it. Raises SqlNotAllowed for one that is reserved."""
    if type(node).__name__ != "Identifier":
        raise SqlInvalid("A name stands where none may stand, or the other way round.")
    name: str = node.this if node.args.get("quoted") else node.this.lower()
    if not _NAME.fullmatch(name):
        raise SqlNotAllowed(
            f"`{name[:60]}` may not be a name in a statement.",
            remediation="Begin it with a letter, and go on with at most 59 letters, digits, `_`, `-` and spaces.",
        )
    return name


def take_args(node: Any, *names: str) -> Mapping[str, Any]:
    """Returns the arguments of a node. Raises SqlNotAllowed if it has others than these."""
    further = [name for name, value in node.args.items() if value and name not in names]
    if further:
        raise refuse(node, f"with `{further[0].strip('_')}`")
    arguments: Mapping[str, Any] = node.args
    return arguments


def refuse(node: Any, how: str = "") -> SqlNotAllowed:
    """Returns the error for a part of a statement that may not be there."""
    try:
        text = node.sql(dialect="postgres", comments=False)
    except Exception:  # noqa: BLE001 - the parser cannot write everything that it has read
        text = type(node).__name__
    return SqlNotAllowed(f"A statement may not use `{text[:80]}`{' ' if how else ''}{how}.")


@dataclass(slots=True)
class Scope:
    """The names that an expression may use.

    merged: the columns that `using` has made one of several. outputs: the names that ORDER BY may give to columns of
    the result. ctes: the named subqueries.
    """

    sources: dict[str, Columns] = field(default_factory=dict)
    outer: "Scope | None" = None
    ctes: dict[str, Columns] = field(default_factory=dict)
    merged: set[str] = field(default_factory=set)
    stand_ins: Mapping[str, Mapping[str, Piece]] = field(default_factory=dict)
    """Values that stand for the columns of a source that is no source of the statement, such as `excluded`."""

    def add(self, alias: str, columns: Columns) -> None:
        if alias in self.sources:
            raise SqlInvalid(f"`{alias}` names two tables of the statement.", remediation="Give one of them an alias.")
        self.sources[alias] = columns

    def find_cte(self, name: str) -> Columns | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.ctes:
                return scope.ctes[name]
            scope = scope.outer
        return None

    def find_column(self, name: str, alias: str | None) -> Piece:
        """Returns a column. Raises SqlInvalid if there is none of this name, or more than one."""
        scope: Scope | None = self
        while scope is not None:
            column = scope._find(name, alias)  # noqa: SLF001 - of the same class
            if column is not None:
                return column
            scope = scope.outer
        place = f"{alias}.{name}" if alias else name
        raise SqlInvalid(f"The statement has no column `{place}`.", details={"columns": self.list_columns()})

    def _find(self, name: str, alias: str | None) -> Piece | None:
        if alias is not None and alias in self.stand_ins:
            return self.stand_ins[alias].get(name)
        matches = [each for each, columns in self.sources.items() if alias in (None, each) and name in columns]
        if not matches:
            return None
        kind, weight = self.sources[matches[0]][name]
        if alias is None and name in self.merged:
            return Piece(quote(name), kind=kind, weight=weight)
        if len(matches) > 1:
            raise SqlInvalid(f"`{name}` is a column of several tables: write `{matches[0]}.{name}`.")
        return Piece(f"{quote(matches[0])}.{quote(name)}", kind=kind, weight=weight)

    def list_columns(self) -> list[str]:
        return [f"{alias}.{name}" for alias, columns in self.sources.items() for name in columns][:200]
