"""An app with a site, whose pages are asked for as a browser does: by host, without a credential."""

import io
import zipfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation

PAGE = {"accept": "text/html,application/xhtml+xml"}


@dataclass
class Site(Baobab):
    app: str = ""
    host: str = ""
    clock: FixedClock = field(default_factory=FixedClock)

    async def request(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        headers = options.pop("headers", self.owner)
        answer = await self.client.request(method, f"/v1/{self.app}/frontend{path}", headers=headers, **options)
        assert answer.status_code == expected, answer.text
        return answer.json() if answer.content else None

    async def deploy(self, files: Mapping[str, str | bytes]) -> Any:
        """Deploys a zip of files, and returns the deployment as it is then."""
        return await self.deploy_zip(build_zip(files))

    async def deploy_zip(self, content: bytes) -> Any:
        creation = await self.upload(content)
        await self.request("POST", f"/deployments/{creation}/start", 202)
        await self.work()
        return await self.request("GET", f"/deployments/{creation}")

    async def upload(self, content: bytes) -> str:
        creation = await self.request("POST", "/deployments", json={"framework": "static"})
        answer = await self.client.put(
            creation["uploadUrl"], content=content, headers={"content-type": "application/zip"}
        )
        assert (answer.status_code, answer.json()["status"]) == (200, "UPLOADING"), answer.text
        deployment_id: str = creation["id"]
        return deployment_id

    async def write(self, **texts: str) -> Any:
        """Deploys files of text in one call; `__` in a name stands for a dot."""
        files = {name.replace("__", "."): text for name, text in texts.items()}
        return await self.request("POST", "/deployments/files", 201, json={"files": files})

    async def get(self, path: str, host: str = "", method: str = "GET", **headers: str) -> httpx.Response:
        sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(method, path, headers={"host": host or self.host, **sent_headers})

    async def work(self) -> None:
        await jobs.run_due_jobs(self.application)

    async def list_keys(self) -> list[str]:
        objects = self.application.services.regions["local"].objects
        return list(await objects.list(f"{self.app}/", "", 1000))


def build_zip(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return buffer.getvalue()


async def make_app(baobab: Baobab) -> tuple[str, str]:
    """Creates an app, and returns its id and its own host."""
    app = await baobab.create_app()
    config = (await baobab.client.get(f"/v1/{app}/config", headers=baobab.owner)).json()
    return app, f"{config['subdomain']}.localhost:8000"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    clock = FixedClock()
    async with open_installation(tmp_path, {"BAOBAB_PLAN": "launch"}, clock=clock) as installation:
        app, host = await make_app(installation)
        yield Site(installation.application, installation.client, app=app, host=host, clock=clock)
