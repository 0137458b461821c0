"""DBOS as its documentation has it: a queue of its own that is polled, jobs enqueued in a transaction of the caller's.

    python -m tests.bench.peers.dbos_jobs URL worker|client POLLING_SECONDS CONCURRENCY

A worker runs jobs and can enqueue them; a client only enqueues. CONCURRENCY 0 is no limit.
"""

import asyncio
import sqlite3
import sys
import time

from sqlalchemy import Connection, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

_BEFORE = time.process_time()

from dbos import DBOS, DBOSClient  # noqa: E402 - what its import costs is one of the measures

_IMPORT_CPU = time.process_time() - _BEFORE

from tests.bench.job_process import StartTimes, serve_commands  # noqa: E402

_QUEUE, _VERSION = "bench", "1"

starts = StartTimes()


@DBOS.workflow(name="note")
async def note() -> None:
    starts.note()


class DbosJobs:
    def __init__(self, url: str) -> None:
        """url: `sqlite:///path` or `postgresql://...`; the caller's own engine is another one, asynchronous."""
        drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+psycopg"}
        address = make_url(url)
        self._engine = create_async_engine(address.set(drivername=drivers[address.get_backend_name()]))
        if address.get_backend_name() == "sqlite":
            event.listen(self._engine.sync_engine, "connect", _on_connect)
            event.listen(self._engine.sync_engine, "begin", _on_begin)
        self._client = DBOSClient(system_database_url=url, application_name="bench")

    async def open(self) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(text("CREATE TABLE IF NOT EXISTS notes (written REAL)"))

    async def write(self, job_count: int) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(text("INSERT INTO notes VALUES (:at)"), {"at": time.time()})
            if job_count:
                await connection.run_sync(self._enqueue, job_count)

    def _enqueue(self, connection: Connection, count: int) -> None:
        for _ in range(count):
            self._client.enqueue_in_transaction(
                connection, {"queue_name": _QUEUE, "workflow_name": "note", "app_version": _VERSION}
            )


def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=FULL")


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


async def main(url: str, role: str, polling: str, concurrency: str) -> None:
    began, cpu_began = time.monotonic(), time.process_time()
    if url.startswith("sqlite"):
        # Its own default is the rollback journal, which makes all of this three times as dear.
        sqlite3.connect(url.removeprefix("sqlite:///")).execute("PRAGMA journal_mode=WAL")
    if role == "worker":
        DBOS(
            config={
                "name": "bench",
                "system_database_url": url,
                "log_level": "ERROR",
                "application_version": _VERSION,
                "executor_id": f"worker-{time.monotonic_ns()}",
            }
        )
        DBOS.launch()
        await DBOS.register_queue_async(
            _QUEUE, worker_concurrency=int(concurrency) or None, polling_interval_sec=float(polling)
        )
    arguments = {"launch_seconds": time.monotonic() - began, "launch_cpu": time.process_time() - cpu_began}
    jobs = DbosJobs(url)
    await jobs.open()
    await serve_commands(jobs, starts, import_cpu=_IMPORT_CPU, **arguments)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
