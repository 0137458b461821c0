"""A desk: an app, an agent whose key must ask, a person who decides, and a clock that stands still."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import Person, create_person, get_first_organisation

Headers = dict[str, str]


@dataclass
class ApprovalsClient:
    baobab: Baobab
    clock: FixedClock
    app: str
    organisation: str
    person: Person
    agent: Headers
    agent_id: str

    async def ask(self, method: str, path: str, by: Headers | None = None, body: Any = None) -> httpx.Response:
        return await self.baobab.client.request(method, path, json=body, headers=by or self.agent)

    async def create_key(self, by: Headers | None = None, **fields: Any) -> tuple[Headers, str]:
        """Headers with a new key, and its id."""
        response = await self.ask("POST", "/api-keys", by or self.baobab.owner, {"name": "agent", **fields})
        assert response.status_code == 201, response.text
        return {"authorization": f"Bearer {response.json()['key']}"}, response.json()["key_id"]

    async def raise_counter(self, by: Headers | None = None, key: str = "n", step: int = 1) -> httpx.Response:
        return await self.ask("POST", f"/v1/{self.app}/kv/{key}/incr", by, {"by": step})

    async def get_counter(self, key: str = "n") -> int:
        response = await self.ask("GET", f"/v1/{self.app}/kv/{key}", self.baobab.owner)
        return int(response.json()["value"]) if response.status_code == 200 else 0

    async def parse_approval_id(self, answer: httpx.Response) -> str:
        """The id of the approval that a call waits for."""
        assert answer.status_code == 428, answer.text
        body = answer.json()
        details: Any = body["error"].get("details") or body["details"] if isinstance(body["error"], dict) else body
        approval_id: str = details["approval_id"]
        return approval_id

    async def get_approval(self, approval_id: str, by: Headers | None = None) -> dict[str, Any]:
        response = await self.ask("GET", f"/v1/approvals/{approval_id}", by or self.person.headers)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def decide(
        self, approval_id: str, word: str = "approve", by: Headers | None = None, **body: Any
    ) -> httpx.Response:
        return await self.ask("POST", f"/v1/approvals/{approval_id}/{word}", by or self.person.headers, body)

    async def approve_and_wait(self, approval_id: str, **body: Any) -> dict[str, Any]:
        """Approve it, and wait for what comes of it."""
        response = await self.decide(approval_id, **body)
        assert response.status_code == 200, response.text
        return await self.wait_for_outcome(approval_id)

    async def wait_for_outcome(self, approval_id: str, by: Headers | None = None) -> dict[str, Any]:
        async with asyncio.timeout(jobs.TIMEOUT_SECONDS):
            while True:
                approval: dict[str, Any] = (await self.get_approval(approval_id, by))["approval"]
                if approval["status"] not in ("pending", "approved"):
                    return approval
                await asyncio.sleep(0.01)

    async def expire_lease(self) -> None:
        """Let so much time pass that nobody holds on to what a dead server had begun, and what is due be made."""
        self.clock.advance(11)
        await jobs.run_due_jobs(self.baobab.application)

    async def run_maintenance(self) -> None:
        """Runs the jobs that run every minute."""
        await jobs.run_job(self.baobab.application, "approvals_tend")


@pytest.fixture
async def approvals_client(tmp_path: Path) -> AsyncIterator[ApprovalsClient]:
    clock = FixedClock()
    async with open_installation(tmp_path / "data", clock=clock) as baobab:
        app = await baobab.create_app()
        organisation = await get_first_organisation(baobab)
        admin = await create_person(baobab, "ada", role="admin")
        opened_approvals_client = ApprovalsClient(baobab, clock, app, organisation, admin, {}, "")
        opened_approvals_client.agent, opened_approvals_client.agent_id = await opened_approvals_client.create_key(
            approval="write"
        )
        yield opened_approvals_client
