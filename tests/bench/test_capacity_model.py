"""The model of capacity says what can be worked out by hand."""

import pytest

from tests.bench.capacity_model import CELL_PROCESSORS, CONNECTIONS_OF_WORKER, USE, Cost, Machine, plan

COST = Cost(worker=0.010, database=0.002)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_with_enough_processors_are_busy_all_the_time(workers: int) -> None:
    rate = Machine(workers, processors=4 * workers).measure_batch(COST, runs=2000, callers=64)
    assert rate == pytest.approx(workers / COST.worker, rel=0.1)


def test_processors_bound_more_workers_than_they_can_carry() -> None:
    rate = Machine(workers=8, processors=2).measure_batch(COST, runs=2000, callers=64)
    assert rate == pytest.approx(2 / (COST.worker + COST.database), rel=0.1)


def test_callers_on_the_same_machine_take_their_part() -> None:
    alone, shared_rate = (Machine(8, 2).measure_batch(COST._replace(caller=part), 2000, 64) for part in (0.0, 0.012))
    assert shared_rate == pytest.approx(alone / 2, rel=0.1)


def test_a_run_that_meets_nobody_takes_its_own_time_and_one_at_a_busy_worker_longer() -> None:
    quiet, busy = (Machine(1, 8).measure_latency(COST, 3000, rate) for rate in (1.0, 80.0))
    assert quiet[0] == pytest.approx(sum(COST), rel=0.1)
    assert busy[0] > quiet[0]
    assert busy[1] > 2 * quiet[1]


def test_the_same_seed_gives_the_same_numbers() -> None:
    assert Machine(2, 2, 7).measure_latency(COST, 500, 50) == Machine(2, 2, 7).measure_latency(COST, 500, 50)


def test_a_plan_is_large_enough_for_its_busiest_hour() -> None:
    need = plan(COST, bytes_of_run=8000, runs_of_day=1e8, kept_days=30)
    assert need.peak * COST.worker <= need.workers * USE
    assert need.peak * COST.database <= need.processors * USE
    assert need.connections == need.workers * CONNECTIONS_OF_WORKER
    assert need.stored_bytes == 1e8 * 30 * 8000
    assert need.processors <= need.cells * CELL_PROCESSORS
    assert plan(COST, 8000, 1, 30)[1:4] == (1, 1, CONNECTIONS_OF_WORKER)
