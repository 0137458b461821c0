"""An installation for each module, with a clock that stands still; its tests use apps of their own."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs

ANN, BEN = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
FACTS = {
    "trees": "Baobabs store water in their trunks. They can live for more than a thousand years.",
    "ships": "A container ship carries its cargo in steel boxes. Harbours unload it with cranes.",
    "bread": "Sourdough bread rises because of wild yeast. The baker feeds the starter every day.",
}


@dataclass
class RagApp:
    """An app, and the calls of its owner or of a user of it."""

    baobab: Baobab
    clock: FixedClock
    id: str

    async def request(self, method: str, path: str, user: str | None = None, **options: Any) -> httpx.Response:
        headers = self.baobab.owner if user is None else await self.baobab.user_headers(self.id, user)
        path = f"/v1/{self.id}/rag/collections{path}"
        return await self.baobab.client.request(method, path, headers=headers, **options)

    async def create(self, name: str = "facts", **fields: Any) -> dict[str, Any]:
        response = await self.request("POST", "", json={"name": name, **fields})
        assert response.status_code == 201, response.text
        collection: dict[str, Any] = response.json()
        return collection

    async def ingest(self, text: str | None = None, user: str | None = None, to: str = "facts", **fields: Any) -> str:
        """Adds a document, has it read, and returns its id."""
        body = fields if text is None else {"text": text, **fields}
        answer = await self.request("POST", f"/{to}/ingest", user, json=body)
        assert answer.status_code == 202, answer.text
        await self.run_jobs()
        return str(answer.json()["documentId"])

    async def ingest_facts(self) -> dict[str, str]:
        """A collection `facts` with three documents; returns their ids by name."""
        await self.create()
        return {name: await self.ingest(text, metadata={"topic": name}) for name, text in FACTS.items()}

    async def run_jobs(self) -> None:
        for stores in self.baobab.application.services.regions.values():
            await run_due_jobs(self.baobab.application, stores.database)

    async def get(self, document_id: str, user: str | None = None, of: str = "facts") -> dict[str, Any]:
        document: dict[str, Any] = (await self.request("GET", f"/{of}/documents/{document_id}", user)).json()
        return document

    async def query(
        self, query: str, user: str | None = None, of: str = "facts", **fields: Any
    ) -> list[dict[str, Any]]:
        answer = await self.request("POST", f"/{of}/query", user, json={"query": query, **fields})
        assert answer.status_code == 200, answer.text
        chunks: list[dict[str, Any]] = answer.json()["chunks"]
        return chunks

    async def find(self, query: str, user: str | None = None, **fields: Any) -> list[str]:
        """The documents of the chunks that are found, in their order."""
        return [chunk["documentId"] for chunk in await self.query(query, user, **fields)]


@pytest.fixture(scope="module")
def clock() -> FixedClock:
    return FixedClock()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_baobab(tmp_path_factory: pytest.TempPathFactory, clock: FixedClock) -> AsyncIterator[Baobab]:
    async with open_installation(tmp_path_factory.mktemp("rag"), clock=clock) as installation:
        yield installation


@pytest_asyncio.fixture(loop_scope="module")
async def app(shared_baobab: Baobab, clock: FixedClock) -> RagApp:
    return RagApp(shared_baobab, clock, await shared_baobab.create_app())
