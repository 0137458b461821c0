"""Where calls are proposed and approved, with a ledger of what must become of them: each is done once."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import OWNER, create_app


@dataclass
class ApprovalsLoad:
    """Raises of a counter, in the key-value store, and keys to be made, among the rows; all by an agent's key."""

    session: aiohttp.ClientSession
    app: str
    agent: dict[str, str]
    raises: dict[str, int] = field(default_factory=dict)
    """By how much each approval raises the counter."""
    names: dict[str, str] = field(default_factory=dict)
    """What the key is called that each approval makes."""
    decided_ids: set[str] = field(default_factory=set)
    """Approvals of which a server said that they are decided."""

    @classmethod
    async def create(cls, session: aiohttp.ClientSession, server: ServerProcess) -> "ApprovalsLoad":
        load = cls(session, await create_app(session, server, "desk"), {})
        agent_key = (await load.ask(server, "POST", "/api-keys", {"name": "agent", "approval": "write"}))[1]
        load.agent = {"Authorization": f"Bearer {agent_key['key']}"}
        return load

    @property
    def approval_ids(self) -> list[str]:
        return [*self.raises, *self.names]

    @property
    def undecided_ids(self) -> list[str]:
        return [approval_id for approval_id in self.approval_ids if approval_id not in self.decided_ids]

    async def ask(
        self, server: ServerProcess, method: str, path: str, body: Any = None, by: dict[str, str] = OWNER
    ) -> tuple[int, Any]:
        async with self.session.request(method, server.address + path, json=body, headers=by) as answer:
            return answer.status, await answer.json()

    async def propose_calls(self, server: ServerProcess, calls: int) -> None:
        for number in range(len(self.approval_ids) + 1, len(self.approval_ids) + calls + 1):
            if number % 5:
                status, answer_json = await self.ask(
                    server, "POST", f"/v1/{self.app}/kv/n/incr", {"by": number}, self.agent
                )
                self.raises[answer_json["approval_id"]] = number
            else:
                name = f"key {number}"
                status, answer_json = await self.ask(server, "POST", "/api-keys", {"name": name}, self.agent)
                self.names[answer_json["error"]["details"]["approval_id"]] = name
            assert status == 428, answer_json

    async def approve(self, server: ServerProcess, approval_id: str) -> None:
        """Whatever may happen meanwhile: a server that is gone, or that has lost its database, leaves it undecided."""
        with contextlib.suppress(aiohttp.ClientError):
            status, answer_json = await self.ask(server, "POST", f"/v1/approvals/{approval_id}/approve", {})
            assert status in (200, 409, 503), answer_json
            if status != 503:
                self.decided_ids.add(approval_id)

    async def fetch_status(self, server: ServerProcess, approval_id: str) -> str:
        status, answer_json = await self.ask(server, "GET", f"/v1/approvals/{approval_id}")
        assert status == 200, answer_json
        approval_status: str = answer_json["approval"]["status"]
        return approval_status

    async def verify_decisions(self, server: ServerProcess) -> None:
        for approval_id in self.decided_ids:
            assert await self.fetch_status(server, approval_id) != "pending", "an acknowledged decision is lost"

    async def settle(self, server: ServerProcess) -> None:
        """Approve what is still undecided, wait until everything is done, and count what was done."""
        await self.verify_decisions(server)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for approval_id in self.approval_ids:
                await self.approve(server, approval_id)
                while await self.fetch_status(server, approval_id) == "approved":
                    await asyncio.sleep(0.2)
        for approval_id in self.approval_ids:
            _, answer_json = await self.ask(server, "GET", f"/v1/approvals/{approval_id}")
            assert answer_json["approval"]["status"] == "executed", answer_json
        _, counter = await self.ask(server, "GET", f"/v1/{self.app}/kv/n")
        assert counter["value"] == sum(self.raises.values())
        _, key_list = await self.ask(server, "GET", "/api-keys")
        created_names = sorted(key["name"] for key in key_list["keys"] if key["name"].startswith("key "))
        assert created_names == sorted(self.names.values())
