"""Which faults are a job's own: an outage ends by itself and is waited out, any other refusal of a store counts."""

from pathlib import Path

import pytest

from baobab.storage.kv import errors as kv
from baobab.storage.objects import errors as objects
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.core.job import Job
from baobab.tools.core.toolset import Toolset
from tests import jobs
from tests.clock import FixedClock
from tests.installation import open_installation


@pytest.mark.parametrize(
    ("fault", "attempts"),
    [
        (DatabaseUnavailable("gone"), 9),
        (kv.StoreUnavailable("gone"), 9),
        (kv.SpaceFrozen(), 9),
        (objects.StoreUnavailable("gone"), 9),
        (kv.NotAnInteger(), 2),
        (objects.InvalidKey("empty"), 2),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_job_waits_for_a_store_that_does_not_answer_and_gives_up_on_one_that_refuses(
    tmp_path: Path, fault: Exception, attempts: int
) -> None:
    toolset, clock, attempt_numbers = Toolset("faulty", "A job that meets one fault again and again."), FixedClock(), []

    @toolset.job(attempts=2)
    async def meet(job: Job) -> None:
        attempt_numbers.append(job.attempt)
        if len(attempt_numbers) < 9:
            raise fault

    async with open_installation(tmp_path / "data", clock=clock, further=[toolset]) as baobab:
        unit = baobab.application.services.database.build_unit(write=True)
        job_id = await baobab.application.services.jobs.enqueue(unit, "meet", {})
        await unit.commit()
        for _ in range(9):
            await jobs.run_due_jobs(baobab.application)
            clock.advance(2)
        row = await jobs.get_job(baobab.application, job_id)
    assert len(attempt_numbers) == attempts
    assert row.finished_at is not None
    assert (row.error is None) == (attempts == 9)
