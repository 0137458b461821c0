"""Durable jobs as rows: enqueued in any transaction, run by any process (docs/decisions/0014-jobs.md)."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pydantic_core import to_json
from sqlalchemy import and_, delete, insert, or_, select, update

from baobab.runtime.jobs.job_runner import JobLine, JobRunner
from baobab.runtime.jobs.job_tables import events, insert_new, jobs
from baobab.storage.clock import Clock, Ids
from baobab.storage.sql.database import Database, Execute, Unit
from baobab.storage.sql.notices import Notices
from baobab.storage.sql.statements import Statements
from baobab.tools.core.app_events import Subscriptions
from baobab.tools.core.job import Job, JobKind
from baobab.tools.core.jobs import JOBS, SUBSCRIBED
from baobab.tools.core.registry import Registry
from baobab.tools.core.tenancy import current_tenant

_RETENTION, _FAILURE_RETENTION, _EVENT_RETENTION = timedelta(days=1), timedelta(days=30), timedelta(days=30)
_PRUNE_BATCH = 5000
_INSERT_EVENT = insert(events)


class DurableJobs:
    """Enqueues jobs, and starts one runner for each database to execute them."""

    def __init__(
        self, kinds: Iterable[JobKind], clock: Clock, ids: Ids, subscriptions: Subscriptions | None = None
    ) -> None:
        """subscriptions: which events triggers of apps wait for; None if there are no triggers."""
        self._subscriptions = subscriptions
        self._kinds = {kind.name: kind for kind in (*kinds, _PRUNE)}
        self._consumers: dict[str, list[JobKind]] = {}
        for kind in self._kinds.values():
            if kind.consumes is not None:
                self._consumers.setdefault(kind.consumes, []).append(kind)
        self._clock = clock
        self._ids = ids
        self._runners: dict[Database, JobRunner] = {}

    async def start(
        self, registry: Registry, notices: Mapping[Database, Notices], home: Database, at_once: int
    ) -> None:
        """Starts to run jobs, at most `at_once` of each database at the same time.

        notices: by database; they wake its runner when another process has enqueued a job. home: the database that
        holds the periodic jobs; only the one that prunes jobs runs in every database.
        """
        for database, database_notices in notices.items():
            rounds = [kind for kind in self._kinds.values() if kind.every and (database is home or kind is _PRUNE)]
            runner = JobRunner(database, self._kinds, rounds, registry, self._clock, self._ids, at_once)
            self._runners[database] = runner
            database_notices.on_announcement(JOBS, runner.wake)
            runner.start()

    def wake(self) -> None:
        """Makes all runners look for jobs now."""
        for runner in self._runners.values():
            runner.look_for_own()

    async def stop(self) -> None:
        """Waits a moment for running jobs to end; the others run in another process, or after the next start."""
        runners, self._runners = self._runners, {}
        await asyncio.gather(*(runner.stop() for runner in runners.values()))

    async def enqueue(
        self,
        unit: Unit,
        kind: str,
        arguments: Mapping[str, Any],
        *,
        job_id: str | None = None,
        delay: float = 0.0,
        tenant: str | None = None,
    ) -> str:
        if kind not in self._kinds:
            raise LookupError(f"there is no job {kind}")
        now, tenant = self._clock.now(), tenant or current_tenant()
        row = {
            "id": job_id or self._ids.uuid(),
            "kind": kind,
            "tenant": tenant,
            "arguments": dict(arguments),
            "due_at": now + timedelta(seconds=delay),
            "epoch": 0,
            "attempts": 0,
            "created_at": now,
        }
        await insert_new(unit, row)
        runner = self._runners.get(unit.database)
        if runner is not None and delay <= 0:
            unit.after_commit(partial(runner.look_for_own, JobLine(tenant, kind)))
        if runner is None or not runner.knows(kind):
            unit.announce(JOBS)
        return str(row["id"])

    async def withdraw(self, execute: Execute, job_id: str) -> bool:
        # A runner that claims the job raises `attempts` of the same row, so only one of the two succeeds.
        is_idle = (jobs.c.id == job_id, jobs.c.finished_at.is_(None), jobs.c.attempts == 0, jobs.c.held_by.is_(None))
        result = await execute(update(jobs).where(*is_idle).values(finished_at=self._clock.now()))
        return bool(result.rowcount)

    async def end_all(self, execute: Execute, kind: str, prefix: str) -> None:
        conditions = (jobs.c.kind == kind, jobs.c.finished_at.is_(None), jobs.c.id.startswith(prefix, autoescape=True))
        await execute(update(jobs).where(*conditions).values(finished_at=self._clock.now(), error=None))

    def enqueue_in(self, statements: Statements, kind: str, arguments: Mapping[str, Any], job_id: str) -> None:
        if kind not in self._kinds:
            raise LookupError(f"there is no job {kind}")
        now = self._clock.now()
        statements.rows(
            "INSERT INTO jobs (id, kind, tenant, arguments, due_at, epoch, attempts, created_at)"
            " VALUES (?, ?, ?, ?, ?, 0, 0, ?) ON CONFLICT (id) DO NOTHING",
            job_id,
            kind,
            current_tenant(),
            to_json(arguments).decode(),
            now,
            now,
        )

    async def emit(
        self,
        unit: Unit,
        type_: str,
        *,
        app_id: str | None = None,
        data: Mapping[str, Any] | None = None,
        tenant: str | None = None,
        origin: Mapping[str, Any] | None = None,
        only_awaited: bool = False,
    ) -> str | None:
        is_awaited = False
        if app_id is not None and self._subscriptions is not None:
            is_awaited = await self._subscriptions.waits_for(app_id, type_, unit)
        if only_awaited and not is_awaited:
            return None
        event_id = self._ids.uuid()
        row = {"id": event_id, "type": type_, "at": self._clock.now(), "app_id": app_id, "data": dict(data or {})}
        await unit.write(_INSERT_EVENT, row | {"origin": None if origin is None else dict(origin)})
        for kind in (*self._consumers.get(type_, ()), *(self._consumers.get(SUBSCRIBED, ()) if is_awaited else ())):
            arguments = {"event_id": event_id}
            job_id = f"{kind.name}:{event_id}"
            await self.enqueue(unit, kind.name, arguments, job_id=job_id, delay=kind.delay, tenant=tenant)
        return event_id

    def emit_in(
        self,
        statements: Statements,
        type_: str,
        *,
        app_id: str,
        data: Mapping[str, Any],
        origin: Mapping[str, Any] | None = None,
    ) -> bool:
        if self._subscriptions is None or not self._subscriptions.may_wait_for(app_id, type_):
            return False
        event_id = self._ids.uuid()
        statements.rows(
            "INSERT INTO events (id, type, at, app_id, data, origin) VALUES (?, ?, ?, ?, ?, ?)",
            event_id,
            type_,
            self._clock.now(),
            app_id,
            to_json(data).decode(),
            None if origin is None else to_json(origin).decode(),
        )
        for kind in self._consumers.get(SUBSCRIBED, ()):
            self.enqueue_in(statements, kind.name, {"event_id": event_id}, f"{kind.name}:{event_id}")
        return True


async def _prune_jobs(job: Job) -> None:
    """Deletes old jobs and events. Ended jobs are kept for a day, so that one enqueued twice by its id runs once."""
    now: datetime = job.services.clock.now()
    ended_at = jobs.c.finished_at
    is_old = or_(and_(ended_at < now - _RETENTION, jobs.c.error.is_(None)), ended_at < now - _FAILURE_RETENTION)
    for table, condition in ((jobs, is_old), (events, events.c.at < now - _EVENT_RETENTION)):
        batch = select(table.c.id).where(condition).limit(_PRUNE_BATCH)
        removed_count = _PRUNE_BATCH
        while removed_count == _PRUNE_BATCH:
            async with job.writing(bulk=True) as unit:
                removed_count = (await unit.execute(delete(table).where(table.c.id.in_(batch)))).rowcount


_PRUNE = JobKind("jobs_prune", _prune_jobs, every=3600.0, in_copies=True)
