"""Our durable jobs, without the rest of an installation: `python -m tests.bench.our_jobs URL worker|client
CONCURRENCY`.

A worker runs jobs and can enqueue them; a client only enqueues.
"""

import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import cast

import uvloop
from sqlalchemy import Column, Float, MetaData, Table, insert

from baobab.runtime.jobs.jobs import DurableJobs
from baobab.storage.clock import Ids, SystemClock
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import migrate
from baobab.storage.sql.notices import Notices
from baobab.tools.core.job import Job, JobKind
from baobab.tools.core.registry import Registry
from baobab.tools.core.services import Services
from tests.bench.job_process import StartTimes, serve_commands

_notes = Table("notes", MetaData(), Column("written", Float))


class BaobabJobs:
    def __init__(self, database: Database, jobs: DurableJobs) -> None:
        self._database = database
        self._jobs = jobs

    async def open(self) -> None:
        async with self._database.writing() as connection:
            await connection.run_sync(partial(_notes.create, checkfirst=True))

    async def write(self, job_count: int) -> None:
        unit = self._database.build_unit(write=True)
        await unit.execute(insert(_notes), {"written": time.time()})
        for _ in range(job_count):
            await self._jobs.enqueue(unit, "note", {})
        await unit.commit()


async def main(url: str, role: str, concurrency: str) -> None:
    began, cpu_began = time.monotonic(), time.process_time()
    starts = StartTimes()

    async def note(job: Job) -> None:
        starts.note()

    clock, ids = SystemClock(), Ids()
    database = database_at(url)
    await database.open()
    await migrate(database)
    notices = Notices(database, clock, ids)
    jobs = DurableJobs([JobKind("note", note)], clock, ids)
    if role == "worker":
        # An installation has more; this is what the round that prunes asks for.
        services = cast("Services", SimpleNamespace(clock=clock))
        await jobs.start(Registry(()).bind(services), {database: notices}, database, int(concurrency))
        await notices.start()
    arguments = {"launch_seconds": time.monotonic() - began, "launch_cpu": time.process_time() - cpu_began}
    ours = BaobabJobs(database, jobs)
    await ours.open()
    await serve_commands(ours, starts, **arguments)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
