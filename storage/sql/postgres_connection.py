"""A connection to Postgres: SQLAlchemy Core's statements and results over a session of our own.

SQLAlchemy's layer for asyncio and psycopg's connection cost several times as much as a short statement
(docs/speed.md). What is left of SQLAlchemy here writes the statement, compiled once, and reads the rows, as on SQLite.
"""

import asyncio
import itertools
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import lru_cache
from math import inf
from typing import Any, Literal, TypeVar

import psycopg
from pydantic_core import from_json
from sqlalchemy import Connection, CursorResult, Dialect, Engine, Executable, create_engine
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool
from sqlalchemy.util import await_only, greenlet_spawn

from baobab.storage.sql.confinement import Confinement
from baobab.storage.sql.database import RowStream
from baobab.storage.sql.postgres_session import Before, Column, PostgresSession, QueuedStatement, Row, StatementResult
from baobab.storage.sql.prepared_statements import PreparedStatement, PreparedStatements, Result
from baobab.storage.sql.statements import ByteBudget, Statements

T = TypeVar("T")
_Use = Callable[[PostgresSession, Before], Awaitable[T]]


class _Dialect(PGDialect_psycopg):
    """SQLAlchemy's dialect without its transactions, which begin and end below SQLAlchemy."""

    supports_statement_cache = True

    def do_begin(self, dbapi_connection: Any) -> None: ...

    def do_commit(self, dbapi_connection: Any) -> None: ...

    def do_rollback(self, dbapi_connection: Any) -> None: ...

    def on_connect(self) -> None:
        return None

    def get_default_isolation_level(self, dbapi_conn: Any) -> Literal["READ COMMITTED"]:
        return "READ COMMITTED"


_ROWS_OF_INSERT = 50
"""The most rows of one INSERT. For each number of rows the INSERT is another statement, and the server keeps only a
limited number.
"""
_OWN_USER: QueuedStatement = (b"SET LOCAL ROLE NONE", ())
registry.register("postgresql.baobab", __name__, _Dialect.__name__)
_connecting: ContextVar["_Driver"] = ContextVar("connecting")


def build_engine() -> Engine:
    """Returns the engine that compiles statements for one database and knows its server's version."""
    return create_engine(
        "postgresql+baobab://",
        poolclass=NullPool,
        creator=_connecting.get,
        # Unexpected errors are logged, but without the values of their statement.
        hide_parameters=True,
        json_deserializer=from_json,
        # Without it, an insert does not tell whether its row was there already.
        execution_options={"preserve_rowcount": True},
        paramstyle="numeric_dollar",
        use_native_hstore=False,
    )


class _Cursor:
    """A DB-API cursor, whose rows are in memory when `execute` returns."""

    arraysize = 1
    lastrowid = None

    def __init__(self, connection: "PostgresConnection") -> None:
        self._connection = connection
        self._rows: deque[Row] = deque()
        self.description: list[Column] | None = None
        self.rowcount = -1

    def execute(self, query: str, values: Sequence[Any] = ()) -> None:
        if self._connection.is_queueing:
            self._connection.queue(query, values)
            return
        result: StatementResult = await_only(self._connection.run(query, values))
        self._rows = deque(result.rows)
        self.description, self.rowcount = result.columns, result.row_count

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        if self._connection.is_queueing:
            for values in rows:
                self._connection.queue(query, values)
        else:
            self.rowcount = await_only(self._connection.run_many(query, rows))

    def fetchone(self) -> Row | None:
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        return [self._rows.popleft() for _ in range(min(size or self.arraysize, len(self._rows)))]

    def fetchall(self) -> list[Row]:
        rows, self._rows = list(self._rows), deque()
        return rows

    def close(self) -> None:
        self._rows.clear()


class _ServerCursor(_Cursor):
    """A DB-API cursor that reads its rows from the server when they are asked for."""

    def __init__(self, connection: "PostgresConnection", name: str) -> None:
        super().__init__(connection)
        self._name = name

    def execute(self, query: str, values: Sequence[Any] = ()) -> None:
        super().execute(f"DECLARE {self._name} NO SCROLL CURSOR FOR {query}", values)
        # Tells the columns.
        super().execute(f"FETCH 0 FROM {self._name}")

    def fetchmany(self, size: int | None = None) -> list[Row]:
        super().execute(f"FETCH {size or self.arraysize} FROM {self._name}")
        return self.fetchall()

    def close(self) -> None:
        """Does nothing: the end of the transaction closes it."""


class _Driver:
    """A DB-API connection."""

    closed = broken = False
    """A lost session is noticed below."""

    def __init__(self, connection: "PostgresConnection") -> None:
        self._connection = connection

    def cursor(self, name: str | None = None) -> _Cursor:
        return _ServerCursor(self._connection, name) if name else _Cursor(self._connection)

    def close(self) -> None: ...


class PostgresConnection:
    """A connection that one caller uses at a time, for one transaction after the other. It connects at its first use,
    and again after the session was lost.
    """

    def __init__(
        self,
        engine: Engine,
        prepared_statements: PreparedStatements,
        open_session: Callable[[], Awaitable[PostgresSession]],
    ) -> None:
        """prepared_statements: the statements that were prepared for the engine's dialect."""
        self._engine = engine
        self._prepared_statements = prepared_statements
        self._open_session = open_session
        self._session: PostgresSession | None = None
        self._sync: Connection | None = None
        self._begin: Sequence[bytes] = ()
        self._has_begun = False
        self._is_single = self._may_repeat = False
        self._seconds: float | None = None
        self._queued_statements: list[QueuedStatement] = []
        self.is_queueing = False
        self._identity: QueuedStatement | None = None
        self._wanted_identity: QueuedStatement | None = None

    @property
    def dialect(self) -> Dialect:
        return self._engine.dialect

    def begin(self, *statements: bytes, single: bool = False, reads: bool = False) -> None:
        """Begins a transaction. The server learns of it with its first statement.

        single: the transaction has one statement. That is a transaction by itself, with what is queued before it, so
        the statements that begin one are sent only to a pooler, which needs the settings of a transaction. reads: the
        transaction only reads, so it may be sent again if its answer was lost.
        """
        self._begin, self._has_begun = statements, False
        self._is_single, self._may_repeat = single, reads or not single
        self._identity = self._wanted_identity = None

    def become(self, identity: QueuedStatement | None) -> None:
        """Runs the following statements with another identity, until the end of the transaction. If the identity
        changes, the statement that changes it is sent with the next one.

        identity: that statement, with its values; None for the connection's own user.
        """
        self._wanted_identity = identity

    def limit_time(self, seconds: float) -> None:
        """Stops what still runs after so many seconds of the transaction, which has not sent a statement yet."""
        self._seconds = seconds

    async def lift_time_limit(self) -> None:
        """Lets the following statements take as long as they need, until the end of the transaction."""
        await self.exec_driver_sql("SET LOCAL statement_timeout = 0")
        self._require_session().is_patient = True

    async def commit(self) -> None:
        try:
            if not self._has_begun:
                if not self._queued_statements:
                    return
                await self._use_session(PostgresSession.send)
            await self._require_session().commit(self._queued_statements)
        except psycopg.Error as exc:
            raise _wrap("COMMIT", exc) from exc

    def end(self) -> None:
        """Rolls back the transaction unless it was committed."""
        if self._has_begun and self._session is not None:
            self._session.roll_back()
        if self._session is not None:
            self._session.is_patient = False
            self._session.deadline = inf
        self._begin, self._has_begun, self._queued_statements = (), False, []
        self._seconds = None

    async def execute(self, statement: Executable, values: Any = None) -> Result:
        """Runs one statement; its rows can be read at any time afterwards."""
        ready = self._prepare(statement, values)
        if ready is None:
            return await self._execute_unprepared(statement, values)
        try:
            result = await self.run(ready.text, ready.bind(values))
        except psycopg.Error as exc:
            raise _wrap(ready.text, exc) from exc
        return ready.build_result(result.rows, result.columns, result.row_count)

    async def write(self, statement: Executable, values: Any = None) -> None:
        ready = self._prepare(statement, values)
        if ready is not None:
            self.queue(ready.text, ready.bind(values))
            return
        self.is_queueing = True
        try:
            if self._sync is None or self._sync.invalidated:
                await self._execute_unprepared(statement, values)
            else:
                # It waits for nothing, so it needs no greenlet.
                self._sync.execute(statement, values)
        finally:
            self.is_queueing = False

    def queue(self, query: str, values: Sequence[Any]) -> None:
        """Queues a statement to be sent with the next one or with the commit. Its result is not read."""
        self._change_identity()
        self._queued_statements.append((query.encode(), values))

    async def execute_all(self, queries: Sequence[tuple[Executable, Any]]) -> list[Result]:
        ready = [each for query in queries if (each := self._prepare(*query)) is not None]
        if len(ready) < len(queries) or len(queries) == 1:
            return [await self.execute(statement, values) for statement, values in queries]
        statements = [(each.text, each.bind(values)) for each, (_, values) in zip(ready, queries, strict=True)]
        try:
            results = await self.run_all(statements)
        except psycopg.Error as exc:
            raise _wrap("; ".join([text for text, _ in statements]), exc) from exc
        return [
            each.build_result(result.rows, result.columns, result.row_count)
            for each, result in zip(ready, results, strict=True)
        ]

    async def _execute_unprepared(self, statement: Executable, values: Any = None) -> CursorResult[*tuple[Any, ...]]:
        return await self._call(Connection.execute, statement, values)

    async def scalar(self, statement: Executable, values: Any = None) -> Any:
        return (await self.execute(statement, values)).scalar()

    async def exec_driver_sql(self, statement: str) -> Result:
        return await self._call(Connection.exec_driver_sql, statement)

    async def run_sync(self, work: Callable[[Connection], T]) -> T:
        """Calls a function that runs several statements."""
        return await self._call(work)

    @asynccontextmanager
    async def stream(self, statement: Executable) -> AsyncIterator[RowStream]:
        """Yields the rows of a statement with the execution option `yield_per`, read from the server batch by batch."""
        yield RowStream(
            await self._execute_unprepared(statement.execution_options(stream_results=True)), greenlet_spawn
        )

    async def run_statements(self, work: Callable[[Statements], T]) -> T:
        """Calls a function that runs statements as text."""
        try:
            return await greenlet_spawn(work, PostgresStatements(self))
        finally:
            self.become(None)

    async def run(self, query: str, values: Sequence[Any]) -> StatementResult:
        """Runs a statement as text. Raises psycopg.Error."""

        async def run(session: PostgresSession, before: Before) -> StatementResult:
            return await session.execute(query, values, before)

        return await self._use_session(run)

    async def run_all(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[StatementResult]:
        """Runs several statements as text, which are sent together. Raises psycopg.Error."""

        async def run(session: PostgresSession, before: Before) -> list[StatementResult]:
            return await session.execute_all(statements, before)

        return await self._use_session(run)

    async def run_many(self, query: str, rows: Sequence[Sequence[Any]]) -> int:
        async def run(session: PostgresSession, before: Before) -> int:
            return await session.execute_many(query, rows, before)

        return await self._use_session(run)

    async def read_within(
        self, query: str, values: Sequence[Any], batch: int, take: Callable[[Row], None]
    ) -> list[Row]:
        """Returns the rows of a statement and passes each to `take` first. If `take` raises, the statement is stopped.
        At most `batch` rows more are in memory.
        """

        if self._wanted_identity is not None:
            # It would be forgotten before the statement, which is not sent together with it here.
            self._is_single = False

        async def run(session: PostgresSession, before: Before) -> list[Row]:
            read_rows = []
            async with aclosing(session.stream(query, values, batch, before)) as rows:
                async for row in rows:
                    take(row)
                    read_rows.append(row)
            return read_rows

        return await self._use_session(run)

    def cut(self) -> None:
        """Ends the session the way a network failure would."""
        if self._session is not None:
            self._session.cut()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _call(self, work: Callable[..., T], *arguments: Any) -> T:
        return await greenlet_spawn(self._run_in_greenlet, work, *arguments)

    def _run_in_greenlet(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._sync is None or self._sync.invalidated:
            # The engine asks for the connection that it is to use. The first one asks the server for its version.
            token = _connecting.set(_Driver(self))
            self._sync = self._engine.connect()
            _connecting.reset(token)
            # Always in one, so that nobody who asks begins and commits another (Alembic does).
            self._sync.begin()
        return work(self._sync, *arguments)

    def _prepare(self, statement: Executable, values: Any) -> PreparedStatement | None:
        # Before the first statement of the first connection, the dialect does not know the server's version.
        return None if self._sync is None else self._prepared_statements.prepare(statement, values)

    def _change_identity(self) -> None:
        if self._identity != self._wanted_identity:
            self._queued_statements.append(self._wanted_identity or _OWN_USER)
            self._identity = self._wanted_identity

    async def _use_session(self, run: _Use[T]) -> T:
        self._change_identity()
        if self._has_begun:
            return await self._run_after_queued(run, self._require_session(), ())
        is_used = self._session is not None and self._session.loss is None
        try:
            return await self._begin_with(run)
        except psycopg.OperationalError:
            # Nothing is left of a transaction whose first statement was not answered.
            if not is_used or not self._may_repeat or self._require_session().loss is None:
                raise
        return await self._begin_with(run)

    async def _begin_with(self, run: _Use[T]) -> T:
        session = await self._connect()
        begin = () if self._is_single and not session.is_pooled else self._begin
        if self._seconds is not None:
            session.deadline = asyncio.get_running_loop().time() + self._seconds
            if session.is_pooled:
                begin = (*begin, b"SET LOCAL statement_timeout = %d" % max(1, self._seconds * 1000))
        try:
            return await self._run_after_queued(run, session, begin)
        finally:
            # A statement may be refused before anything is sent.
            self._has_begun = session.is_in_transaction

    async def _run_after_queued(self, run: _Use[T], session: PostgresSession, begin: Sequence[bytes]) -> T:
        result = await run(session, Before(begin, self._queued_statements))
        # If a value was refused before anything was sent, they wait for the next statement.
        self._queued_statements = []
        return result

    async def _connect(self) -> PostgresSession:
        if self._session is not None and self._session.loss is not None:
            await self.close()
        if self._session is None:
            self._session = await self._open_session()
        assert self._session is not None
        return self._session

    def _require_session(self) -> PostgresSession:
        if self._session is None:
            raise psycopg.OperationalError("the connection is lost")
        return self._session


class PostgresStatements:
    """Statements as text. They run in a greenlet of SQLAlchemy's, such as `run_sync` makes."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def rows(self, text: str, *values: Any) -> list[Row]:
        result: StatementResult = self._wait_for(text, self._connection.run(_number_placeholders(text), values))
        return result.rows

    def rows_within(self, budget: ByteBudget, batch: int, text: str, *values: Any) -> list[Row]:
        reading = self._connection.read_within(_number_placeholders(text), values, batch, budget.take)
        rows: list[Row] = self._wait_for(text, reading)
        return rows

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        self._wait_for(text, self._connection.run_many(_number_placeholders(text), list(rows)))

    def insert_many(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        for start in range(0, len(rows), _ROWS_OF_INSERT):
            part = rows[start : start + _ROWS_OF_INSERT]
            self._connection.queue(_repeat_values(text, len(part)), [value for row in part for value in row])

    def become(self, identity: tuple[str, Sequence[Any]] | None) -> None:
        self._connection.become(None if identity is None else (_number_placeholders(identity[0]).encode(), identity[1]))

    @contextmanager
    def confine(self, confinement: Confinement) -> Iterator[None]:
        """Runs the statements under the confinement's role, which also limits their time."""
        if confinement.identity is None:
            raise ValueError("on Postgres, a role confines a statement")
        self.become(confinement.identity)
        try:
            yield
        finally:
            self.become(None)
        # After an error, the transaction ends.
        for setting in ("search_path", "statement_timeout"):
            self._connection.queue(f"SET LOCAL {setting} TO DEFAULT", ())

    def _wait_for(self, text: str, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await_only(work)
        except psycopg.Error as exc:
            raise _wrap(text, exc) from exc


@lru_cache(maxsize=4096)
def _number_placeholders(text: str) -> str:
    numbers = itertools.count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", re.sub(r"IN \?", "= ANY(?)", text))


@lru_cache(maxsize=1024)
def _repeat_values(text: str, count: int) -> str:
    """Turns an INSERT of one row into an INSERT of `count` rows."""
    return _number_placeholders(
        re.sub(r"VALUES (\([?, ]+\))", lambda row: "VALUES " + ", ".join([row[1]] * count), text)
    )


def _wrap(statement: str, error: psycopg.Error) -> Exception:
    """Returns the exception that SQLAlchemy would raise for an error of the driver."""
    return DBAPIError.instance(statement, None, error, psycopg.Error, hide_parameters=True)
