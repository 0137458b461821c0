"""Durable jobs: asked for in a transaction, made at least once, and what they write is written by one attempt only."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from baobab.runtime.jobs.job_attempt import LEASE
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.databases import database_at
from baobab.tools.core.binding import RegistrationError
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import Event, RetryLater
from baobab.tools.core.registry import Registry
from baobab.tools.core.toolset import Toolset
from tests import jobs
from tests.backends import database_url
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.servers import BEHIND_POOLER


class Chores:
    """A toolset whose jobs do what a test tells them to."""

    def __init__(self) -> None:
        self.toolset = Toolset("chores", "What tests have done.")
        self.notes: list[Any] = []
        self.rounds: list[str] = []
        self.faults: list[Exception] = []
        self.waiting = asyncio.Event()
        self.go = asyncio.Event()
        notes = self.notes

        @self.toolset.job(attempts=3)
        async def note(job: Job, word: str) -> None:
            notes.append((word, job.attempt))
            if self.faults:
                raise self.faults.pop(0)

        @self.toolset.job()
        async def count(job: Job) -> None:
            self.waiting.set()
            await self.go.wait()
            async with job.writing(last=True) as unit:
                await unit.execute(
                    update(jobs.jobs).where(jobs.jobs.c.id == "tally").values(epoch=jobs.jobs.c.epoch + 1)
                )

        @self.toolset.job(every=60)
        async def tick(job: Job) -> None:
            self.rounds.append(job.id)

        @self.toolset.job(on="app.created")
        async def greet(job: Job, event: Event) -> None:
            notes.append((event.type, event.app_id, event.data["name"]))

        @self.toolset.job(on="app.created", delay=5)
        async def greet_later(job: Job, event: Event) -> None:
            notes.append(event.id)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def chores() -> Chores:
    return Chores()


@pytest.fixture
async def baobab(tmp_path: Path, clock: FixedClock, chores: Chores) -> AsyncIterator[Baobab]:
    async with open_installation(tmp_path / "data", clock=clock, further=[chores.toolset]) as installation:
        yield installation


async def enqueue_job(baobab: Baobab, kind: str, arguments: dict[str, Any] | None = None, **options: Any) -> str:
    services = baobab.application.services
    unit = services.database.build_unit(write=True)
    job_id = await services.jobs.enqueue(unit, kind, arguments or {}, **options)
    await unit.commit()
    return job_id


async def read_tally(baobab: Baobab) -> int:
    """How often the row that `count` writes was written. It is a job of a kind that nobody makes."""
    return int((await jobs.get_job(baobab.application, "tally")).epoch)


async def put_tally(baobab: Baobab) -> None:
    now = baobab.application.services.clock.now()
    row = {"id": "tally", "kind": "nobody", "arguments": {}, "due_at": now, "created_at": now, "finished_at": now}
    async with baobab.application.services.database.writing() as connection:
        await connection.execute(insert(jobs.jobs), row | {"epoch": 0, "attempts": 0})


async def test_a_job_is_made_with_its_arguments_when_what_asked_for_it_is_committed(
    baobab: Baobab, chores: Any
) -> None:
    job = await enqueue_job(baobab, "note", {"word": "hello"})
    await jobs.run_due_jobs(baobab.application)
    assert chores.notes == [("hello", 1)]
    assert (await jobs.get_job(baobab.application, job)).finished_at is not None


async def test_a_job_that_was_asked_for_in_vain_is_never_made(baobab: Baobab, chores: Any) -> None:
    services = baobab.application.services
    unit = services.database.build_unit(write=True)
    await services.jobs.enqueue(unit, "note", {"word": "undone"})
    await unit.rollback(RuntimeError("the call failed"))
    await enqueue_job(baobab, "note", {"word": "done"})
    await jobs.run_due_jobs(baobab.application)
    assert chores.notes == [("done", 1)]


async def test_a_job_asked_for_twice_under_one_id_is_made_once_even_after_its_end(baobab: Baobab, chores: Any) -> None:
    for _ in range(3):
        await enqueue_job(baobab, "note", {"word": "once"}, job_id="the one")
        await jobs.run_due_jobs(baobab.application)
    assert chores.notes == [("once", 1)]


async def test_a_delayed_job_waits_for_its_time(baobab: Baobab, chores: Any, clock: Any) -> None:
    await enqueue_job(baobab, "note", {"word": "later"}, delay=30)
    clock.advance(29)
    await jobs.run_due_jobs(baobab.application)
    assert chores.notes == []
    clock.advance(2)
    await jobs.run_due_jobs(baobab.application)
    assert chores.notes == [("later", 1)]


async def test_a_job_nobody_knows_cannot_be_asked_for(baobab: Baobab) -> None:
    with pytest.raises(LookupError):
        await enqueue_job(baobab, "no_such_job")


async def test_a_job_of_a_kind_that_this_version_does_not_know_is_left_to_others(
    tmp_path: Path, clock: Any, chores: Any
) -> None:
    data = tmp_path / "data"
    async with open_installation(data, {"BAOBAB_JOBS": "0"}, clock=clock, further=[chores.toolset]) as newer:
        await enqueue_job(newer, "note", {"word": "new"})
        async with open_installation(data, clock=clock) as older:
            older.application.services.jobs.wake()
            await enqueue_job(older, "jobs_prune", job_id="known")
            async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
                while (await jobs.get_job(older.application, "known")).finished_at is None:
                    await asyncio.sleep(0.01)
            (waiting_job,) = await jobs.list_unfinished_jobs(older.application)
            assert (waiting_job.kind, waiting_job.attempts) == ("note", 0)


async def test_a_job_that_fails_is_tried_again_after_longer_and_longer_pauses(
    baobab: Baobab, chores: Any, clock: Any
) -> None:
    chores.faults[:] = [ValueError("first"), ValueError("second")]
    job = await enqueue_job(baobab, "note", {"word": "stubborn"})
    for pause in (0, 1, 4):
        clock.advance(pause)
        await jobs.run_due_jobs(baobab.application)
    assert chores.notes == [("stubborn", 1), ("stubborn", 2), ("stubborn", 3)]
    row = await jobs.get_job(baobab.application, job)
    assert row.finished_at is not None
    assert row.error is None


async def test_a_job_that_always_fails_ends_with_what_it_failed_of(baobab: Baobab, chores: Any, clock: Any) -> None:
    chores.faults[:] = [ValueError(str(number)) for number in range(9)]
    job = await enqueue_job(baobab, "note", {"word": "hopeless"})
    for _ in range(9):
        await jobs.run_due_jobs(baobab.application)
        clock.advance(300)
    row = await jobs.get_job(baobab.application, job)
    assert (len(chores.notes), row.error) == (3, "ValueError: 2")


async def test_a_job_that_asks_to_be_made_again_has_not_failed(baobab: Baobab, chores: Any, clock: Any) -> None:
    chores.faults[:] = [RetryLater(10, "not yet") for _ in range(7)]
    job = await enqueue_job(baobab, "note", {"word": "patient"})
    for _ in range(8):
        await jobs.run_due_jobs(baobab.application)
        clock.advance(10)
    row = await jobs.get_job(baobab.application, job)
    assert (len(chores.notes), row.error, row.attempts) == (8, None, 1)


async def test_an_outage_of_a_store_is_not_the_jobs_fault(baobab: Baobab, chores: Any, clock: Any) -> None:
    chores.faults[:] = [DatabaseUnavailable("gone") for _ in range(7)]
    job = await enqueue_job(baobab, "note", {"word": "unshaken"})
    for _ in range(8):
        await jobs.run_due_jobs(baobab.application)
        clock.advance(2)
    assert (await jobs.get_job(baobab.application, job)).error is None
    assert len(chores.notes) == 8


async def test_a_job_whose_process_stops_is_made_by_another_at_once(tmp_path: Path, clock: Any) -> None:
    data, first, second = tmp_path / "data", Chores(), Chores()
    second.go.set()
    async with open_installation(data, {"BAOBAB_JOBS": "0"}, clock=clock, further=[first.toolset]) as asking:
        await put_tally(asking)
        async with open_installation(data, clock=clock, further=[first.toolset]):
            job = await enqueue_job(asking, "count")
            await asyncio.wait_for(first.waiting.wait(), jobs.TIMEOUT_SECONDS)
        async with open_installation(data, clock=clock, further=[second.toolset]) as other:
            await jobs.run_due_jobs(other.application)
            row = await jobs.get_job(other.application, job)
        assert (row.attempts, row.error, await read_tally(asking)) == (1, None, 1)


async def test_an_attempt_that_was_overtaken_while_it_stood_still_can_write_nothing(tmp_path: Path, clock: Any) -> None:
    data, stalled_chores, quick_chores = tmp_path / "data", Chores(), Chores()
    quick_chores.go.set()
    async with AsyncExitStack() as stack:
        slow = await stack.enter_async_context(open_installation(data, clock=clock, further=[stalled_chores.toolset]))
        await put_tally(slow)
        job = await enqueue_job(slow, "count")
        await asyncio.wait_for(stalled_chores.waiting.wait(), jobs.TIMEOUT_SECONDS)
        # It stands still: nothing renews its lease, however long the second takes to open.
        for task in asyncio.all_tasks():
            if task.get_name() == "leases of jobs":
                task.cancel()
        other = await stack.enter_async_context(open_installation(data, clock=clock, further=[quick_chores.toolset]))
        clock.advance(LEASE.total_seconds() + 1)
        await jobs.run_due_jobs(other.application)
        stalled_chores.go.set()
        await asyncio.sleep(0.05)
        row = await jobs.get_job(other.application, job)
        assert (row.attempts, row.epoch, row.error) == (2, 2, None)
        assert await read_tally(other) == 1


async def test_a_lease_from_a_clock_that_was_far_ahead_holds_nobody_up(tmp_path: Path, clock: Any, chores: Any) -> None:
    chores.go.set()
    async with open_installation(
        tmp_path / "data", {"BAOBAB_JOBS": "0"}, clock=clock, further=[chores.toolset]
    ) as asking:
        await put_tally(asking)
        job = await enqueue_job(asking, "count")
        ahead = clock.now() + timedelta(days=2)
        async with asking.application.services.database.writing() as connection:
            arguments = {"held_by": "a worker that is gone", "due_at": ahead, "epoch": 1}
            await connection.execute(update(jobs.jobs).where(jobs.jobs.c.id == job).values(**arguments))
        async with open_installation(tmp_path / "data", clock=clock, further=[chores.toolset]) as working:
            await jobs.run_due_jobs(working.application)
            assert await read_tally(working) == 1


async def test_a_job_that_ends_its_processes_is_given_up(baobab: Baobab, chores: Any, clock: Any) -> None:
    row = {"id": "poison", "kind": "note", "arguments": {"word": "x"}, "due_at": clock.now(), "created_at": clock.now()}
    async with baobab.application.services.database.writing() as connection:
        await connection.execute(insert(jobs.jobs), row | {"epoch": 3, "attempts": 3, "held_by": "killed"})
    await jobs.run_due_jobs(baobab.application)
    assert chores.notes == []
    assert "ended with the process" in (await jobs.get_job(baobab.application, "poison")).error


async def test_jobs_that_may_be_what_ends_processes_are_made_one_at_a_time_beside_others(
    baobab: Baobab, chores: Any, clock: Any
) -> None:
    await put_tally(baobab)
    lost_job = {"kind": "count", "arguments": {}, "due_at": clock.now(), "created_at": clock.now()}
    lost_job |= {"epoch": 2, "attempts": 2, "held_by": "killed"}
    async with baobab.application.services.database.writing() as connection:
        await connection.execute(insert(jobs.jobs), [lost_job | {"id": f"lost {number}"} for number in range(3)])
    async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
        await chores.waiting.wait()
        job = await enqueue_job(baobab, "note", {"word": "another"})
        while (await jobs.get_job(baobab.application, job)).finished_at is None:
            await asyncio.sleep(0.005)
    assert sorted([(await jobs.get_job(baobab.application, f"lost {number}")).epoch for number in range(3)]) == [
        2,
        2,
        3,
    ]
    chores.go.set()
    await jobs.run_due_jobs(baobab.application)
    assert await read_tally(baobab) == 3


async def test_many_processes_make_each_job_once(tmp_path: Path, clock: Any) -> None:
    data, every = tmp_path / "data", [Chores() for _ in range(3)]
    async with AsyncExitStack() as stack:
        applications = [
            await stack.enter_async_context(open_installation(data, clock=clock, further=[c.toolset])) for c in every
        ]
        await asyncio.gather(*(enqueue_job(applications[n % 3], "note", {"word": str(n)}) for n in range(60)))
        for application in applications:
            await jobs.run_due_jobs(application.application)
        assert sorted(word for c in every for word, _ in c.notes) == sorted(map(str, range(60)))


async def test_other_processes_are_told_of_a_job_that_its_own_has_no_slot_for(
    tmp_path: Path, clock: Any, chores: Any
) -> None:
    data, longest = tmp_path / "data", 1 if BEHIND_POOLER else 60
    async with open_installation(data, {"BAOBAB_JOBS": "2"}, clock=clock, further=[chores.toolset]) as baobab:
        other = database_at(database_url(data))
        await other.open()
        try:
            await other.wait_for_announcement(0)
            waiting = asyncio.create_task(other.wait_for_announcement(longest))
            await enqueue_job(baobab, "count")
            await chores.waiting.wait()
            await asyncio.wait([waiting], timeout=0.1)
            assert BEHIND_POOLER or not waiting.done()
            for _ in range(2):
                await enqueue_job(baobab, "count")
            async with asyncio.timeout(30):
                await waiting
        finally:
            await other.close()
        chores.go.set()
        await jobs.run_due_jobs(baobab.application)


async def test_each_round_of_a_periodic_job_is_made_by_one_process(tmp_path: Path, clock: Any) -> None:
    data, every = tmp_path / "data", [Chores() for _ in range(3)]
    async with AsyncExitStack() as stack:
        applications = [
            await stack.enter_async_context(open_installation(data, clock=clock, further=[c.toolset])) for c in every
        ]
        for round_count in range(1, 4):
            clock.advance(60)
            for application in applications:
                application.application.services.jobs.wake()
            async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
                # A process that has not looked yet will find the round made.
                while len({job for c in every for job in c.rounds}) < round_count:
                    await asyncio.sleep(0.01)
            # Ended, too: to a clock that goes on by a minute, what is under way is long overdue.
            await jobs.run_due_jobs(applications[0].application)
        assert len([job for c in every for job in c.rounds]) == 3


async def test_an_event_is_told_to_each_of_its_consumers_once(baobab: Baobab, chores: Any, clock: Any) -> None:
    app = await baobab.create_app(name="shop")
    await jobs.run_due_jobs(baobab.application)
    assert chores.notes == [("app.created", app, "shop")]
    clock.advance(5)
    await jobs.run_due_jobs(baobab.application)
    (event,) = await jobs.list_events(baobab.application, "app.created")
    assert chores.notes == [("app.created", app, "shop"), event.id]


async def test_making_an_app_that_is_there_already_is_no_event(baobab: Baobab) -> None:
    await baobab.create_app(name="shop")
    await baobab.client.post("/init", json={"name": "shop"}, headers=baobab.owner)
    assert len(await jobs.list_events(baobab.application, "app.created")) == 1


async def test_a_flush_is_an_event_with_the_number_of_keys(baobab: Baobab) -> None:
    app = await baobab.create_app()
    await baobab.client.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=baobab.owner)
    await baobab.client.post(f"/v1/{app}/kv/_flush", json={"confirm": True}, headers=baobab.owner)
    (event,) = await jobs.list_events(baobab.application, "kv.flushed")
    assert (event.app_id, event.data["deleted"]) == (app, 1)


async def test_a_refused_call_is_no_event(baobab: Baobab) -> None:
    app = await baobab.create_app()
    refusal = await baobab.client.post(f"/v1/{app}/kv/_flush", json={}, headers=baobab.owner)
    assert refusal.status_code == 400
    assert await jobs.list_events(baobab.application, "kv.flushed") == []


async def test_what_ended_is_forgotten_after_a_day_and_what_failed_after_a_month(
    baobab: Baobab, chores: Any, clock: Any
) -> None:
    chores.faults[:] = [ValueError("no") for _ in range(3)]
    job = await enqueue_job(baobab, "note", {"word": "fails"})
    for _ in range(3):
        await jobs.run_due_jobs(baobab.application)
        clock.advance(300)
    finished_id = await enqueue_job(baobab, "note", {"word": "works"})
    await baobab.create_app()
    await jobs.run_due_jobs(baobab.application)

    async def list_remembered(days: float) -> set[str]:
        clock.advance(days * 86400)
        await enqueue_job(baobab, "jobs_prune")
        await jobs.run_due_jobs(baobab.application)
        async with baobab.application.services.database.reading() as connection:
            rows = await connection.execute(select(jobs.jobs.c.id).where(jobs.jobs.c.id.in_((job, finished_id))))
            return set(rows.scalars())

    assert await list_remembered(0.9) == {job, finished_id}
    assert await list_remembered(0.2) == {job}
    assert await list_remembered(30) == set()
    async with baobab.application.services.database.reading() as connection:
        assert await connection.scalar(select(func.count()).select_from(jobs.events)) == 0


def test_two_jobs_of_one_name_are_refused_when_the_registry_is_made() -> None:
    def build_toolset(name: str) -> Toolset:
        toolset = Toolset(name, "Twice.")

        @toolset.job()
        async def note(job: Job) -> None: ...

        with pytest.raises(RegistrationError):
            toolset.job()(note)
        return toolset

    with pytest.raises(RegistrationError):
        Registry([build_toolset("one"), build_toolset("two")])


def test_a_job_is_done_for_events_or_in_rounds_but_not_both() -> None:
    with pytest.raises(RegistrationError):

        @Toolset("both", "Both.").job(on="app.created", every=60)
        async def both(job: Job) -> None: ...


async def test_of_a_kind_that_has_a_bound_no_more_are_made_at_once(tmp_path: Path, clock: Any) -> None:
    slow, most, running = Toolset("slow", "Slow."), 0, 0
    go = asyncio.Event()

    @slow.job(at_once=3)
    async def long_one(job: Job) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    chores = Chores()
    async with open_installation(tmp_path / "data", clock=clock, further=[slow, chores.toolset]) as baobab:
        for _ in range(6):
            await enqueue_job(baobab, "long_one")
        job_id = await enqueue_job(baobab, "note", {"word": "quick"})
        async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
            while running < 2 or (await jobs.get_job(baobab.application, job_id)).finished_at is None:
                await asyncio.sleep(0.01)
        go.set()
        await jobs.run_due_jobs(baobab.application)
    assert most == 2  # One is left to other tenants.
