"""An app with an owner, agents in it, and a house that makes their runs."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from baobab.tools.core.auth.callers import Account, Caller, EndUser
from baobab.tools.core.errors import BaobabError
from tests.jobs import made, settled
from tests.tools.conftest import House

PATIENCE_SECONDS = 20.0


def graph(nodes: dict[str, Any], *edges: tuple[str, str], **rest: Any) -> dict[str, Any]:
    """A spec whose first node is its entry."""
    led = [{"from": start, "to": to} for start, to in edges]
    return {"spec_version": 1, "entry": next(iter(nodes)), "nodes": nodes, "edges": led, **rest}


@dataclass
class Agency:
    house: House
    owner: Account
    app_id: str
    _made: list[str] = field(default_factory=list)

    async def agent(self, name: str, spec: dict[str, Any], **settings: Any) -> dict[str, Any]:
        settings = {"dedupe_window_seconds": 0, **settings}
        made = await self.house.use(
            "agents_create", self.owner, app_id=self.app_id, name=name, graph_spec=spec, **settings
        )
        agent: dict[str, Any] = made["agent"]
        return agent

    async def start(self, name: str, by: Caller | None = None, **body: Any) -> str:
        body = {"input": {}, **body}
        started = await self.house.use("agents_run", by or self.owner, app_id=self.app_id, name=name, **body)
        run_id: str = started["run_id"]
        return run_id

    async def run(self, name: str, by: Caller | None = None, **body: Any) -> dict[str, Any]:
        """A run, when it has ended or waits."""
        run_id = await self.start(name, by, **body)
        return await self.rests(name, run_id)

    async def rests(self, name: str, run_id: str) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await settled(self.house)
                run: dict[str, Any] = await self.read(name, run_id)
                if run["status"] not in ("queued", "running", "cancelling"):
                    return run

    async def ended(self, name: str, run_id: str) -> dict[str, Any]:
        """A run that waits for nobody but perhaps for other runs, when it has ended."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                await settled(self.house)
                run: dict[str, Any] = await self.read(name, run_id)
                if run["finished_at"] is not None:
                    return run

    async def read(self, name: str, run_id: str) -> dict[str, Any]:
        found = await self.house.use("agents_runs_get", self.owner, app_id=self.app_id, name=name, id=run_id)
        run: dict[str, Any] = found["run"]
        return run

    async def events(self, name: str, run_id: str, type_: str | None = None) -> list[dict[str, Any]]:
        found = await self.house.use(
            "agents_runs_events_list", self.owner, app_id=self.app_id, name=name, id=run_id, limit=500
        )
        return [event for event in found["events"] if type_ in (None, event["type"])]

    async def decide(
        self, name: str, run_id: str, *, approved: bool = True, index: int = -1, by: Caller | None = None, **more: Any
    ) -> dict[str, Any]:
        """Decide about what the run waits for, by the token of one of its pauses; the run, when it rests again."""
        token = (await self.events(name, run_id, "run_paused"))[index]["payload"]["approval_token"]
        who = by or self.owner
        given = {"app_id": self.app_id, "name": name, "id": run_id, "approval_token": token, "approved": approved}
        await self.house.use("agents_runs_resume", who, **given, **more)
        return await self.rests(name, run_id)

    async def refused(self, tool: str, by: Caller, **arguments: Any) -> BaobabError:
        """What a call is refused with."""
        with pytest.raises(BaobabError) as refusal:
            await self.house.use(tool, by, **arguments)
        return refusal.value

    async def tend(self) -> None:
        await made(self.house, "agents_expire")
        await made(self.house, "agents_tend")

    async def put(self, key: str, value: Any) -> None:
        await self.house.use("kv_put", self.owner, app_id=self.app_id, key=key, value=value)

    async def get(self, key: str) -> Any:
        found = await self.house.services.regions["local"].kv.get(self.app_id, key, False)
        return found and found.decode()

    def user(self, name: str) -> EndUser:
        return EndUser(self.app_id, name)


@pytest.fixture
async def agency(house: House) -> Agency:
    owner = await house.sign_up("owner@example.com")
    app_id = await house.app(owner.organisation_id)
    return Agency(house, owner, app_id)
