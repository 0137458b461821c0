"""The parts that all tables share: the metadata with its naming convention, and column types that work alike in both
databases.
"""

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    DateTime,
    Dialect,
    MetaData,
    String,
    Table,
    Text,
    any_,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeDecorator

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Json = JSON(none_as_null=True)

tenant_locks = Table("tenant_locks", metadata, Column("tenant", String(40), primary_key=True))
"""One row for each tenant that has ever written. Where the database locks rows, the tenant's writers wait for each
other on it. This is a table of its own, because a region's database has no rows of apps.
"""


class Instant(TypeDecorator[datetime]):
    """An aware datetime, always in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return _write_instant if dialect.name == "sqlite" else super().bind_processor(dialect)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def result_processor(self, dialect: Dialect, coltype: Any) -> Any:
        return _read_instant if dialect.name == "sqlite" else super().result_processor(dialect, coltype)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)


@lru_cache(maxsize=256)
def _write_instant(value: datetime | None) -> str | None:
    """Returns the text that SQLAlchemy stores in SQLite, in half the time. It is remembered, because the rows of a
    transaction have the same few instants.
    """
    return None if value is None else value.astimezone(UTC).isoformat(" ", "microseconds").removesuffix("+00:00")


def _read_instant(stored_text: str | None) -> datetime | None:
    """Reads a time of SQLite, which stores no time zone; the stored times are UTC. Replacing the zone of a datetime
    takes four times as long as reading one with it.
    """
    return None if stored_text is None else datetime.fromisoformat(stored_text + "+00:00")


class Sealed(Text):
    """Text that only the vault can open. Rotation finds these columns by their type; the sealing context is
    `table.column:id`.
    """


def build_upsert(dialect: str, table: Table) -> Any:
    """Returns an insert that supports `on_conflict_...`, which both databases have in the same form."""
    dialect_module: Any = postgresql if dialect == "postgresql" else sqlite
    return dialect_module.insert(table)


class _List(TypeDecorator[list[Any]]):
    """A list as JSON, in one parameter."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: list[Any] | None, dialect: Dialect) -> Any:
        return json.dumps(value)


def is_listed(dialect: str, column: ColumnElement[Any], parameter: str) -> ColumnElement[bool]:
    """Returns the condition that a column has one of the values of a parameter, a list of any length. The statement
    is compiled once.
    """
    if dialect == "postgresql":
        is_among: ColumnElement[bool] = column == any_(bindparam(parameter, type_=postgresql.ARRAY(column.type)))
        return is_among
    values = func.json_each(bindparam(parameter, type_=_List())).table_valued("value")
    return column.in_(select(values.c.value))
