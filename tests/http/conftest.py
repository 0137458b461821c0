"""One installation for each module that asks for it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.http.installation import App, Installation, open_installation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    async with open_installation(tmp_path_factory.mktemp("world"), plan="enterprise") as installation:
        yield installation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(world: Installation) -> App:
    return await world.create_app()
