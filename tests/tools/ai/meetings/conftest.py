"""An installation whose clock is moved by hand, and whose meeting bots are simulated or those of a fake provider."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from baobab.tools.billing.ledger.credits import Credits
from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import get_first_organisation

MEETING = "https://meet.google.com/abc-defg-hij"
HOUR = 3600


@dataclass
class MeetingBaobab(Baobab):
    clock: FixedClock = field(default_factory=FixedClock)

    async def start(self, app: str | None, **body: Any) -> Any:
        """A bot that was started."""
        answer = await self.request("POST", self.path(app), json={"meetingUrl": MEETING, **body})
        assert answer.status_code == (200 if app else 201), answer.text
        return answer.json()

    def path(self, app: str | None, *rest: str) -> str:
        return "/".join((f"/v1/{app}/ai/meetings" if app else "/v1/ai/meetings", *rest))

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.client.request(method, path, headers=options.pop("headers", self.owner), **options)

    async def read(self, app: str | None, bot_id: str) -> Any:
        answer = await self.request("GET", self.path(app, bot_id))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def advance(self, seconds: float = 0) -> None:
        """Move the clock, and let everything happen that is then due."""
        self.clock.advance(seconds)
        await jobs.run_due_jobs(self.application)

    async def watch(self, app: str | None, bot_id: str, seconds: int) -> list[str]:
        """The states that a bot passes through, second by second."""
        statuses = [(await self.read(app, bot_id))["status"]]
        for _ in range(seconds):
            await self.advance(1)
            statuses.append((await self.read(app, bot_id))["status"])
        return [status for index, status in enumerate(statuses) if index == 0 or statuses[index - 1] != status]

    async def usage(self, app: str) -> Any:
        return (await self.request("GET", self.path(app, "usage"))).json()["rows"]

    async def read_spent(self) -> int:
        """Nano-dollars that the first organisation has been charged, and what is reserved must be nothing."""
        account = await self.application.services.part(Credits).account(await get_first_organisation(self))
        return account.allowance_used + account.once_used - account.credits

    async def read_reserved(self) -> int:
        ledger = self.application.services.part(Credits)
        return (await ledger.account(await get_first_organisation(self))).reserved_nanos


@contextlib.asynccontextmanager
async def open_meetings(
    folder: Path, clock: FixedClock | None = None, **variables: str
) -> AsyncIterator[MeetingBaobab]:
    clock = clock or FixedClock()
    environment = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32", **variables}
    async with open_installation(folder, environment, clock=clock) as open_one:
        yield MeetingBaobab(open_one.application, open_one.client, clock=clock)


@pytest.fixture
async def meetings(tmp_path: Path) -> AsyncIterator[MeetingBaobab]:
    async with open_meetings(tmp_path) as installation:
        yield installation


@pytest.fixture
async def app(meetings: MeetingBaobab) -> str:
    return await meetings.create_app()
