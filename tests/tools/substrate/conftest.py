"""A substrate: its organisation's owner, who proposes and decides."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from baobab.tools.core.auth.callers import Account
from baobab.tools.core.stream import Body
from tests.tools.conftest import ToolHarness


@dataclass
class Substrate:
    """The substrate of one organisation, used by its owner."""

    harness: ToolHarness
    owner: Account

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.harness.call(f"substrate_{tool}", self.owner, **arguments)

    async def propose(self, capability: str, **payload: Any) -> Any:
        return await self.call("propose", capability=capability, payload=payload)

    async def do(self, capability: str, **payload: Any) -> Any:
        """The result of an action, approved where it has to be."""
        proposal = await self.propose(capability, **payload)
        if not proposal["requires_approval"]:
            return proposal["result"]
        result = await self.call("approve", action_id=proposal["action_id"])
        assert result["status"] == "executed", result
        return result["result"]

    async def import_lines(self, text: bytes, **further: Any) -> Any:
        async def chunks() -> AsyncIterator[bytes]:
            for start in range(0, len(text), 1000):
                yield text[start : start + 1000]

        return await self.call("import", lines=Body(chunks(), None, "application/x-ndjson"), **further)


@pytest.fixture
async def substrate(harness: ToolHarness) -> Substrate:
    return Substrate(harness, await harness.sign_up("ada@example.com"))
