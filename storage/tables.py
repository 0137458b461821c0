"""What every table shares: the metadata with its naming convention, and column types that both databases hold alike."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, MetaData, Table, Text
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


class Instant(TypeDecorator[datetime]):
    """A point in time, always UTC and always with its zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        # SQLite keeps no zone; what it keeps is UTC.
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Sealed(Text):
    """Text that only the vault can read. Rotation finds these columns by type; the context is `table.column:id`."""


def build_upsert(dialect: str, table: Table) -> Any:
    """An insert that may say what happens on conflict; both databases say it in the same words."""
    said: Any = postgresql if dialect == "postgresql" else sqlite
    return said.insert(table)
