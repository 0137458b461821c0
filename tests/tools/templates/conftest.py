"""Apps that are offered as templates, and their clones, over REST."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs
from tests.people import Person, create_person

EU = "eu-west-1"
ID = {"type": "integer", "primaryKey": True}
NOTES = {"columns": {"id": ID, "text": {"type": "text"}}}


@dataclass
class Gallery:
    """An installation of two regions with somebody who clones what the first account offers."""

    baobab: Baobab
    clock: FixedClock
    ada: Person

    async def ask(self, method: str, path: str, body: Any = None, headers: Any = None) -> httpx.Response:
        headers = self.baobab.owner if headers is None else headers
        return await self.baobab.client.request(method, path, json=body, headers=headers)

    async def do(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        answer = await self.ask(method, path, body, headers)
        assert answer.is_success, answer.text
        return answer.json()

    async def push(self, app: str, **contents: str) -> str:
        """Pushes files to an app's repository, and returns the snapshot's id."""
        bodies = {path: text.encode() for path, text in contents.items()}
        files = [
            {"path": path, "sha256": hashlib.sha256(body).hexdigest(), "size": len(body)}
            for path, body in bodies.items()
        ]
        by_digest = {hashlib.sha256(body).hexdigest(): body for body in bodies.values()}
        preparation = await self.do("POST", f"/v1/{app}/repo/snapshots/prepare", {"files": files})
        for missing in preparation["missing_blobs"]:
            answer = await self.baobab.client.put(missing["uploadUrl"], content=by_digest[missing["sha256"]])
            assert answer.is_success, answer.text
        snapshot = await self.do("POST", f"/v1/{app}/repo/snapshots/commit", {"manifest": {"files": files}})
        snapshot_id: str = snapshot["snapshot_id"]
        return snapshot_id

    async def offer(self, name: str = "desk", *, listed: bool = True, **settings: Any) -> str:
        """A template of the first account, with a repository of one file."""
        app = await self.baobab.create_app(name=name, **settings)
        await self.push(app, README="# Hi")
        await self.publish(app, listed=listed)
        return app

    async def publish(self, app: str, visibility: str = "public", *, listed: bool = True) -> Any:
        body = {"visibility": visibility, "listed": listed}
        return await self.do("PATCH", f"/v1/{app}/config/visibility", body)

    async def apply(self, app: str, **tables: Any) -> None:
        await self.do("POST", f"/v1/{app}/schema/apply", {"schema": {"tables": tables}})

    async def start(self, template: str, headers: Any = None, **body: Any) -> str:
        answer = await self.ask("POST", f"/v1/templates/{template}/clone", body, headers or self.ada.headers)
        assert answer.status_code == 202, answer.text
        assert answer.json()["status"] == "pending"
        job_id: str = answer.json()["job_id"]
        return job_id

    async def read_job(self, job: str, headers: Any = None) -> Any:
        return await self.do("GET", f"/v1/clone-jobs/{job}", headers=headers or self.ada.headers)

    async def finish(self, job: str, headers: Any = None) -> Any:
        """The job, once it has ended."""
        for _ in range(80):
            await run_due_jobs(self.baobab.application)
            state = await self.read_job(job, headers)
            if state["completed_at"] is not None:
                return state
            self.clock.advance(60)
        raise AssertionError(state)

    @contextmanager
    def close_region(self, region: str) -> Iterator[None]:
        """The stores of a region do not answer meanwhile, so that what needs them waits."""
        regions: Any = self.baobab.application.services.regions
        stores = regions.pop(region)
        try:
            yield
        finally:
            regions[region] = stores

    async def clone(self, template: str, headers: Any = None, **body: Any) -> str:
        """A clone of a template, completed; returns the new app."""
        state = await self.finish(await self.start(template, headers, **body), headers)
        assert state["status"] == "completed", state
        app: str = state["dest_app_id"]
        return app


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def gallery(tmp_path: Path, clock: FixedClock) -> AsyncIterator[Gallery]:
    regions = tmp_path / "regions.toml"
    regions.write_text(f"[{EU}]\n")
    settings = {"BAOBAB_REGIONS": str(regions), "BAOBAB_PLAN": "enterprise"}
    async with open_installation(tmp_path / "data", settings, clock=clock) as installation:
        # The first account is the oldest; it has a right that others have not.
        clock.advance(1)
        yield Gallery(installation, clock, await create_person(installation, "ada"))
