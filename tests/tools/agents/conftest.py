"""An app with an owner, agents in it, and an installation that executes their runs."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from baobab.tools.core.auth.callers import Account, Caller, EndUser
from baobab.tools.core.errors import BaobabError
from tests.jobs import run_due_jobs, run_job
from tests.tools.conftest import ToolHarness

TIMEOUT_SECONDS = 180.0


def build_graph(nodes: dict[str, Any], *edges: tuple[str, str], **rest: Any) -> dict[str, Any]:
    """A spec whose first node is its entry."""
    edge_specs = [{"from": start, "to": to} for start, to in edges]
    return {"spec_version": 1, "entry": next(iter(nodes)), "nodes": nodes, "edges": edge_specs, **rest}


@dataclass
class Agency:
    harness: ToolHarness
    owner: Account
    app_id: str

    async def create_agent(self, name: str, spec: dict[str, Any], **settings: Any) -> dict[str, Any]:
        settings = {"dedupe_window_seconds": 0, **settings}
        result = await self.harness.call(
            "agents_create", self.owner, app_id=self.app_id, name=name, graph_spec=spec, **settings
        )
        agent: dict[str, Any] = result["agent"]
        return agent

    async def start_run(self, name: str, by: Caller | None = None, **body: Any) -> str:
        body = {"input": {}, **body}
        result = await self.harness.call("agents_run", by or self.owner, app_id=self.app_id, name=name, **body)
        run_id: str = result["run_id"]
        return run_id

    async def run_agent(self, name: str, by: Caller | None = None, **body: Any) -> dict[str, Any]:
        """A run, when it has ended or waits."""
        run_id = await self.start_run(name, by, **body)
        return await self.wait_for_run(name, run_id)

    async def wait_for_run(self, name: str, run_id: str) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                await run_due_jobs(self.harness)
                run: dict[str, Any] = await self.get_run(name, run_id)
                if run["status"] not in ("queued", "running", "cancelling"):
                    return run

    async def wait_for_end(self, name: str, run_id: str) -> dict[str, Any]:
        """A run that waits for nobody but perhaps for other runs, when it has ended."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                await run_due_jobs(self.harness)
                run: dict[str, Any] = await self.get_run(name, run_id)
                if run["finished_at"] is not None:
                    return run

    async def get_run(self, name: str, run_id: str) -> dict[str, Any]:
        result = await self.harness.call("agents_runs_get", self.owner, app_id=self.app_id, name=name, id=run_id)
        run: dict[str, Any] = result["run"]
        return run

    async def list_events(self, name: str, run_id: str, type_: str | None = None) -> list[dict[str, Any]]:
        result = await self.harness.call(
            "agents_runs_events_list", self.owner, app_id=self.app_id, name=name, id=run_id, limit=500
        )
        return [event for event in result["events"] if type_ in (None, event["type"])]

    async def decide(
        self, name: str, run_id: str, *, approves: bool = True, index: int = -1, by: Caller | None = None, **more: Any
    ) -> dict[str, Any]:
        """Decide about what the run waits for, by the token of one of its pauses; the run, when it rests again."""
        token = (await self.list_events(name, run_id, "run_paused"))[index]["payload"]["approval_token"]
        who = by or self.owner
        arguments = {"app_id": self.app_id, "name": name, "id": run_id, "approval_token": token, "approved": approves}
        await self.harness.call("agents_runs_resume", who, **arguments, **more)
        return await self.wait_for_run(name, run_id)

    async def catch_refusal(self, tool: str, by: Caller, **arguments: Any) -> BaobabError:
        """Makes a call that must be refused, and returns its error."""
        with pytest.raises(BaobabError) as refusal:
            await self.harness.call(tool, by, **arguments)
        return refusal.value

    async def run_maintenance(self) -> None:
        await run_job(self.harness, "agents_expire")
        await run_job(self.harness, "agents_tend")

    async def put_key(self, key: str, value: Any) -> None:
        await self.harness.call("kv_put", self.owner, app_id=self.app_id, key=key, value=value)

    async def get_key(self, key: str) -> Any:
        value = await self.harness.services.regions["local"].kv.get(self.app_id, key, False)
        return value and value.decode()

    def end_user(self, name: str) -> EndUser:
        return EndUser(self.app_id, name)


@pytest.fixture
async def agency(harness: ToolHarness) -> Agency:
    owner = await harness.sign_up("owner@example.com")
    app_id = await harness.create_app_row(owner.organisation_id)
    return Agency(harness, owner, app_id)
