"""An installation with fakes of both providers, and one that has only the simulator."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import FixedClock
from tests.conftest import ADDRESS, Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs, run_job
from tests.people import get_first_organisation
from tests.tools.people.fakes import ENRICH_KEY, EXA_KEY, Fake, start_fake

CENT = 10**7
LIVE = {
    "BAOBAB_PEOPLE_LIVE": "true",
    "BAOBAB_PEOPLE_PRIMARY": "enrich_layer",
    "BAOBAB_PEOPLE_PRIMARY_KEY": ENRICH_KEY,
    "BAOBAB_PEOPLE_SECONDARY": "exa",
    "BAOBAB_PEOPLE_SECONDARY_KEY": EXA_KEY,
    "BAOBAB_EGRESS_ALLOW": "127.0.0.1",
    "BAOBAB_BASE_URL": ADDRESS,
}


@dataclass
class Directory:
    """An app that looks up people."""

    baobab: Baobab
    app: str
    clock: FixedClock

    async def ask(self, path: str, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
        address = f"/v1/{self.app}/people{path}"
        return await self.baobab.client.post(address, json=body, headers=headers or self.baobab.owner)

    async def read(self, path: str) -> Any:
        answer = await self.baobab.client.get(f"/v1/{self.app}/people{path}", headers=self.baobab.owner)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def read_usage(self) -> list[tuple[str, int, str]]:
        """The log of usage, oldest first: action, credits, dollars that were charged."""
        rows = reversed((await self.read("/usage"))["rows"])
        return [(row["action"], row["credits_consumed"], row["usd_charged"]) for row in rows]

    async def give(self, nanos: int) -> None:
        """Let the organisation have so much, in nano-dollars, and nothing else."""
        services: Any = self.baobab.application.services
        organisation_id = await get_first_organisation(self.baobab)
        account = await services.credits.account(organisation_id)
        await services.credits.set_terms(organisation_id, allowance=account.allowance_used + nanos)

    async def read_balance(self) -> int:
        services: Any = self.baobab.application.services
        balance = await services.credits.balance(await get_first_organisation(self.baobab))
        left: int = balance.total
        return left

    async def send_callback(self, address: str, **payload: Any) -> httpx.Response:
        return await self.baobab.client.post(address.removeprefix(ADDRESS), json=payload)

    async def sweep(self) -> None:
        await run_job(self.baobab.application, "people_sweep")

    async def run_jobs(self) -> None:
        await run_due_jobs(self.baobab.application)


@contextlib.asynccontextmanager
async def open_directory(data: Path, variables: dict[str, str]) -> AsyncIterator[Directory]:
    clock = FixedClock()
    async with open_installation(data, {"BAOBAB_PLAN": "playground", **variables}, clock=clock) as baobab:
        directory = Directory(baobab, await baobab.create_app(), clock)
        await directory.give(100 * CENT)
        yield directory


@pytest.fixture
async def fake() -> AsyncIterator[Fake]:
    async with start_fake() as fake:
        yield fake


@pytest.fixture
def variables() -> dict[str, str]:
    """Further settings of the installation with providers; a test overrides them by parametrising it."""
    return {}


@pytest.fixture
async def live(tmp_path: Path, fake: Fake, variables: dict[str, str]) -> AsyncIterator[Directory]:
    addresses = {f"BAOBAB_PEOPLE_{slot}_URL": fake.url for slot in ("SECONDARY", "TERTIARY")}
    addresses["BAOBAB_PEOPLE_PRIMARY_URL"] = f"{fake.url}/api/v2"
    settings = {name: value for name, value in {**LIVE, **addresses, **variables}.items() if value}
    async with open_directory(tmp_path / "data", settings) as directory:
        yield directory


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[Directory]:
    async with open_directory(tmp_path / "data", {}) as directory:
        yield directory
