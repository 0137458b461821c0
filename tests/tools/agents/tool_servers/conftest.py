"""A house that may call this machine, where the tool servers of the tests are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from baobab import composition
from baobab.settings import load_settings
from tests.clock import FixedClock
from tests.columns import begin, end
from tests.tools.agents.tool_server import Fake, tool_server
from tests.tools.agents.tool_servers.servers import LOOPBACK
from tests.tools.conftest import House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    clock = FixedClock()
    settings = load_settings({**begin(tmp_path), "BAOBAB_EGRESS_ALLOW": LOOPBACK}, data=tmp_path)
    async with composition.open_application(settings, clock=clock) as opened:
        yield House(opened.services, opened.registry, clock, tmp_path)
    end(tmp_path)


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with tool_server() as opened:
        yield opened


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": LOOPBACK}
