"""Two installations for each module, one with its files in a folder and one in S3, whose clock stands still.

Their tests use apps of their own.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from baobab.storage.objects.store import ObjectStore
from baobab.storage.sql.database import Database
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.storage.objects.s3_server import REGION, start_s3_server

ANN, BEN = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


@dataclass
class FilesApp:
    """An app, and the calls of its owner or of a user of it."""

    baobab: Baobab
    clock: FixedClock
    id: str

    async def headers(self, user: str | None) -> dict[str, str]:
        return self.baobab.owner if user is None else await self.baobab.user_headers(self.id, user)

    async def request(self, method: str, path: str, user: str | None = None, **options: Any) -> httpx.Response:
        path = f"/storage/{self.id}{path}"
        return await self.baobab.client.request(method, path, headers=await self.headers(user), **options)

    async def announce(self, size: int, user: str | None = None, **fields: Any) -> httpx.Response:
        body = {"filename": "a.bin", "contentType": "application/octet-stream", "sizeBytes": size, **fields}
        return await self.request("POST", "/upload", user, json=body)

    async def send(self, url: str, content: Any, content_type: str = "application/octet-stream") -> httpx.Response:
        return await self.baobab.client.put(url, content=content, headers={"content-type": content_type})

    async def store(self, content: bytes, user: str | None = None, **fields: Any) -> str:
        """Uploads a file and returns its id."""
        body = (await self.announce(len(content), user, **fields)).json()
        content_type = fields.get("contentType", "application/octet-stream")
        response = await self.send(body["uploadUrl"], content, content_type)
        assert response.status_code == 200, response.text
        return str(body["objectId"])

    async def fetch(self, file_id: str, user: str | None = None, **headers: str) -> httpx.Response:
        """Downloads a file, or answers why its address is not given."""
        answer = await self.request("GET", f"/download/{file_id}", user)
        if answer.status_code != 200:
            return answer
        return await self.baobab.client.get(answer.json()["downloadUrl"], headers=headers)

    async def list_ids(self, user: str | None = None, query: str = "") -> list[str]:
        return [row["id"] for row in (await self.request("GET", f"/objects{query}", user)).json()]

    async def set_storage(self, **settings: Any) -> None:
        path = f"/v1/{self.id}/config/storage"
        response = await self.baobab.client.patch(path, json=settings, headers=self.baobab.owner)
        assert response.status_code == 200, response.text

    async def read_usage(self) -> dict[str, Any]:
        """Returns the usage that an upload answers, and takes the upload back."""
        body = (await self.announce(0)).json()
        assert (await self.request("DELETE", f"/{body['objectId']}")).status_code == 204
        usage: dict[str, Any] = body["_meta"]["resource_info"]
        return usage

    @property
    def objects(self) -> ObjectStore:
        return self.baobab.application.services.regions["local"].objects

    @property
    def database(self) -> Database:
        return self.baobab.application.services.regions["local"].database

    async def read_keys(self) -> list[str]:
        return list(await self.objects.list(f"{self.id}/", "", 1000))


@pytest.fixture(scope="module")
def clock(objects_variables: dict[str, str]) -> FixedClock:
    """One for each installation."""
    return FixedClock()


@pytest.fixture(scope="module", params=["folder", "s3"])
def objects_variables(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The settings that say where an installation has its files."""
    if request.param == "folder":
        yield {}
        return
    with start_s3_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield {"BAOBAB_OBJECTS_URL": f"s3://{server.create_bucket()}/files?endpoint={server.address}&region={REGION}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_baobab(
    tmp_path_factory: pytest.TempPathFactory, clock: FixedClock, objects_variables: dict[str, str]
) -> AsyncIterator[Baobab]:
    async with open_installation(tmp_path_factory.mktemp("files"), objects_variables, clock=clock) as installation:
        yield installation


@pytest_asyncio.fixture(loop_scope="module")
async def app(shared_baobab: Baobab, clock: FixedClock) -> FilesApp:
    return FilesApp(shared_baobab, clock, await shared_baobab.create_app())
