"""A worker with jobs of the tests' own, which leave marks: python chores.py --data FOLDER, with settings as ever."""

import argparse
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from sqlalchemy import Column, Integer, MetaData, String, Table, insert, update
from sqlalchemy.schema import CreateTable

from baobab.composition import open_application
from baobab.logs import configure
from baobab.settings import load_settings
from baobab.storage.kv.engine import Engine, Quota
from baobab.storage.sql.database import Database
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.call import Call
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import Event
from baobab.tools.core.toolset import Toolset
from baobab.tools.core.types import AppId

SPACE = "chores"
"""Where in the key-value store jobs count; no app has this id."""
READY = "chores are done here"

_tables = MetaData()
tallies = Table(
    "chore_tallies", _tables, Column("name", String(40), primary_key=True), Column("value", Integer, nullable=False)
)
marks = Table(
    "chore_marks",
    _tables,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("job_id", String(200), nullable=False),
    Column("word", String(40), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("process", Integer, nullable=False),
    Column("event_id", String(40)),
)

# However often a process is killed with a job in its hands, that is not the job's fault.
PATIENT = 100_000
_FROZEN_SECONDS = 5.0

chores = Toolset("chores", "Jobs that leave marks, and tools for agents that never answer.")


@chores.job(attempts=PATIENT)
async def tally(job: Job, word: str) -> None:
    """Count a row up in the transaction in which the job ends."""
    async with job.writing(last=True) as unit:
        await unit.execute(update(tallies).where(tallies.c.name == "ended").values(value=tallies.c.value + 1))
        await unit.execute(insert(marks), build_mark(job, word))


@chores.job(attempts=PATIENT)
async def raise_key(job: Job) -> None:
    """Count a key up, and be found unfinished with it now and then."""
    await get_kv(job).for_attempt(job.id).incr(SPACE, "raised", 1, None, Quota())
    await asyncio.sleep(0.02)


@chores.job(attempts=PATIENT)
async def plant(job: Job, seeds: int) -> None:
    """Ask for further jobs in the transaction in which this one ends; and for one that is rolled back."""
    jobs = job.services.jobs
    undone_unit = job.database.build_unit(write=True)
    await jobs.enqueue(undone_unit, "tally", {"word": "undone"})
    await undone_unit.rollback(RuntimeError("undone"))
    async with job.writing(last=True) as unit:
        for _ in range(seeds):
            await jobs.enqueue(unit, "tally", {"word": "planted"})


@chores.job(attempts=PATIENT)
async def linger(job: Job) -> None:
    """Write twice; a first attempt waits in between until its process has been frozen."""
    async with job.writing() as unit:
        await unit.execute(insert(marks), build_mark(job, "begun"))
    if job.attempt == 1:
        await wait_until_woken()
    async with job.writing(last=True) as unit:
        await unit.execute(insert(marks), build_mark(job, "ended"))


@chores.job(on="app.created", attempts=PATIENT)
async def greet(job: Job, event: Event) -> None:
    async with job.writing() as unit:
        await unit.execute(insert(marks), {**build_mark(job, "greeted"), "event_id": event.id})


@chores.job(on="app.created", attempts=PATIENT)
async def count_app(job: Job, event: Event) -> None:
    await get_kv(job).for_attempt(job.id).incr(SPACE, "apps", 1, None, Quota())


@chores.job(attempts=PATIENT)
async def drip(job: Job) -> None:
    """In a first attempt, do something elsewhere again and again, and never look whether the job is still its own."""
    async with job.writing() as unit:
        await unit.execute(insert(marks), build_mark(job, "begun"))
    while job.attempt == 1:
        await get_kv(job).incr(SPACE, "drops", 1, None, Quota())
        await asyncio.sleep(0.05)


@chores.tool(access=EVERYBODY, effect="read", limit=None)
async def ponder(call: Call, app_id: AppId) -> str:
    """Say that it has begun, and wait for what never comes."""
    await record_mark(call, app_id, "pondering")
    await asyncio.Event().wait()
    return "never"


@chores.tool(access=EVERYBODY, effect="read", limit=None)
async def perish(call: Call, app_id: AppId) -> str:
    """Say that it has begun, and end the process."""
    await record_mark(call, app_id, "perishing")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


async def record_mark(call: Call, app_id: str, word: str) -> None:
    async with call.services.database.writing() as connection:
        row = {"job_id": app_id, "word": word, "attempt": 0, "process": os.getpid()}
        await connection.execute(insert(marks), row)


async def wait_until_woken() -> None:
    """Return when this process has stood still."""
    gap = 0.0
    while gap < _FROZEN_SECONDS:
        before = time.monotonic()
        await asyncio.sleep(0.05)
        gap = time.monotonic() - before


def build_mark(job: Job, word: str) -> dict[str, object]:
    return {"job_id": job.id, "word": word, "attempt": job.attempt, "process": os.getpid()}


def get_kv(job: Job) -> Engine:
    services = job.services
    return services.regions[services.options.default_region].kv


async def create_tables(database: Database) -> None:
    """Make the tables that the jobs write."""
    async with database.writing() as connection:
        for table in (tallies, marks):
            await connection.execute(CreateTable(table))
        await connection.execute(insert(tallies), {"name": "ended", "value": 0})


async def run_worker(data: Path) -> None:
    settings = load_settings(data=data)
    configure(settings.log_level)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_application(settings, further=[chores]):
        sys.stderr.write(f"{READY}\n")
        sys.stderr.flush()
        await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    asyncio.run(run_worker(parser.parse_args().data))


if __name__ == "__main__":
    main()
