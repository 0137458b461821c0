"""kill -9 of a server while many callers insert into one app: rows that share a transaction, or wait for one lock."""

import asyncio
import random
from pathlib import Path

import aiohttp

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds

CALLERS = 16
ROWS_OF_A_LIFE = 200
SCHEMA = {"tables": {"items": {"columns": {"id": {"type": "integer", "primaryKey": True}, "note": "text"}}}}


class Writers:
    """Insert rows with ever higher numbers, and every eighth a second time, which is refused."""

    def __init__(self, session: aiohttp.ClientSession, app: str) -> None:
        self._session = session
        self._app = app
        self._next = 0
        self.acknowledged_numbers: set[int] = set()
        self.unanswered_numbers: set[int] = set()

    async def insert_until_killed(self, server: ServerProcess) -> None:
        while True:
            self._next += 1
            number = self._next
            try:
                assert await self.insert(server, number) == 201
                self.acknowledged_numbers.add(number)
                if number % 8 == 0:
                    assert await self.insert(server, number, key=f"again-{number}") == 409
            except aiohttp.ClientError:
                if number not in self.acknowledged_numbers:
                    self.unanswered_numbers.add(number)
                return

    async def insert(self, server: ServerProcess, number: int, key: str = "") -> int:
        headers = {"idempotency-key": key or f"row-{number}"}
        row = {"id": number, "note": f"note {number}"}
        async with self._session.post(f"{server.address}/v1/{self._app}/items", json=row, headers=headers) as answer:
            await answer.read()
            return answer.status

    async def wait_for_rows(self, count: int) -> None:
        target_count = len(self.acknowledged_numbers) + count
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(self.acknowledged_numbers) < target_count:
                await asyncio.sleep(0.01)

    async def verify(self, server: ServerProcess) -> None:
        """Sends again what had no answer, with its key. Then every row is there once."""
        for number in self.unanswered_numbers:
            assert await self.insert(server, number) == 201
        self.acknowledged_numbers |= self.unanswered_numbers
        self.unanswered_numbers.clear()
        rows = []
        for first in range(0, self._next + 1, 1000):
            query = f"id=gte.{first}&id=lt.{first + 1000}&order=id&limit=1000"
            async with self._session.get(f"{server.address}/v1/{self._app}/items?{query}") as answer:
                assert answer.status == 200, await answer.text()
                rows += [(row["id"], row["note"]) for row in await answer.json()]
        assert rows == [(number, f"note {number}") for number in sorted(self.acknowledged_numbers)]


async def test_every_acknowledged_row_is_there_once_when_the_server_is_killed(tmp_path: Path) -> None:
    here, dice = Installation.on_backend(tmp_path), random.Random(18)
    async with open_session() as session:
        with here.start_machine() as server:
            app = await create_app(session, server)
            async with session.post(f"{server.address}/v1/{app}/schema/apply", json={"schema": SCHEMA}) as response:
                assert response.status == 200, await response.text()
        writers = Writers(session, app)
        for _ in list_rounds(3):
            with here.start_machine() as server:
                await writers.verify(server)
                tasks = [asyncio.create_task(writers.insert_until_killed(server)) for _ in range(CALLERS)]
                await writers.wait_for_rows(ROWS_OF_A_LIFE + dice.randrange(ROWS_OF_A_LIFE))
                server.kill()
                await asyncio.gather(*tasks)
        with here.start_machine() as server:
            await writers.verify(server)
