"""An installation whose clock is moved by hand, and whose provider of images and videos is a fake one on loopback."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from sqlalchemy import select

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.tools.ai.media.tables import generation_jobs
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.ledger.terms import Balance
from baobab.tools.core.errors import AppNotFound
from baobab.tools.core.limits.credits import UsageLine
from tests import jobs
from tests.clock import FixedClock
from tests.conftest import ADDRESS, Baobab
from tests.installation import open_installation
from tests.people import get_first_organisation
from tests.tools.ai.media.studio import Studio, start_studio

Kind = Literal["image", "video"]

BUILT_IN = {"image": "baobab/picture", "video": "baobab/film"}
VIDEO = "openai/sora-2"
IMAGE = "openai/gpt-image-2"
SECOND = 10**8
"""Nano-dollars for a second of VIDEO: ten cents."""
TERMINAL = ("completed", "failed", "cancelled", "expired")


@dataclass
class MediaBaobab(Baobab):
    clock: FixedClock = field(default_factory=FixedClock)
    fake: Studio = field(default_factory=Studio)

    async def submit(self, app: str, kind: Kind, by: Any = None, **body: Any) -> httpx.Response:
        request_body = {"model": BUILT_IN[kind], "prompt": "A baobab at dusk", **body}
        return await self.client.post(f"/v1/{app}/{kind}s/completions", json=request_body, headers=by or self.owner)

    async def submit_job(self, app: str, kind: Kind, by: Any = None, **body: Any) -> str:
        """The path where the job is polled."""
        answer = await self.submit(app, kind, by, **body)
        assert answer.status_code == 202, answer.text
        receipt = answer.json()
        path = f"/v1/{app}/{kind}s/completions/{receipt['job_id']}"
        assert receipt == {"job_id": receipt["job_id"], "status": "pending", "polling_url": ADDRESS + path}
        return path

    async def poll(self, path: str, by: Any = None) -> Any:
        answer = await self.client.get(path, headers=by or self.owner)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def run_due_jobs(self, seconds: float = 0) -> None:
        """So much later, when all that is due has been done."""
        self.clock.advance(seconds)
        for stores in self.application.services.regions.values():
            await jobs.run_due_jobs(self.application, stores.database)

    async def run_sweep(self, seconds: float = 0) -> None:
        """So much later, when what nobody else looks after has been looked after."""
        self.clock.advance(seconds)
        await jobs.run_job(self.application, "media_sweep")
        await self.run_due_jobs()

    async def get_row(self, path: str) -> Any:
        """The job's row where its app is now; in any region, where there is no such app any more."""
        services = self.application.services
        places = list(services.regions.values())
        with contextlib.suppress(AppNotFound):
            places = [services.regions[(await services.directory.app(path.split("/")[2])).region]]
        query = select(generation_jobs).where(generation_jobs.c.id == path.rpartition("/")[2])
        for stores in places:
            async with stores.database.reading() as connection:
                row = (await connection.execute(query)).first()
            if row is not None:
                return row
        return None

    async def wait_for_end(self, path: str) -> None:
        """Return when the job has ended; nobody has looked."""
        for attempt in range(100):
            await self.run_due_jobs(1 if attempt < 10 else 15)
            if (await self.get_row(path)).ended_at is not None:
                return
        raise AssertionError(await self.get_row(path))

    async def poll_at_end(self, path: str, by: Any = None) -> Any:
        """The job as its first poll after its end tells it."""
        await self.wait_for_end(path)
        return await self.poll(path, by)

    async def generate(self, app: str, kind: Kind, by: Any = None, **body: Any) -> Any:
        return await self.poll_at_end(await self.submit_job(app, kind, by, **body), by)

    async def get(self, url: str, by: Any = None) -> httpx.Response:
        return await self.client.get(url, headers=by or self.owner)

    async def get_balance(self) -> Balance:
        return await self.application.services.part(Credits).balance(await get_first_organisation(self))

    async def list_usage(self) -> list[UsageLine]:
        today = self.clock.now().date()
        return await self.application.services.part(Credits).usage(await get_first_organisation(self), today, today)


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@contextlib.asynccontextmanager
async def open_media(
    data: Path, fake: Studio, clock: FixedClock, variables: dict[str, str]
) -> AsyncIterator[MediaBaobab]:
    environment = {"OPENAI_API_KEY": "sk-vendor-0123456789", "OPENAI_BASE_URL": f"{fake.url}/v1"}
    async with open_installation(data, variables, clock=clock, environment=environment) as installation:
        model = Model(VIDEO, "Sora", "video", Price(0, 0, unit=SECOND), None, None, VIDEO, "openai", frozenset())
        installation.application.services.part(Gateway).catalogue.register_models("openai", [model])
        yield MediaBaobab(installation.application, installation.client, clock=clock, fake=fake)


@pytest.fixture
async def fake() -> AsyncIterator[Studio]:
    async with start_studio() as studio:
        yield studio


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_AI_PROBE": "false", "BAOBAB_PLAN": "launch", "BAOBAB_AI_MARKUP": "20"}


@pytest.fixture
async def baobab(
    tmp_path: Path, clock: FixedClock, fake: Studio, settings: dict[str, str]
) -> AsyncIterator[MediaBaobab]:
    async with open_media(tmp_path / "data", fake, clock, settings) as opened_baobab:
        yield opened_baobab
