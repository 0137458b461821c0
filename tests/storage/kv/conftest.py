from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from baobab.storage.kv import Engine, MemoryEngine, SqliteEngine


class FakeClock:
    """Stands still unless told."""

    def __init__(self) -> None:
        # A fraction that floats cannot hold exactly, as real clocks have.
        self.now = 1_700_000_000.1

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
async def engine(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Engine]:
    makers: dict[str, Callable[[], Engine]] = {
        "memory": lambda: MemoryEngine(clock),
        "sqlite": lambda: SqliteEngine(tmp_path, clock),
    }
    made = makers[request.param]()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def sqlite(tmp_path: Path, clock: FakeClock) -> AsyncIterator[SqliteEngine]:
    """On `tmp_path`, and quick to give up on a lock."""
    made = SqliteEngine(tmp_path, clock, busy_timeout=0.05)
    await made.open()
    yield made
    await made.close()
