"""One session of a Postgres server, spoken to through libpq, as `psycopg.pq` wraps it.

psycopg's own connection registers with the event loop for each answer and takes a lock for each statement, which costs
three times as much as the statement itself. It still connects, converts values, and cancels.
"""

import asyncio
import os
import socket
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from math import inf
from typing import Any, NamedTuple, Self

import psycopg
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.json import set_json_loads
from pydantic_core import from_json

from baobab.storage.cancellation import run_to_completion
from baobab.storage.sql.pooler import leads_to_pooler

SETTINGS = {
    "timezone": "UTC",
    "lock_timeout": "10s",
    "statement_timeout": "30s",
    # A worker that freezes during a transaction must neither hold the write lock for ever nor commit when it wakes.
    "idle_in_transaction_session_timeout": "10s",
}
_CONNECT_SECONDS = 5
_SILENCE_SECONDS = 31
"""Longer than any statement may take, so that a running server would have answered."""
_CHECK_SECONDS = 0.25
_LAST_ANSWER_SECONDS = 0.05
_CANCEL_SECONDS = 5
_PREPARE_AFTER = 5
_MOST_PREPARED = 200
_MOST_COUNTED = 2000
_ROWS_AT_ONCE = 100

_FAILED = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE, ExecStatus.PIPELINE_ABORTED)
_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_ENDING = ("FATAL", "PANIC")
_CHANGING = (b"ALTER", b"DROP")
_ADAPTERS = AdaptersMap(psycopg.adapters)
set_json_loads(from_json, _ADAPTERS)

Row = tuple[Any, ...]
Column = tuple[str, int, None, None, None, None, None]
_Key = tuple[bytes, tuple[int, ...]]


QueuedStatement = tuple[bytes, Sequence[Any]]


class Before(NamedTuple):
    """Commands that are sent ahead of a statement, in the same round trip."""

    begin: Sequence[bytes] = ()
    """Statements without values that begin the transaction."""
    queued_statements: Sequence[QueuedStatement] = ()
    """Statements with their values, whose results are not needed."""

    def __bool__(self) -> bool:
        return bool(self.begin or self.queued_statements)


NOTHING = Before()


class StatementResult(NamedTuple):
    """The rows and the counts that a statement has returned."""

    rows: list[Row]
    columns: list[Column] | None
    """The columns of a statement that returns rows, in the form of DB-API's `description`."""
    row_count: int
    """The number of rows that were changed or found; -1 if the statement does neither."""


class _Prepared:
    """A prepared statement on the server. The types of its columns cannot change."""

    __slots__ = ("columns", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.columns: list[Column] | None = None


class _Outgoing(NamedTuple):
    """A statement with its encoded values."""

    key: _Key
    parameters: Sequence[Any]
    formats: Sequence[Any] | None = None
    prepared_statement: _Prepared | None = None
    is_new: bool = False
    """Whether the server must prepare it now."""


_COMMIT = _Outgoing((b"COMMIT", ()), ())


class PostgresSession:
    """A session that one caller uses at a time. Once its server is gone, `loss` says why."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], *, is_pooled: bool) -> None:
        """Use `open`."""
        self._connection = connection
        self._pgconn = connection.pgconn
        self._transformer = Transformer.from_context(connection)
        self.is_pooled = is_pooled
        """Whether each transaction may run in another session of the server, which does not have the last one's
        state.
        """
        self._prepared_by_key: OrderedDict[_Key, _Prepared] = OrderedDict()
        self._uses: dict[_Key, int] = {}
        self._names = 0
        self._has_unread_answer = False
        self._must_forget = False
        self._waiter: asyncio.Future[None] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.loss: psycopg.Error | None = None
        self.is_patient = False
        """Whether the server may take as long as it needs for an answer."""
        self.deadline = inf
        """When statements are stopped, by the clock of the event loop."""
        self._stopping: asyncio.Task[None] | None = None
        self._using = _Use(self)
        self._loop = asyncio.get_running_loop()
        # One of our own, which nobody closes while the event loop watches it: its number would soon be another's.
        self._socket = socket.socket(fileno=os.dup(self._pgconn.socket))
        self._loop.add_reader(self._socket, self._receive)

    @classmethod
    async def open(cls, url: str, name: str) -> Self:
        """Connects and returns a session. url: in libpq's form. name: the application name. Raises psycopg.Error."""
        connection = await psycopg.AsyncConnection.connect(
            url,
            autocommit=True,
            # Behind a pooler, statements are not prepared, and here they are by ourselves.
            prepare_threshold=None,
            connect_timeout=_CONNECT_SECONDS,
            application_name=name,
            context=_ADAPTERS,
        )
        try:
            with _cut_when_silent(connection):
                is_pooled = await leads_to_pooler(connection)
                if not is_pooled:
                    # A session of our own keeps them; a pooler's would keep them for somebody else.
                    settings = [f"SET {setting} = '{value}'" for setting, value in SETTINGS.items()]
                    await connection.execute("; ".join(settings).encode())
        except BaseException:
            await connection.close()
            raise
        return cls(connection, is_pooled=is_pooled)

    @property
    def is_in_transaction(self) -> bool:
        return self.loss is None and self._pgconn.transaction_status != TransactionStatus.IDLE

    async def execute(self, query: str, values: Sequence[Any] = (), before: Before = NOTHING) -> StatementResult:
        """Runs a statement with the values of `$1`, `$2` and so on. Raises psycopg.Error, also for a statement that was
        queued before it.
        """
        async with self._using:
            return await self._execute(query.encode(), values, before)

    async def execute_all(
        self, statements: Sequence[tuple[str, Sequence[Any]]], before: Before = NOTHING
    ) -> list[StatementResult]:
        """Runs several statements one after the other, and returns their results. They are sent together."""
        async with self._using:
            return await self._execute_all([(query.encode(), values) for query, values in statements], before)

    async def execute_many(self, query: str, rows: Sequence[Sequence[Any]], before: Before = NOTHING) -> int:
        """Runs a statement for each row of values, and returns the total number of changed rows."""
        async with self._using:
            return await self._execute_many(query.encode(), rows, before)

    async def stream(
        self, query: str, values: Sequence[Any], size: int, before: Before = NOTHING
    ) -> AsyncGenerator[Row, None]:
        """Yields the rows of a statement, with at most `size` rows in memory. Closing the stream early stops the
        statement, which may break its transaction.
        """
        async with self._using:
            if before:
                await self._send_before(before)
            (statement,) = self._convert([(query.encode(), values)])
            self._send(statement._replace(prepared_statement=None))
            self._pgconn.set_chunked_rows_mode(size)
            failed_result: PGresult | None = None
            while (result := await self._receive_result()) is not None:
                if result.status in _FAILED:
                    failed_result = result
                else:
                    for row in self._load(result):
                        yield row
            if failed_result is not None:
                raise error_from_result(failed_result)

    async def send(self, before: Before) -> None:
        """Sends the commands that would precede a statement, without a statement."""
        async with self._using:
            await self._send_before(before)

    async def commit(self, queued_statements: Sequence[QueuedStatement] = ()) -> None:
        """Commits. Raises psycopg.Error if nothing was committed, for example because a statement had failed."""
        async with self._using:
            if queued_statements:
                (*_, result) = await self._send_all([*self._convert(queued_statements), _COMMIT], ())
            else:
                (result,) = await self._run_text(_COMMIT.key[0])
            if result.command_status != b"COMMIT":
                # The server rolls back a transaction in which a statement has failed, and calls that no error.
                raise psycopg.errors.InFailedSqlTransaction("a statement of the transaction had failed")

    def roll_back(self) -> None:
        """Sends the rollback. The next use of the session reads the answer."""
        if self.loss is None and self._pgconn.transaction_status in _OPEN:
            try:
                self._pgconn.send_query(b"ROLLBACK")
                self._has_unread_answer = True
                self._pgconn.flush()
            except psycopg.Error as exc:
                self._lose(exc)

    def cut(self) -> None:
        """Ends the session the way a network failure would."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        self._lose(psycopg.OperationalError("the connection is closed"))
        await self._connection.close()

    async def prepare_use(self) -> None:
        """Makes the session ready for a statement. Raises psycopg.OperationalError if it is lost."""
        if self._has_unread_answer or self._must_forget or self.loss is not None:
            await self._get_ready()

    async def end_use(self, error: BaseException | None) -> None:
        """Leaves the session ready for the next statement, or lost."""
        try:
            if isinstance(error, asyncio.CancelledError | GeneratorExit):
                await run_to_completion(self._stop_statement())
            elif isinstance(error, psycopg.errors.FeatureNotSupported):
                # A prepared statement whose table has other columns by now.
                self._must_forget = True
            elif isinstance(error, psycopg.Error):
                self._lose_if_ended(error)
        finally:
            if self._stopping is not None:
                # It must have arrived, or it would stop the next statement.
                await run_to_completion(self._stopping)
                self._stopping = None
            if self._pgconn.transaction_status == TransactionStatus.ACTIVE or self._is_pipelining:
                # Something failed between a statement and its answer.
                self._lose(psycopg.OperationalError("the connection was given up"))

    async def _execute(self, query: bytes, values: Sequence[Any], before: Before) -> StatementResult:
        if not values and b";" in query:
            # Several statements in one text, which only libpq's simple protocol takes.
            if before:
                await self._send_before(before)
            return self._build_result((await self._run_text(query))[-1], None)
        outgoing = self._convert([*before.queued_statements, (query, values)])
        if len(outgoing) > 1 or before.begin or outgoing[-1].is_new:
            result = (await self._send_all(outgoing, before.begin))[-1]
        else:
            self._send(outgoing[-1])
            result = (await self._receive_results())[-1]
        return self._build_result(result, outgoing[-1].prepared_statement)

    async def _execute_all(self, statements: Sequence[QueuedStatement], before: Before) -> list[StatementResult]:
        outgoing = self._convert([*before.queued_statements, *statements])
        results = await self._send_all(outgoing, before.begin)
        result_pairs = zip(results, outgoing, strict=True)
        return [
            self._build_result(result, statement.prepared_statement)
            for result, statement in islice(result_pairs, len(before.queued_statements), None)
        ]

    async def _execute_many(self, query: bytes, rows: Sequence[Sequence[Any]], before: Before) -> int:
        count = 0
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            before_part = before if start == 0 else NOTHING
            outgoing = self._convert([*before_part.queued_statements, *[(query, values) for values in part]])
            results = await self._send_all(outgoing, before_part.begin)
            count += sum([result.command_tuples or 0 for result in results[-len(part) :]])
        return count

    async def _send_before(self, before: Before) -> None:
        await self._send_all(self._convert(before.queued_statements), before.begin)

    def _convert(self, statements: Sequence[QueuedStatement]) -> list[_Outgoing]:
        """Encodes statements. All are encoded before the first is sent, because a value may be refused."""
        outgoing: list[_Outgoing] = []
        new: dict[_Key, _Prepared] = {}
        for query, values in statements:
            parameters = self._transformer.dump_sequence(values, [PyFormat.AUTO] * len(values))
            key = (query, self._transformer.types or ())
            prepared_statement, is_new = new.get(key), False
            if prepared_statement is None:
                prepared_statement = self._find_prepared(key)
                if prepared_statement is not None and key not in self._prepared_by_key:
                    new[key], is_new = prepared_statement, True
            outgoing.append(_Outgoing(key, parameters, self._transformer.formats, prepared_statement, is_new))
        return outgoing

    async def _send_all(self, outgoing: Sequence[_Outgoing], begin: Sequence[bytes]) -> list[PGresult]:
        """Sends several statements together, and returns their results."""
        self._pgconn.enter_pipeline_mode()
        sent_count = self._send_begin(begin)
        places = []
        for statement in outgoing:
            if statement.prepared_statement is not None and statement.is_new:
                sent_count += self._send_preparation(statement.key, statement.prepared_statement)
            self._send(statement)
            places.append(sent_count)
            sent_count += 1
        self._pgconn.pipeline_sync()
        results = await self._receive_results()
        for statement in outgoing:
            if statement.prepared_statement is not None and statement.is_new:
                self._prepared_by_key[statement.key] = statement.prepared_statement
        return [results[place] for place in places]

    async def _run_text(self, query: bytes) -> list[PGresult]:
        self._pgconn.send_query(query)
        return await self._receive_results()

    async def _get_ready(self) -> None:
        """Reads the answer to the end of the last transaction. Raises psycopg.OperationalError if the session is
        lost.
        """
        if self._has_unread_answer:
            try:
                await self._receive_results()
            except psycopg.Error as exc:
                self._lose_if_ended(exc)
            self._has_unread_answer = False
        if self.loss is not None:
            raise psycopg.OperationalError(str(self.loss)) from self.loss
        if self._must_forget and self._pgconn.transaction_status != TransactionStatus.INERROR:
            self._must_forget = False
            self._prepared_by_key.clear()
            await self._run_text(b"DEALLOCATE ALL")

    def _find_prepared(self, key: _Key) -> _Prepared | None:
        """Returns the prepared statement to use, which may still have to be sent; None for a statement that is rarely
        used.
        """
        prepared_statement = self._prepared_by_key.get(key)
        if prepared_statement is not None:
            self._prepared_by_key.move_to_end(key)
            return prepared_statement
        if self.is_pooled:
            return None
        if len(self._uses) >= _MOST_COUNTED:
            self._uses.clear()
        self._uses[key] = uses = self._uses.get(key, 0) + 1
        if uses <= _PREPARE_AFTER:
            return None
        self._names += 1
        return _Prepared(b"baobab_%d" % self._names)

    def _send_preparation(self, key: _Key, prepared_statement: _Prepared) -> int:
        """Returns how many statements were sent."""
        sent_count = 1
        if len(self._prepared_by_key) >= _MOST_PREPARED:
            _, oldest = self._prepared_by_key.popitem(last=False)
            self._pgconn.send_query_params(b"DEALLOCATE " + oldest.name, None)
            sent_count += 1
        self._pgconn.send_prepare(prepared_statement.name, *key)
        return sent_count

    def _send(self, statement: _Outgoing) -> None:
        if statement.prepared_statement is None:
            text, types = statement.key
            self._pgconn.send_query_params(text, statement.parameters, types, statement.formats)
        else:
            self._pgconn.send_query_prepared(statement.prepared_statement.name, statement.parameters, statement.formats)

    def _send_begin(self, begin: Sequence[bytes]) -> int:
        """Returns how many statements were sent."""
        queries = list(begin)
        if begin and self.is_pooled:
            # Before what the transaction sets itself.
            queries[1:1] = [f"SET LOCAL {name} = '{value}'".encode() for name, value in SETTINGS.items()]
        for query in queries:
            self._pgconn.send_query_params(query, None)
        return len(queries)

    async def _receive_results(self) -> list[PGresult]:
        """Returns the results of everything that was sent. Raises the first error among them."""
        results = []
        while (result := await self._receive_result()) is not None:
            results.append(result)
        for result in results:
            if result.status in _FAILED:
                raise error_from_result(result)
        if not results:
            raise psycopg.OperationalError("the server did not answer")
        return results

    async def _receive_result(self) -> PGresult | None:
        """Returns the next result; None after the last one."""
        pgconn = self._pgconn
        while pgconn.flush():
            self._loop.add_writer(self._socket, self._wake)
            try:
                await self._wait()
            finally:
                self._loop.remove_writer(self._socket)
        end_markers = 0
        while True:
            while pgconn.is_busy():
                await self._wait()
            result = pgconn.get_result()
            if not self._is_pipelining:
                return result
            if result is None:
                # Each answer of a pipeline ends with one.
                end_markers += 1
                if end_markers == 2:
                    raise psycopg.OperationalError("the connection is lost")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                pgconn.exit_pipeline_mode()
                return None
            else:
                return result

    @property
    def _is_pipelining(self) -> bool:
        return self._pgconn.pipeline_status != PipelineStatus.OFF

    async def _wait(self) -> None:
        """Waits until data has arrived or was sent."""
        if self.loss is not None:
            raise psycopg.OperationalError(str(self.loss)) from self.loss
        self._waiter = waiter = self._loop.create_future()
        now = self._loop.time()
        ends_at = inf if self.is_patient else now + _SILENCE_SECONDS
        self._stop_when_due(now)
        self._watch = self._loop.call_later(_CHECK_SECONDS, self._check, ends_at)
        try:
            await waiter
        finally:
            self._watch.cancel()
            self._waiter = None

    def _check(self, ends_at: float) -> None:
        """Checks for an answer without waiting for the event loop to report one. If a server is killed, its socket has
        an error, and uvloop stops watching such a socket without telling anybody.
        """
        self._watch = self._loop.call_later(_CHECK_SECONDS, self._check, ends_at)
        self._stop_when_due(self._loop.time())
        try:
            self._pgconn.consume_input()
        except psycopg.Error as exc:
            self._lose(exc)
        if self.loss is None and self._loop.time() >= ends_at:
            self._lose(psycopg.OperationalError("the server does not answer"))
        if self.loss is not None or not self._pgconn.is_busy():
            self._wake()

    def _stop_when_due(self, now: float) -> None:
        """Stops the statement at the deadline. A pooler's statements have a limit of their own, because it is not known
        in which session of the server they run.
        """
        is_asked = self._stopping is not None and not self._stopping.done()
        if now >= self.deadline and not is_asked and not self.is_pooled:
            # Once more each time: a server that had not begun the statement has ignored the last request.
            self._stopping = self._loop.create_task(self._send_cancel())

    def _receive(self) -> None:
        """Reads arrived data. The event loop calls this even if nobody is waiting."""
        try:
            self._pgconn.consume_input()
        except psycopg.Error as exc:
            self._lose(exc)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _lose_if_ended(self, error: psycopg.Error) -> None:
        if self._pgconn.status != ConnStatus.OK or error.diag.severity_nonlocalized in _ENDING:
            self._lose(error)

    def _lose(self, error: psycopg.Error) -> None:
        if self.loss is None:
            self.loss = error
            self._loop.remove_reader(self._socket)
            # The server ends the transaction now, and not when this side closes the connection.
            self.cut()
            self._socket.close()

    async def _stop_statement(self) -> None:
        """Reads the remaining answers, so that the session can be used again. Cancels a statement that takes too long;
        if that fails, the session is lost.
        """
        if await self._read_to_the_end(_LAST_ANSWER_SECONDS):
            return
        await self._send_cancel()
        # Behind a pooler, it is not known which session would be stopped.
        if self.is_pooled or not await self._read_to_the_end(_CANCEL_SECONDS):
            await self.close()

    async def _send_cancel(self) -> None:
        """Asks the server to stop the statement, which then fails."""
        with suppress(psycopg.Error, OSError):
            await self._connection.cancel_safe(timeout=_CANCEL_SECONDS)

    async def _read_to_the_end(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while await self._receive_result() is not None:
                    pass
        except (TimeoutError, psycopg.Error):
            return False
        return True

    def _build_result(self, result: PGresult, prepared_statement: _Prepared | None) -> StatementResult:
        count = result.command_tuples
        if result.status != ExecStatus.TUPLES_OK:
            if (result.command_status or b"").startswith(_CHANGING):
                self._must_forget = True
            return StatementResult([], None, -1 if count is None else count)
        if prepared_statement is None:
            columns = _describe(result)
        elif prepared_statement.columns is None:
            columns = prepared_statement.columns = _describe(result)
        else:
            columns = prepared_statement.columns
        return StatementResult(self._load(result), columns, result.ntuples)

    def _load(self, result: PGresult) -> list[Row]:
        self._transformer.set_pgresult(result)
        rows = self._transformer.load_rows(0, result.ntuples, tuple)
        self._transformer.set_pgresult(None)
        return rows


class _Use:
    """The use of a session for a block. Each statement is one: a generator would take three times as long."""

    __slots__ = ("_session",)

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    async def __aenter__(self) -> None:
        await self._session.prepare_use()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._session.end_use(error)


def _describe(result: PGresult) -> list[Column]:
    return [
        ((result.fname(number) or b"").decode(), result.ftype(number), None, None, None, None, None)
        for number in range(result.nfields)
    ]


@contextmanager
def _cut_when_silent(connection: psycopg.AsyncConnection[Any]) -> Iterator[None]:
    """Cuts a connection whose server does not answer. Postgres's own timeouts need a running server."""
    watch = asyncio.get_running_loop().call_later(_SILENCE_SECONDS, _cut_socket, connection)
    try:
        yield
    finally:
        watch.cancel()


def _cut_socket(connection: psycopg.AsyncConnection[Any]) -> None:
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
