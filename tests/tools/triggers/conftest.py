"""An installation whose clock is moved by hand, with an app that has a table, an agent and a receiver of webhooks."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.tools.agents.conftest import build_graph
from tests.tools.ai.meetings.test_forwarding import Receiver, start_receiver

_COLUMNS = {"id": {"type": "serial", "primaryKey": True}, "title": "text", "status": "text"}
TICKETS: dict[str, Any] = {"tables": {"tickets": {"columns": _COLUMNS}}}


@dataclass
class House(Baobab):
    """An app in which something starts by itself."""

    app: str = ""
    clock: FixedClock = field(default_factory=FixedClock)

    async def request(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        headers = options.pop("headers", self.owner)
        answer = await self.client.request(method, f"/v1/{self.app}{path}", headers=headers, **options)
        assert answer.status_code == expected, answer.text
        return answer.json() if answer.content else None

    async def set_trigger(self, name: str, **body: Any) -> Any:
        return await self.request("PUT", f"/triggers/{name}", json=body)

    async def make_agent(self, name: str = "helper", tool: str = "kv_put", **arguments: Any) -> None:
        """Makes an agent that calls a tool: left out, it keeps its input in a key."""
        values = arguments or {"key": "last", "value": "{{input}}"}
        node = {"type": "tool", "tool_ref": {"source": "builtin", "name": tool}, "args_template": values}
        spec = build_graph({"act": node, "done": {"type": "end"}}, ("act", "done"), tools={"builtin": [tool]})
        await self.request("POST", "/agents", 201, json={"name": name, "graph_spec": spec})

    async def insert(self, headers: dict[str, str] | None = None, **row: Any) -> Any:
        return await self.request("POST", "/tickets", 201, json=row, headers=headers or self.owner)

    async def list_deliveries(self, name: str) -> list[Any]:
        """The deliveries of a trigger, oldest first."""
        deliveries: list[Any] = (await self.request("GET", f"/triggers/{name}/deliveries"))["deliveries"]
        return deliveries[::-1]

    async def list_runs(self, name: str = "helper") -> list[Any]:
        """The runs of an agent, oldest first."""
        runs: list[Any] = (await self.request("GET", f"/agents/{name}/runs"))["runs"]
        return runs[::-1]

    async def approve_all(self) -> None:
        """Approves everything that waits for a person."""
        waiting = (await self.client.get("/v1/approvals?status=pending", headers=self.owner)).json()["approvals"]
        for each in waiting:
            answer = await self.client.post(f"/v1/approvals/{each['id']}/approve", json={}, headers=self.owner)
            assert answer.status_code == 200, answer.text

    async def advance(self, seconds: float = 0) -> None:
        """Moves the clock, and lets everything happen that is then due."""
        self.clock.advance(seconds)
        await jobs.run_job(self.application, "triggers_tick")
        await jobs.run_due_jobs(self.application)


@contextlib.asynccontextmanager
async def open_house(folder: Path, schema: dict[str, Any] = TICKETS, **variables: str) -> AsyncIterator[House]:
    clock = FixedClock()
    environment = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32", "BAOBAB_PLAN": "enterprise", **variables}
    async with open_installation(folder, environment, clock=clock) as open_one:
        house = House(open_one.application, open_one.client, clock=clock)
        house.app = await house.create_app()
        await house.request("POST", "/schema/apply", json={"schema": schema})
        yield house


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(tmp_path) as house:
        yield house


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with start_receiver() as receiver:
        yield receiver
