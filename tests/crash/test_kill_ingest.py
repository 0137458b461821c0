"""kill -9 of a server that reads documents, over and over: each gets ready once, whole, and with progress meanwhile."""

import asyncio
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import func, select

from baobab.runtime.jobs.job_tables import events
from baobab.storage.sql.databases import database_at
from baobab.tools.rag import tables
from tests.cli.server_process import ServerProcess
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import LONG

DOCUMENTS = 1000 if LONG else 60
"""A thousand with BAOBAB_CRASH_ROUNDS=2 or more."""
LIVES = 12 if LONG else 2
PATIENCE_SECONDS = 120
"""How long the server may do nothing that can be seen. All of it takes as long as the machine needs."""
CHUNK = 200


def write_text(number: int) -> str:
    """A document of one to six chunks that no other one equals."""
    return "\n\n".join(f"Tree {number} has a branch {branch}. " + "Leaves. " * 18 for branch in range(number % 6 + 1))


class Library:
    """A collection to which documents are added while its server is killed."""

    def __init__(self, session: aiohttp.ClientSession, patience: asyncio.Timeout) -> None:
        self._session, self.app = session, ""
        self._patience = patience
        self._most_ready = 0
        self.ids: dict[int, str] = {}
        self._progress: dict[str, tuple[int, int]] = {}

    def note_progress(self) -> None:
        self._patience.reschedule(asyncio.get_running_loop().time() + PATIENCE_SECONDS)

    async def create(self, server: ServerProcess) -> None:
        self.app = await create_app(self._session, server)
        body = {"name": "trees", "chunkSize": CHUNK, "chunkOverlap": 0}
        async with self._session.post(f"{server.address}/v1/{self.app}/rag/collections", json=body) as response:
            assert response.status == 201, await response.text()

    async def add_documents(self, server: ServerProcess) -> None:
        """Adds what has not been acknowledged yet, four at a time, until all are or the server is gone."""
        missing = iter([number for number in range(DOCUMENTS) if number not in self.ids])

        async def add() -> None:
            for number in missing:
                async with self._session.post(
                    self._at(server, "ingest"), json={"text": write_text(number)}
                ) as response:
                    assert response.status == 202, await response.text()
                    self.ids[number] = (await response.json())["documentId"]
                    self.note_progress()

        await asyncio.gather(*(add() for _ in range(4)))

    async def count_ready(self, server: ServerProcess) -> int:
        async with self._session.get(self._at(server, "")) as read:
            assert read.status == 200, await read.text()
            counts: dict[str, int] = (await read.json())["documentCounts"]
        assert counts["failed"] == 0, counts
        if counts["ready"] > self._most_ready:
            self._most_ready = counts["ready"]
            self.note_progress()
        return counts["ready"]

    async def check_progress(self, server: ServerProcess) -> None:
        """No document goes back behind chunks that it had done."""
        async with self._session.get(self._at(server, "documents?limit=500")) as response:
            for document in await response.json():
                progress = document["progress"]
                chunks_done, total = progress["chunksDone"], progress["chunksTotal"]
                assert (chunks_done, total) >= self._progress.get(document["id"], (0, 0)), document
                assert chunks_done <= total
                self._progress[document["id"]] = (chunks_done, total)

    def _at(self, server: ServerProcess, path: str) -> str:
        return f"{server.address}/v1/{self.app}/rag/collections/trees" + (f"/{path}" if path else "")

    async def verify(self, url: str) -> None:
        """Each document has the rows of one version, all of them, and was told as ready once."""
        database = database_at(url)
        await database.open()
        try:
            async with database.reading() as connection:
                documents = (await connection.execute(select(tables.documents))).all()
                assert {row.id for row in documents} == set(self.ids.values())
                chunks = {row.id: row.chunk_count for row in documents}
                assert all(row.status == "ready" and row.version == 1 for row in documents)
                assert chunks == {self.ids[number]: number % 6 + 1 for number in range(DOCUMENTS)}
                for columns in (tables.chunks.c, tables.vectors.c):
                    count = select(columns.document_id, func.count(), func.max(columns.position))
                    rows = (await connection.execute(count.group_by(columns.document_id))).all()
                    assert {row[0]: (row[1], row[2] + 1) for row in rows} == {
                        each: (number, number) for each, number in chunks.items()
                    }
                text_count = (await connection.execute(select(func.count()).select_from(tables.texts))).scalar_one()
                assert text_count == DOCUMENTS
                ready = (
                    await connection.execute(select(events.c.data).where(events.c.type == "rag.document.ready"))
                ).scalars()
                ready_ids: list[Any] = [data["document_id"] for data in ready]
                assert sorted(ready_ids) == sorted(chunks), "a document was told as ready twice, or never"
        finally:
            await database.close()


@pytest.mark.timeout(1800)
async def test_documents_are_read_once_each_however_often_the_server_is_killed(tmp_path: Path) -> None:
    here, dice = Installation.on_backend(tmp_path), random.Random(19)
    async with open_session() as session, asyncio.timeout(PATIENCE_SECONDS) as patience:
        library = Library(session, patience)
        for life in range(LIVES):
            with here.start_machine() as server:
                library.note_progress()
                if not library.app:
                    await library.create(server)
                before = await library.count_ready(server)
                adding = asyncio.create_task(library.add_documents(server))
                target_count = min(before + 1 + dice.randrange(DOCUMENTS // LIVES), DOCUMENTS - 1)
                while await library.count_ready(server) < target_count:
                    await library.check_progress(server)
                    await asyncio.sleep(0.05)
                await asyncio.sleep(dice.random() * 0.2)
                server.kill()
                (failure,) = await asyncio.gather(adding, return_exceptions=True)
                assert failure is None or isinstance(failure, aiohttp.ClientError), (life, failure)
        with here.start_machine() as server:
            library.note_progress()
            await library.add_documents(server)
            while await library.count_ready(server) < DOCUMENTS:
                await library.check_progress(server)
                await asyncio.sleep(0.2)
        await library.verify(here.database_url)
