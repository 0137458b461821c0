"""The executor: runs what was approved, once, on whichever worker gets to it and however often one is killed.

An attempt holds the row's lease while it runs. The row turns `executed` in the transaction of the call's own effects
and only for the attempt that holds the lease, so that of several attempts one counts; what a call does to a key-value
store is kept with its result there, and repeated by no later attempt.
"""

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json
from sqlalchemy import or_, select, update

from baobab.storage.clock import Clock, Ids
from baobab.storage.database import Database, DatabaseUnavailable
from baobab.tools import proposers
from baobab.tools.approval_rows import Seals, approvals
from baobab.tools.call import Door
from baobab.tools.errors import BaobabError, Internal, ToolNotFound, Unavailable
from baobab.tools.services import Stores

if TYPE_CHECKING:
    from baobab.tools.call import Call
    from baobab.tools.registry import Registry

# Shorter than a store keeps the results of an attempt (storage/kv/once.py).
GOOD_FOR = timedelta(days=1)
MOST_ATTEMPTS = 10
_LEASE = timedelta(seconds=10)
_HEARTBEAT_SECONDS = 3.0

_log = logging.getLogger(__name__)


class Unfinished(BaobabError):
    code = "APPROVED_CALL_UNFINISHED"
    status = 409
    summary = "No server could finish the approved call; it may have been begun."
    remediation = "Read the present state, and propose the call anew if it is still wanted."


class LeaseLost(Exception):
    """Another attempt has taken the execution over; what this one did is undone."""


@dataclass(slots=True)
class Approved:
    """One attempt at an approved call. `id` is also the idempotency key of every effect that the call has outside."""

    id: str
    lease: str
    _stores: dict[str, Stores] = field(default_factory=dict)

    def guarded(self, region: str, stores: Stores) -> Stores:
        """The stores of a region, in which a later attempt does not repeat what an earlier one did."""
        if region not in self._stores:
            self._stores[region] = replace(stores, kv=stores.kv.once(self.id))
        return self._stores[region]


class Executor:
    def __init__(self, database: Database, clock: Clock, ids: Ids, seals: Seals, base_url: str) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._seals = seals
        self._base_url = base_url
        self._running: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stop; what is not finished goes on elsewhere, or here after the next start."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def start(self, registry: "Registry", approval_id: str) -> None:
        task = asyncio.create_task(self._execute(registry, approval_id), name=f"approval {approval_id}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def resume(self, registry: "Registry") -> None:
        """Execute what was approved and is in nobody's hands."""
        waiting = select(approvals.c.id).where(approvals.c.status == "approved", self._free())
        async with self._database.reading() as connection:
            left = (await connection.execute(waiting.limit(100))).scalars().all()
        for approval_id in left:
            self.start(registry, approval_id)

    async def finish(self, call: "Call", result: Any) -> None:
        """Mark an execution done, in the transaction of its effects; LeaseLost where it is not this attempt's now."""
        approved = call.approved
        assert approved is not None
        encoded = "null" if result is None else call.tool.encode(result).decode()
        values = {
            "status": "executed",
            "finished_at": call.now,
            "result": self._seals.seal(approved.id, "result", encoded),
            **self._seals.without_arguments(approved.id),
        }
        if (await call.execute(update(approvals).where(*_held(approved)).values(**values))).rowcount != 1:
            raise LeaseLost

    async def _execute(self, registry: "Registry", approval_id: str) -> None:
        approved = Approved(approval_id, self._ids.uuid())
        try:
            row = await self._claim(approved)
            if row is None:
                return
            done = asyncio.Event()
            heart = asyncio.create_task(self._keep(approved, done))
            try:
                await self._attempt(registry, row, approved)
            finally:
                # Told, not cancelled: a cancelled write could leave the database's turn taken.
                done.set()
                await heart
        except DatabaseUnavailable as exc:
            _log.warning("approval %s: the database does not answer (%s)", approval_id, exc)
        except Exception:  # noqa: BLE001 - a task has no caller that could be told; the row stays approved
            _log.exception("approval %s: not executed", approval_id)

    async def _claim(self, approved: Approved) -> Any:
        """The row, leased to this attempt; None where another has it, or it is done."""
        free = (approvals.c.id == approved.id, approvals.c.status == "approved", self._free())
        values = {
            "lease_by": approved.lease,
            "lease_until": self._clock.now() + _LEASE,
            "attempts": approvals.c.attempts + 1,
        }
        async with self._database.writing() as connection:
            if (await connection.execute(update(approvals).where(*free).values(**values))).rowcount != 1:
                return None
            return (await connection.execute(select(approvals).where(approvals.c.id == approved.id))).one()

    async def _keep(self, approved: Approved, done: asyncio.Event) -> None:
        """Hold on to the lease until the attempt is over."""
        while not done.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), _HEARTBEAT_SECONDS)
                return
            with contextlib.suppress(DatabaseUnavailable):
                async with self._database.writing() as connection:
                    until = self._clock.now() + _LEASE
                    await connection.execute(update(approvals).where(*_held(approved)).values(lease_until=until))

    async def _attempt(self, registry: "Registry", row: Any, approved: Approved) -> None:
        try:
            self._require_hope(row)
            async with self._database.reading() as connection:
                caller = await proposers.restored(connection.execute, row.caller)
            tool = registry.find(row.tool)
            if tool.version != row.tool_version:
                raise ToolNotFound("The tool has changed since the call was proposed.")
            arguments = json.loads(self._seals.open(row.id, "arguments", row.arguments))
            door = Door(row.door, row.request_id, base_url=self._base_url)
            await registry.run(tool, arguments, caller, door, approved=approved)
        except LeaseLost:
            return
        except (Unavailable, Internal) as error:
            await self._again(row, approved, error)
        except BaobabError as error:
            await self._fail(approved, error)
        except Exception:
            await self._again(row, approved, Internal())
            raise

    def _require_hope(self, row: Any) -> None:
        if row.attempts > MOST_ATTEMPTS:
            # Each attempt ended with its server: this call may be what ends them.
            raise Unfinished
        if self._clock.now() > row.decided_at + GOOD_FOR:
            begun = None if row.attempts > 1 else "No server was there in the day after the decision; nothing was done."
            raise Unfinished(begun)

    async def _again(self, row: Any, approved: Approved, error: BaobabError) -> None:
        """Leave it for a later attempt, when the lease runs out, unless it has had enough of them."""
        if row.attempts >= MOST_ATTEMPTS:
            await self._fail(approved, error)

    async def _fail(self, approved: Approved, error: BaobabError) -> None:
        told = {
            "code": error.code,
            "message": error.message,
            "remediation": error.remedy,
            # Doors render what a JSON column would not take, such as moments.
            "details": from_json(to_json(error.details)),
        }
        values = {
            "status": "failed",
            "finished_at": self._clock.now(),
            "error": told,
            **self._seals.without_arguments(approved.id),
        }
        async with self._database.writing() as connection:
            await connection.execute(update(approvals).where(*_held(approved)).values(**values))

    def _free(self) -> Any:
        return or_(approvals.c.lease_until.is_(None), approvals.c.lease_until < self._clock.now())


def _held(approved: Approved) -> tuple[Any, ...]:
    """The row, while this attempt has it."""
    return approvals.c.id == approved.id, approvals.c.status == "approved", approvals.c.lease_by == approved.lease
