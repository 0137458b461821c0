"""The writer of credits, one in each process.

All operations that are requested in one iteration of the event loop, or while a transaction is under way, share the
next transaction: a commit costs about the same for one operation and for hundreds. An operation that comes alone is
committed at once.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from baobab.storage.clock import Clock
from baobab.storage.sql.database import Database, DatabaseBusy, DatabaseUnavailable, Unit
from baobab.storage.sql.statements import Statements
from baobab.tools.billing.ledger.account import open_accounts
from baobab.tools.billing.ledger.ledger import Ledger
from baobab.tools.billing.ledger.operations import Operation, Release, Reserve, Settle, TopUp
from baobab.tools.core import BaobabError
from baobab.tools.core.limits.credits import UnknownReservation

T = TypeVar("T")

# It bounds how long one transaction occupies the event loop and locks its accounts against other processes.
_LARGEST_GROUP = 128
_LONE = 15
"""How many operations are committed at once after a group of one; the next is queued, to see whether others join."""


class _QueuedOperation(NamedTuple):
    future: asyncio.Future[Any]
    operation: Operation


class _Result(NamedTuple):
    result: Any
    error: Exception | None


class CreditWriter:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._queue: deque[_QueuedOperation] = deque()
        self._task: asyncio.Task[None] | None = None
        self._inline_left = 0

    async def execute(self, operation: Operation) -> Any:
        """Commits an operation and returns its result. Raises its refusal, or DatabaseUnavailable."""
        if (
            self._inline_left
            and not self._queue
            and not operation.durable
            and (self._task is None or self._task.done())
        ):
            self._inline_left -= 1
            with contextlib.suppress(DatabaseBusy):
                return self._run_inline(operation)
        future = self._enqueue(operation)
        try:
            return await future
        except asyncio.CancelledError:
            # It was committed and cancelled in the same iteration of the loop: nobody gets its result.
            if future.done() and not future.cancelled() and future.exception() is None:
                self._undo(operation, future.result())
            raise

    def _run_inline(self, operation: Operation) -> Any:
        def work(statements: Statements) -> Any:
            ledger = self._open_ledger(statements, {operation.organisation_id})
            if not ledger.accounts:
                raise DatabaseBusy("its account may have to be made")
            _read(ledger, [operation])
            result = operation.apply(ledger)
            ledger.save()
            return result

        return self._database.transact_now(work)

    async def execute_all(self, operations: Iterable[Operation]) -> list[Any]:
        """Commits several operations, which share transactions, and returns their results."""
        return await asyncio.gather(*[self._enqueue(operation) for operation in operations])

    async def run_locked(
        self, organisation_ids: set[str], work: Callable[[Statements, Ledger], T], *, durable: bool = True
    ) -> T:
        """Calls `work` in a transaction that holds the locks of these accounts; missing ones are created first."""
        missing_ids: set[str] = set()

        def first(statements: Statements) -> T | None:
            ledger = self._open_ledger(statements, organisation_ids)
            missing_ids.update(organisation_ids - ledger.accounts.keys())
            return None if missing_ids else work(statements, ledger)

        def open_missing(statements: Statements) -> None:
            open_accounts(statements, missing_ids, self._clock.now().date().replace(day=1))

        def again(statements: Statements) -> T:
            return work(statements, self._open_ledger(statements, organisation_ids))

        result = await self._database.transact(first, durable=durable)
        if not missing_ids:
            return result  # type: ignore[return-value]  # `work` was called
        await self._database.transact(open_missing)
        return await self._database.transact(again, durable=durable)

    async def run_in_unit(self, unit: Unit, organisation_id: str, work: Callable[[Statements, Ledger], T]) -> T:
        """Returns the same as a part of a unit, before which that unit has locked no account."""

        def work_in_unit(statements: Statements) -> T:
            # Here it may wait for another that is just making the account: nobody waits for what this holds yet.
            open_accounts(statements, [organisation_id], self._clock.now().date().replace(day=1))
            return work(statements, self._open_ledger(statements, {organisation_id}))

        return await unit.run_statements(work_in_unit)

    async def close(self) -> None:
        """Waits until all operations that were requested before are finished."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def _open_ledger(self, statements: Statements, organisation_ids: set[str]) -> Ledger:
        ledger = Ledger(statements)
        ledger.lock(organisation_ids, self._clock.now)
        return ledger

    def _enqueue(self, operation: Operation) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedOperation(future, operation))
        if self._task is None or self._task.done():
            # It starts after all tasks that are ready now have enqueued their operations.
            self._task = asyncio.create_task(self._run(), name="credit-writer")
        return future

    async def _run(self) -> None:
        while self._queue:
            group = [self._queue.popleft() for _ in range(min(len(self._queue), _LARGEST_GROUP))]
            try:
                outcomes = await self._commit_group([waiting.operation for waiting in group])
            except DatabaseUnavailable as exc:
                # Each waiter gets a copy: an exception must not be raised by several tasks.
                outcomes = [_Result(None, _copy_error(exc)) for _ in group]
            except Exception as exc:  # noqa: BLE001 - whatever ended the group, its waiters must hear and the task live
                outcomes = [_Result(None, exc) for _ in group]
            # After a group of one, the next operation is likely to come alone, too: it needs no task and no future.
            self._inline_left = _LONE if len(group) == 1 else 0
            self._resolve(group, outcomes)

    async def _commit_group(self, operations: list[Operation]) -> list[_Result]:
        def work(_: Statements, ledger: Ledger) -> list[_Result]:
            _read(ledger, operations)
            outcomes = [_apply_operation(operation, ledger) for operation in operations]
            ledger.save()
            return outcomes

        organisation_ids = {operation.organisation_id for operation in operations}
        return await self.run_locked(organisation_ids, work, durable=any(operation.durable for operation in operations))

    def _resolve(self, group: list[_QueuedOperation], outcomes: list[_Result]) -> None:
        for (future, operation), (result, error) in zip(group, outcomes, strict=True):
            if not future.done():
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
            elif error is None:
                # The caller has gone.
                self._undo(operation, result)

    def _undo(self, operation: Operation, result: Any) -> None:
        undo_operation = operation.undo(result)
        if undo_operation is not None:
            # Nobody waits for this either. If it fails, `sweep` releases the reservation later.
            self._enqueue(undo_operation).add_done_callback(_consume_exception)


def _read(ledger: Ledger, operations: list[Operation]) -> None:
    reservations: list[str] = []
    references: list[str] = []
    subjects: set[str] = set()
    for operation in operations:
        match operation:
            case Reserve():
                if operation.is_repeatable:
                    reservations.append(operation.id)
                if operation.amount:
                    subjects.update(part for part in (operation.app_id, operation.key_id) if part)
                    if operation.spender is not None:
                        subjects.update(agent_id for agent_id, _ in operation.spender.agents)
            case Settle() | Release():
                reservations.append(operation.reservation_id)
            case TopUp():
                references.append(operation.reference)
    ledger.read(reservations, references, subjects)


def _apply_operation(operation: Operation, ledger: Ledger) -> _Result:
    try:
        return _Result(operation.apply(ledger), None)
    except (BaobabError, UnknownReservation) as exc:
        return _Result(None, exc)


def _copy_error(error: DatabaseUnavailable) -> DatabaseUnavailable:
    error_copy = DatabaseUnavailable(str(error), error.reason)
    error_copy.__cause__ = error
    return error_copy


def _consume_exception(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
