"""Notices: what one process changes, all of them hear."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import select

from baobab.storage.clock import Ids, SystemClock
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.notices import Notices
from tests.backends import database_url, release_data
from tests.clock import FixedClock
from tests.servers import BEHIND_POOLER, TIMEOUT_SECONDS


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = database_at(database_url(tmp_path))
    await database.open()
    yield database
    await database.close()
    release_data(tmp_path)


async def test_a_notice_is_heard_here_at_commit_and_elsewhere_at_the_next_poll(database: Database) -> None:
    clock = FixedClock()
    here, there = Notices(database, clock, Ids()), Notices(database, clock, Ids())
    heard_here: list[str] = []
    heard_there: list[str] = []
    here.subscribe("key", heard_here.append)
    there.subscribe("key", heard_there.append)
    unit = database.build_unit(write=True)
    await here.publish(unit, "key", "abc")
    assert heard_here == []
    await unit.commit()
    assert heard_here == ["abc"]
    await there.poll()
    await there.poll()
    await here.poll()
    assert (heard_here, heard_there) == (["abc"], ["abc"])


async def test_what_is_undone_is_never_heard(database: Database) -> None:
    clock = FixedClock()
    here, there = Notices(database, clock, Ids()), Notices(database, clock, Ids())
    heard_subjects: list[str] = []
    for side in (here, there):
        side.subscribe("key", heard_subjects.append)
    unit = database.build_unit(write=True)
    await here.publish(unit, "key", "abc")
    await unit.rollback(ValueError("no"))
    await there.poll()
    assert heard_subjects == []


async def test_old_notices_are_swept_and_later_ones_still_arrive(database: Database) -> None:
    clock = FixedClock()
    here, there = Notices(database, clock, Ids()), Notices(database, clock, Ids())
    heard_subjects: list[str] = []
    there.subscribe("key", heard_subjects.append)
    for subject in ("first", "second"):
        unit = database.build_unit(write=True)
        await here.publish(unit, "key", subject)
        await unit.commit()
        await there.poll()
        clock.advance(25 * 3600)
        await here.prune()
    assert heard_subjects == ["first", "second"]


async def test_who_starts_after_a_sweep_hears_what_comes_later(database: Database) -> None:
    clock = FixedClock()
    here, there = Notices(database, clock, Ids()), Notices(database, clock, Ids())
    heard_subjects: list[str] = []
    there.subscribe("key", heard_subjects.append)
    for subject in ("first", "second"):
        async with database.writing_unit() as unit:
            await here.publish(unit, "key", subject)
    clock.advance(25 * 3600)
    await here.prune()
    await there.start()
    try:
        async with database.writing_unit() as unit:
            await here.publish(unit, "key", "third")
        await there.poll()
    finally:
        await there.stop()
    assert heard_subjects == ["third"]


async def test_what_a_process_announces_itself_does_not_wake_it(database: Database, tmp_path: Path) -> None:
    other = database_at(database_url(tmp_path))
    await other.open()
    here, there = Notices(database, SystemClock(), Ids()), Notices(other, SystemClock(), Ids())
    try:
        await database.wait_for_announcement(0)
        # Behind a pooler nobody is told, and all look twice a second.
        longest = 1 if BEHIND_POOLER else 60
        waiting = asyncio.create_task(database.wait_for_announcement(longest))
        await publish_key(here, database)
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        while not waiting.done():
            await publish_key(there, other)
            await asyncio.wait([waiting], timeout=0.1)
    finally:
        await other.close()


async def test_who_waits_learns_of_what_another_process_has_announced(database: Database, tmp_path: Path) -> None:
    other = database_at(database_url(tmp_path))
    await other.open()
    passes_subjects_on = database.dialect == "postgresql" and not BEHIND_POOLER
    try:
        await database.wait_for_announcement(0)
        for subject in ("jobs", "notices"):
            waiting = asyncio.create_task(database.wait_for_announcement(1 if BEHIND_POOLER else 60))
            async with other.writing_unit() as unit:
                unit.announce(subject)
                await unit.execute(select(1))
            assert await waiting == ({subject} if passes_subjects_on else None)
    finally:
        await other.close()


async def test_an_announcement_calls_those_who_listen_for_its_subject(database: Database) -> None:
    here, there = Notices(database, SystemClock(), Ids()), Notices(database, SystemClock(), Ids())
    was_called = asyncio.Event()
    there.on_announcement("jobs", was_called.set)
    await there.start()
    try:
        async with database.writing_unit() as unit:
            unit.announce("jobs")
            await here.publish(unit, "key", "abc")
        async with asyncio.timeout(10):
            await was_called.wait()
    finally:
        await there.stop()


async def publish_key(notices: Notices, database: Database) -> None:
    async with database.writing_unit() as unit:
        await notices.publish(unit, "key", "abc")


async def test_a_listener_that_fails_does_not_end_the_listening(database: Database) -> None:
    here, there = Notices(database, SystemClock(), Ids()), Notices(database, SystemClock(), Ids())
    failures = iter([ValueError("no")])
    has_heard = asyncio.Event()

    def fail_once() -> None:
        if failure := next(failures, None):
            raise failure

    there.on_announcement("test", fail_once)
    there.subscribe("key", lambda _: has_heard.set())
    await there.start()
    try:
        await publish_key(here, database)
        await asyncio.wait_for(has_heard.wait(), 5)
    finally:
        await there.stop()


async def test_a_process_hears_at_once_where_the_database_can_wake_it(database: Database) -> None:
    """On files it looks every so often; on a server it is woken. Either way it hears without being told to look."""
    here, there = Notices(database, SystemClock(), Ids()), Notices(database, SystemClock(), Ids())
    has_heard = asyncio.Event()
    there.subscribe("key", lambda _: has_heard.set())
    await there.start()
    try:
        await publish_key(here, database)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await has_heard.wait()
    finally:
        await there.stop()
