"""One step of a migration."""

from dataclasses import dataclass

from baobab.tools.data.schema.catalogue import Column, TableInfo
from baobab.tools.data.schemas import Statement


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a migration.

    fill: for a new column, the value that present rows get.
    """

    sql: str
    description: str
    destructive: bool = False
    authorise: str = ""
    """What the document must contain to allow the step, if it loses data."""
    fill: tuple[TableInfo, Column] | None = None
    check_nulls: tuple[TableInfo, Column] | None = None
    check_rows: TableInfo | None = None
    """The table whose rows must meet its conditions before the step runs."""


def describe(changes: list[Change]) -> list[Statement]:
    return [
        {"sql": change.sql, "description": change.description, "destructive": change.destructive} for change in changes
    ]
