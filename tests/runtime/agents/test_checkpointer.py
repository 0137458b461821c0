"""Our checkpoints against LangGraph's own suite for savers."""

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

from baobab.runtime.agents.checkpoint_json import dumps, loads
from baobab.runtime.agents.checkpointer import Checkpointer
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import migrate
from tests.backends import prepare_data, release_data


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    variables = prepare_data(tmp_path)
    database = database_at(variables.get("BAOBAB_DATABASE_URL") or f"sqlite:///{tmp_path / 'baobab.db'}")
    await database.open()
    await migrate(database)
    yield database
    await database.close()
    release_data(tmp_path)


async def test_the_official_suite_passes_whole(database: Database) -> None:
    @checkpointer_test(name="Checkpointer")
    async def checkpointer() -> AsyncGenerator[BaseCheckpointSaver[int], None]:
        yield Checkpointer(database, "app")

    report = await validate(checkpointer)
    report.print_report()
    assert report.passed_all_base()
    failed_tests = [name for name, result in report.results.items() if result.passed is False]
    assert failed_tests == []


@pytest.mark.parametrize(
    "value", [None, 1, "a", [1, {"a": ()}], {"$": "send", "to": "x", "of": 1}, b"\0", {"a": {"$": 1}}]
)
def test_data_is_read_back_as_it_was(value: object) -> None:
    assert loads(dumps(value)) == value


def test_what_is_not_data_is_refused() -> None:
    with pytest.raises(TypeError, match="holds data"):
        dumps({"a": object()})
