"""An installation whose provider of models is a fake one, and in which every organisation has the plan `launch`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tools.ai.conftest import Installation, open_installation


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "launch"}


@pytest.fixture
async def baobab(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Installation]:
    async with open_installation(tmp_path / "data", settings) as installation:
        yield installation
