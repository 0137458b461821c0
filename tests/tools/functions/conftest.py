"""An app whose functions really run, in the sandbox."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from baobab.tools.functions.invocations import InvocationLog
from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation

HELLO = "export default async (req, ctx) => Response.json({hello: ctx.request.functionName})"


@dataclass
class Workshop(Baobab):
    """An app in which functions are deployed and called."""

    app: str = ""
    clock: FixedClock = field(default_factory=FixedClock)

    async def request(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        answer = await self.send(method, path, **options)
        assert answer.status_code == expected, answer.text
        return answer.json() if answer.content else None

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = options.pop("headers", self.owner)
        return await self.client.request(method, f"/v1/{self.app}{path}", headers=headers, **options)

    async def deploy(self, name: str, code: str = HELLO, expected: int = 200, **settings: Any) -> Any:
        body = {"name": name, "code": code, **settings}
        return await self.request("POST", "/functions", expected, json=body)

    async def call(self, name: str, method: str = "POST", **options: Any) -> httpx.Response:
        """Calls a function without a credential, unless the headers have one."""
        return await self.send(method, f"/fn/{name}", **{"headers": {}, **options})

    async def settle(self) -> None:
        """Waits until all calls have been written down."""
        await self.application.services.of(InvocationLog).settle()

    async def list_logs(self, name: str, **query: Any) -> list[Any]:
        """The calls of a function, oldest first."""
        await self.settle()
        logs: list[Any] = (await self.request("GET", f"/functions/{name}/logs", params=query))["logs"]
        return logs[::-1]

    async def advance(self, seconds: float = 0) -> None:
        """Moves the clock, and lets everything happen that is then due."""
        self.clock.advance(seconds)
        await jobs.run_job(self.application, "triggers_tick")
        await jobs.run_due_jobs(self.application)


@contextlib.asynccontextmanager
async def open_workshop(folder: Path, **variables: str) -> AsyncIterator[Workshop]:
    clock = FixedClock()
    environment = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32", "BAOBAB_PLAN": "enterprise", **variables}
    async with open_installation(folder, environment, clock=clock) as open_one:
        workshop = Workshop(open_one.application, open_one.client, clock=clock)
        workshop.app = await workshop.create_app()
        yield workshop


@pytest.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with open_workshop(tmp_path) as workshop:
        yield workshop
