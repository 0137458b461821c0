"""The schema that the migrations make is the one that the code declares."""

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pgvector.sqlalchemy  # noqa: F401 - with its types, columns of vectors can be read
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect

import baobab
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import migrate
from baobab.storage.sql.tables import metadata
from tests.backends import ACTIVE_BACKEND, PostgresBackend

FOR_SEARCH = ("_fts", "words_vector", "ix_rag_vectors_near_")
"""What only one of the two databases has, for searches by words and by meaning: made by migrations alone."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An empty database."""
    backend = ACTIVE_BACKEND[0]
    return backend.create_empty() if isinstance(backend, PostgresBackend) else f"sqlite:///{tmp_path / 'new.db'}"


def import_tables() -> None:
    for module in pkgutil.walk_packages(baobab.__path__, "baobab."):
        if module.name.endswith("tables"):
            importlib.import_module(module.name)


def describe_difference(difference: Any) -> str:
    if isinstance(difference, list):
        return ", ".join(describe_difference(part) for part in difference)
    names = [str(getattr(part, "name", part)) for part in difference[1:] if part is not None]
    return " ".join([difference[0], *names])


def list_differences(connection: Connection) -> list[str]:
    context = MigrationContext.configure(connection, opts={"compare_type": True})
    differences = [describe_difference(each) for each in compare_metadata(context, metadata)]
    inspector = inspect(connection)
    for table in metadata.sorted_tables:
        # Alembic does not compare these, and which column comes first decides which rows lie together.
        key = inspector.get_pk_constraint(table.name)["constrained_columns"]
        if key != [column.name for column in table.primary_key]:
            differences.append(f"key of {table.name}: {key}")
    return differences


async def test_the_migrations_make_the_tables_that_the_code_declares(url: str) -> None:
    import_tables()
    database = database_at(url)
    await database.open()
    await migrate(database)
    async with database.writing() as connection:
        differences = await connection.run_sync(list_differences)
    await database.close()
    assert [each for each in differences if not any(part in each for part in FOR_SEARCH)] == []
