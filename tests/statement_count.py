"""Counts what this process has Postgres run, and how many transactions it commits."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from baobab.storage.sql.postgres_connection import PostgresConnection

_WATCH = "SELECT agent_runs.id, agent_runs.last_seq, agent_runs.status"
_UPKEEP = ("FROM notices", "WITH RECURSIVE lines", "last_used_at=", _WATCH)
"""Statements that every process makes now and then, whether anybody calls or not."""
_OF_RUNS = ("agent_runs", "UPDATE jobs", "INTO jobs")


@dataclass
class StatementCount:
    """texts: the statements of calls and jobs, in order, without those that begin and end transactions."""

    texts: list[str] = field(default_factory=list)
    round_trips: list[tuple[str, ...]] = field(default_factory=list)
    """The statements for whose results somebody waited together."""
    commits: int = 0
    """Those of transactions that read or write runs or their jobs."""
    touching: set[PostgresConnection] = field(default_factory=set)


@contextlib.contextmanager
def count_statements() -> Iterator[StatementCount]:
    count = StatementCount()

    def note_text(connection: PostgresConnection, query: str) -> None:
        if not any(part in query for part in _UPKEEP):
            count.texts.append(query)
        if any(part in query for part in _OF_RUNS):
            count.touching.add(connection)

    def note(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(connection: PostgresConnection, query: str, *values: Any) -> Any:
            note_text(connection, query)
            if original is not original_queue:
                count.round_trips.append((query,))
            return original(connection, query, *values)

        return run

    original_queue, original_run_all = PostgresConnection.queue, PostgresConnection.run_all

    async def run_all(connection: PostgresConnection, statements: Sequence[tuple[str, Any]]) -> Any:
        count.round_trips.append(tuple([query for query, _ in statements]))
        for query, _ in statements:
            note_text(connection, query)
        return await original_run_all(connection, statements)

    original_begin = PostgresConnection.begin

    def begin(connection: PostgresConnection, *statements: bytes, **how: bool) -> None:
        # A read by itself is never committed: what its connection is used for next has its own commit.
        count.touching.discard(connection)
        original_begin(connection, *statements, **how)

    original_commit = PostgresConnection.commit

    async def commit(connection: PostgresConnection) -> None:
        if connection in count.touching:
            count.commits += 1
            count.touching.discard(connection)
        await original_commit(connection)

    with contextlib.ExitStack() as stack:
        for name in ("run", "queue"):
            noting = note(getattr(PostgresConnection, name))
            stack.enter_context(mock.patch.object(PostgresConnection, name, noting))
        stack.enter_context(mock.patch.object(PostgresConnection, "run_all", run_all))
        stack.enter_context(mock.patch.object(PostgresConnection, "begin", begin))
        stack.enter_context(mock.patch.object(PostgresConnection, "commit", commit))
        yield count
