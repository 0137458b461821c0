"""An installation that may call this machine, where the tool servers of the tests are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from baobab import composition
from baobab.settings import load_settings
from tests.backends import prepare_data, release_data
from tests.clock import FixedClock
from tests.tools.agents.tool_server import FakeToolServer, start_tool_server
from tests.tools.agents.tool_servers.servers import LOOPBACK
from tests.tools.conftest import ToolHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ToolHarness]:
    clock = FixedClock()
    settings = load_settings({**prepare_data(tmp_path), "BAOBAB_EGRESS_ALLOW": LOOPBACK}, data=tmp_path)
    async with composition.open_application(settings, clock=clock) as application:
        yield ToolHarness(application.services, application.registry, clock, tmp_path)
    release_data(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[FakeToolServer]:
    async with start_tool_server() as tool_server:
        yield tool_server


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": LOOPBACK}
