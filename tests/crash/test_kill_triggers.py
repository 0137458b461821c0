"""kill -9 of a server with rows, sign-ups, files and hours in flight: each event is delivered, each run starts once."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds
from tests.tools.triggers.conftest import TICKETS

_WRITERS, _KILLED_AFTER_SECONDS = 4, 1.5
_EVENTS: dict[str, dict[str, Any]] = {
    "rows": {"event": "row.inserted", "table": "tickets"},
    "people": {"event": "user.signed_up"},
}
_GRAPH = {"spec_version": 1, "entry": "done", "nodes": {"done": {"type": "end"}}, "edges": []}


async def prepare(session: aiohttp.ClientSession, server: ServerProcess) -> str:
    app = await create_app(session, server)
    await ask(session, server, "POST", f"/v1/{app}/schema/apply", schema=TICKETS)
    await ask(session, server, "POST", f"/v1/{app}/agents", name="helper", graph_spec=_GRAPH)
    hour: dict[str, Any] = {"event": "schedule", "schedule": "* * * * *", "catch_up": True}
    for name, event in (*_EVENTS.items(), ("files", {"event": "file.stored"}), ("hours", hour)):
        await ask(session, server, "PUT", f"/v1/{app}/triggers/{name}", agent="helper", **event)
    return app


async def ask(session: aiohttp.ClientSession, server: ServerProcess, method: str, path: str, **body: Any) -> Any:
    async with session.request(method, server.address + path, json=body or None) as response:
        assert response.status < 300, await response.text()
        return await response.json()


async def write(
    session: aiohttp.ClientSession, server: ServerProcess, app: str, name: str, confirmed_counts: Counter[str]
) -> None:
    """Makes events until the server is gone, and counts those that it has confirmed."""
    for number in range(10_000):
        title = f"{name}-{number}"
        try:
            await ask(session, server, "POST", f"/v1/{app}/tickets", title=title)
            confirmed_counts["rows"] += 1
            person = {"email": f"{title}@mail.example", "password": "correct Horse 7!"}
            await ask(session, server, "POST", f"/auth/{app}/signup", **person)
            confirmed_counts["people"] += 1
            text = {"filename": title, "contentType": "text/plain", "content": "x"}
            await ask(session, server, "POST", f"/storage/{app}/objects", **text)
            confirmed_counts["files"] += 1
        except (aiohttp.ClientError, AssertionError):
            return


async def count_runs(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> Counter[str]:
    """Counts the runs of the agent by the event that started them."""
    counts: Counter[str] = Counter()
    cursor = ""
    while True:
        page = await ask(session, server, "GET", f"/v1/{app}/agents/helper/runs?limit=200{cursor}")
        counts.update(run["input"]["event"]["type"] + " " + run["input"]["event"]["id"] for run in page["runs"])
        if page.get("next_cursor") is None:
            return counts
        cursor = f"&cursor={page['next_cursor']}"


async def count_written(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> Counter[str]:
    """Counts what is there, also what was not confirmed."""
    rows = await ask(session, server, "GET", f"/v1/{app}/tickets?select=id&limit=1000")
    usage = await ask(session, server, "GET", f"/storage/{app}/usage")
    users = await ask(session, server, "GET", f"/v1/{app}/admin/auth/users?limit=200")
    return Counter(rows=len(rows), files=usage["files_count"], people=len(users["users"]))


@pytest.mark.timeout(1800)
async def test_each_event_starts_its_run_once_however_often_the_server_is_killed(tmp_path: Path) -> None:
    dice = random.Random(11)
    here = Installation.on_backend(tmp_path, settings={"BAOBAB_PLAN": "enterprise"})
    confirmed_counts: Counter[str] = Counter()
    app = ""
    async with open_session() as session:
        for round_number in list_rounds(2, 10):
            with here.start_machine() as server:
                app = app or await prepare(session, server)
                writers = [
                    asyncio.create_task(write(session, server, app, f"r{round_number}w{index}", confirmed_counts))
                    for index in range(_WRITERS)
                ]
                await asyncio.sleep(dice.random() * _KILLED_AFTER_SECONDS)
                server.kill()
                await asyncio.gather(*writers)
        with here.start_machine() as server:
            stored_counts = await count_written(session, server, app)
            assert all(stored_counts[kind] >= count for kind, count in confirmed_counts.items()), (
                stored_counts,
                confirmed_counts,
            )
            words = {"rows": "row.inserted", "people": "user.signed_up", "files": "file.stored"}
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    runs = await count_runs(session, server, app)
                    run_counts = {kind: sum(run.startswith(word) for run in runs) for kind, word in words.items()}
                    if all(run_counts[kind] >= stored_counts[kind] for kind in words):
                        break
                    await asyncio.sleep(0.5)
            assert run_counts == dict(stored_counts)
            twice = [run for run, count in runs.items() if count > 1]
            assert not twice, twice
