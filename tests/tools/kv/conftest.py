"""One installation for each module; its tests use apps of their own, or keys that no other test uses."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.clock import FixedClock
from tests.http.installation import App, Installation, open_installation


@pytest.fixture(scope="module")
def clock() -> FixedClock:
    return FixedClock()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory, clock: FixedClock) -> AsyncIterator[Installation]:
    async with open_installation(tmp_path_factory.mktemp("world"), clock, plan="enterprise") as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(world: Installation) -> App:
    return await world.create_app()
