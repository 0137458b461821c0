"""Worker processes on one installation, and where they are asked for jobs."""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Select, func, select

from baobab.runtime.jobs.job_tables import jobs
from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.kv.engine import Engine
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.core.services import Services
from tests.cli.server_process import TIMEOUT_SECONDS
from tests.conftest import Baobab
from tests.crash.chores import READY, SPACE, chores, create_tables, marks, tallies
from tests.crash.machines import KEY, Installation

PROGRAM = Path(__file__).with_name("chores.py")
AT_ONCE = 8
"""Jobs that a worker makes at once."""
OF_ONE_TENANT = 6
"""So many of them may be one tenant's (runtime/jobs/job_slots.py)."""


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log_text(self) -> str:
        return self.log.read_text()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_SECONDS)

    async def wait_for_word(self, word: str) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while word not in self.log_text:
                assert self.is_running, self.log_text
                await asyncio.sleep(0.02)


@dataclass
class WorkerPool:
    """Workers, each in a process of its own; all are killed at the end."""

    here: Installation
    program: tuple[object, ...] = (PROGRAM,)
    word: str = READY
    """What a worker tells when it has begun."""
    workers: list[Worker] = field(default_factory=list)
    _worker_count: int = 0

    async def start_workers(self, count: int) -> None:
        new = [self._start_worker() for _ in range(count)]
        self.workers += new
        for worker in new:
            await worker.wait_for_word(self.word)

    def kill_worker(self, worker: Worker) -> None:
        worker.kill()
        self.workers.remove(worker)

    def _start_worker(self) -> Worker:
        self._worker_count += 1
        # Beside the machine that asks, which is the first.
        data = self.here.data(100 + self._worker_count)
        log = self.here.folder / f"worker-{self._worker_count}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BAOBAB_")}
        settings = {**environment, **self.here.environment, "BAOBAB_JOBS": str(AT_ONCE)}
        command = [sys.executable, *map(str, self.program), "--data", str(data)]
        with log.open("wb") as stderr:
            process = subprocess.Popen(command, env=settings, stdout=subprocess.DEVNULL, stderr=stderr)
        return Worker(process, log)


@contextlib.contextmanager
def open_workers(here: Installation, **options: Any) -> Iterator[WorkerPool]:
    pool = WorkerPool(here, **options)
    try:
        yield pool
    finally:
        for worker in list(pool.workers):
            pool.kill_worker(worker)


@dataclass
class JobClient:
    """An installation in the test's own process, which asks for jobs and makes none."""

    baobab: Baobab

    @property
    def services(self) -> Services:
        return self.baobab.application.services

    @property
    def kv(self) -> Engine:
        return self.services.regions[self.services.options.default_region].kv

    async def enqueue(self, kind: str, count: int, *, roll_back: bool = False, **arguments: Any) -> list[str]:
        """Ask for so many jobs in one transaction, which `roll_back` rolls back."""
        unit = self.services.database.build_unit(write=True)
        job_ids = [await self.services.jobs.enqueue(unit, kind, arguments) for _ in range(count)]
        await (unit.rollback(RuntimeError("undone")) if roll_back else unit.commit())
        return job_ids

    async def count_rows(self, query: Select[Any]) -> int:
        async with self.services.database.reading() as connection:
            return int(await connection.scalar(query) or 0)

    async def wait_for_database(self) -> None:
        """Wait until the database does, here."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                with contextlib.suppress(DatabaseUnavailable):
                    return await self.services.database.ping()
                await asyncio.sleep(0.05)

    async def count_ended(self) -> int:
        return await self.count_rows(select(func.count()).select_from(jobs).where(jobs.c.finished_at.is_not(None)))

    async def wait_for_ended(self, count: int) -> None:
        """Wait until so many jobs have ended, of all that were ever asked for."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await self.count_ended() < count:
                await asyncio.sleep(0.05)

    async def wait_until_idle(self) -> None:
        """Wait until no job is left but those whose time is yet to come."""
        unfinished_query = select(func.count()).select_from(jobs).where(jobs.c.finished_at.is_(None))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await self.count_rows(unfinished_query):
                await asyncio.sleep(0.05)

    async def list_jobs(self) -> list[Any]:
        async with self.services.database.reading() as connection:
            return list((await connection.execute(select(jobs))).all())

    async def list_marks(self, word: str) -> list[Any]:
        """Lists the marks that jobs have written, the oldest first."""
        async with self.services.database.reading() as connection:
            result = await connection.execute(select(marks).where(marks.c.word == word).order_by(marks.c.number))
            return list(result.all())

    async def read_tally(self) -> int:
        return await self.count_rows(select(tallies.c.value).where(tallies.c.name == "ended"))

    async def read_counter(self, key: str) -> int:
        value = await self.kv.get(SPACE, key)
        return int(value or 0)


@contextlib.asynccontextmanager
async def open_job_client(here: Installation) -> AsyncIterator[JobClient]:
    settings = load_settings({**here.environment, "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_JOBS": "0"}, data=here.data(0))
    server = Server(settings, further=[chores])
    async with server.open() as application:
        await create_tables(application.services.database)
        transport = httpx.ASGITransport(app=server)
        async with httpx.AsyncClient(transport=transport, base_url=settings.address) as client:
            yield JobClient(Baobab(application, client, KEY))


@contextlib.contextmanager
def freeze_worker(worker: Worker, here: Installation) -> Iterator[None]:
    """The worker stands still, at a moment at which it holds nobody else up.

    On files, whoever stands still in the middle of a transaction stops everybody until it wakes.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    os.kill(worker.pid, signal.SIGSTOP)
    while not here.is_on_postgres and not _is_lock_free(here.data(0) / "baobab.lock"):
        assert time.monotonic() < deadline, "the worker is never without the turn"
        os.kill(worker.pid, signal.SIGCONT)
        time.sleep(0.05)
        os.kill(worker.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if worker.is_running:
            os.kill(worker.pid, signal.SIGCONT)


def _is_lock_free(lock: Path) -> bool:
    """Whether somebody else can have the turn within a second."""
    deadline = time.monotonic() + 1
    with lock.open("rb") as gate:
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(0.002)
    return False
