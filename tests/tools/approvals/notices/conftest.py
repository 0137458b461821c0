"""An installation whose people get notices of calls that wait, and receivers on this machine that take them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.auth.signing import PLATFORM
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs
from tests.people import Person, create_person, get_first_organisation
from tests.tools.ai.conftest import serve_app


@dataclass
class Delivery:
    headers: dict[str, str]
    body: bytes

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = json.loads(self.body)
        return payload


@dataclass
class Receiver:
    """Takes what is sent to it: answers with the next of its statuses, then with 204."""

    statuses: list[int] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    url: str = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.deliveries.append(Delivery({name.decode(): value.decode() for name, value in scope["headers"]}, body))
        status = self.statuses.pop(0) if self.statuses else 204
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def start_receiver(*statuses: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(statuses))
    async with serve_app(receiver) as address:
        receiver.url = f"{address}/told"
        yield receiver


@dataclass
class NoticesInstallation:
    baobab: Baobab
    clock: FixedClock
    app: str
    ada: Person
    agent: dict[str, str] = field(default_factory=dict)
    calls: int = 0

    async def request(self, method: str, path: str, by: Person | None = None, body: Any = None) -> httpx.Response:
        person = by or self.ada
        claims = {"sub": person.id, "email": person.email, "org_id": person.organisation_id}
        # A fresh one: time passes in these tests.
        token = await self.baobab.application.services.signers.mint(PLATFORM, claims, 3600)
        headers = {"authorization": f"Bearer {token}"}
        return await self.baobab.client.request(method, path, json=body, headers=headers)

    async def create_agent(self, of: Person) -> dict[str, str]:
        """Headers with a key of a person that must ask before it changes anything."""
        organisation = await get_first_organisation(self.baobab)
        key_fields = {"name": "agent", "approval": "write", "organization_id": organisation}
        response = await self.request("POST", "/api-keys", of, key_fields)
        assert response.status_code == 201, response.text
        return {"authorization": f"Bearer {response.json()['key']}"}

    async def propose(self, agent: dict[str, str] | None = None) -> str:
        """A call that waits, by the id of its approval."""
        self.calls += 1
        path = f"/v1/{self.app}/kv/n{self.calls}/incr"
        answer = await self.baobab.client.post(path, json={"by": 1}, headers=agent or self.agent)
        assert answer.status_code == 428, answer.text
        approval_id: str = answer.json()["approval_id"]
        return approval_id

    async def read_outside_text(self, approval_id: str) -> str:
        """Let the run that asks have read an account in outside text. Returns what people are warned of."""
        source = {"kind": "row", "name": "A letter", "place": "letters", "own": False}
        values = [{"argument": "account", "value": "DE00", "source": source}]
        reading = {"warning": {"cause": "value", "source": source, "values": values}, "read": [source], "more": 0}
        services = self.baobab.application.services
        sealed_reading = service_of(services).texts.seals.seal(approval_id, "reading", json.dumps(reading))
        async with services.database.writing() as connection:
            await connection.execute(
                update(approvals).where(approvals.c.id == approval_id).values(reading=sealed_reading)
            )
        return "The account “DE00” comes from “A letter” in letters."

    async def add_channel(self, kind: str, url: str, by: Person | None = None, **more: Any) -> dict[str, Any]:
        response = await self.request("POST", "/v1/notices/channels", by, {"kind": kind, "url": url, **more})
        assert response.status_code == 201, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def set(self, by: Person | None = None, **settings: Any) -> dict[str, Any]:
        response = await self.request("PATCH", "/v1/notices", by, settings)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and what is due be done."""
        self.clock.advance(seconds)
        await run_due_jobs(self.baobab.application)

    async def settle(self) -> None:
        await run_due_jobs(self.baobab.application)

    async def list_messages(self, by: Person | None = None) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = (await self.request("GET", "/v1/notices/messages", by)).json()["messages"]
        return messages


@asynccontextmanager
async def open_notices_installation(data: Path, **variables: str) -> AsyncIterator[NoticesInstallation]:
    clock = FixedClock()
    settings = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32", **variables}
    async with open_installation(data, settings, clock=clock) as baobab:
        installation = NoticesInstallation(
            baobab, clock, await baobab.create_app(), await create_person(baobab, "ada", role="admin")
        )
        installation.agent = await installation.create_agent(installation.ada)
        yield installation


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[NoticesInstallation]:
    async with open_notices_installation(tmp_path / "data") as notices_installation:
        yield notices_installation
