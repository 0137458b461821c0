"""kill -9 of a server with rows, keys, sign-ups, files, hours and webhooks in flight: each event is delivered, each run
starts once.
"""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds
from tests.tools.ai.meetings.test_forwarding import Receiver, start_receiver
from tests.tools.triggers.conftest import TICKETS

_WRITERS, _KILLED_AFTER_SECONDS = 4, 1.5
_EVENTS: dict[str, dict[str, Any]] = {
    "rows": {"event": "row.inserted", "table": "tickets"},
    "people": {"event": "user.signed_up"},
    "keys": {"event": "key.changed", "prefix": "order:"},
}
_WORDS = {"rows": "row.inserted", "people": "user.signed_up", "files": "file.stored"}
_GRAPH = {"spec_version": 1, "entry": "done", "nodes": {"done": {"type": "end"}}, "edges": []}


async def prepare(session: aiohttp.ClientSession, server: ServerProcess, receiver: Receiver) -> str:
    app = await create_app(session, server)
    await ask(session, server, "POST", f"/v1/{app}/schema/apply", schema=TICKETS)
    await ask(session, server, "POST", f"/v1/{app}/agents", name="helper", graph_spec=_GRAPH)
    hour: dict[str, Any] = {"event": "schedule", "schedule": "* * * * *", "catch_up": True}
    for name, event in (*_EVENTS.items(), ("files", {"event": "file.stored"}), ("hours", hour)):
        await ask(session, server, "PUT", f"/v1/{app}/triggers/{name}", agent="helper", **event)
    await ask(session, server, "PUT", f"/v1/{app}/triggers/hooks", webhook=receiver.url, **_EVENTS["rows"])
    return app


async def ask(session: aiohttp.ClientSession, server: ServerProcess, method: str, path: str, **body: Any) -> Any:
    async with session.request(method, server.address + path, json=body or None) as response:
        assert response.status < 300, await response.text()
        return await response.json() if response.status != 204 else None


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
            await ask(session, server, "PUT", f"/v1/{app}/kv/order:{title}", value=number)
            confirmed_counts["keys"] += 1
        except (aiohttp.ClientError, AssertionError):
            return


async def list_starts(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> list[Any]:
    """The events that have started runs of the agent."""
    events: list[Any] = []
    cursor = ""
    while True:
        page = await ask(session, server, "GET", f"/v1/{app}/agents/helper/runs?limit=200{cursor}")
        events += [run["input"]["event"] for run in page["runs"]]
        if page.get("next_cursor") is None:
            return events
        cursor = f"&cursor={page['next_cursor']}"


async def count_written(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> Counter[str]:
    """Counts what is there, also what was not confirmed."""
    rows = await ask(session, server, "GET", f"/v1/{app}/tickets?select=id&limit=1000")
    usage = await ask(session, server, "GET", f"/storage/{app}/usage")
    users = await ask(session, server, "GET", f"/v1/{app}/admin/auth/users?limit=200")
    keys = await ask(session, server, "GET", f"/v1/{app}/kv/_scan?limit=1000")
    return Counter(rows=len(rows), files=usage["files_count"], people=len(users["users"]), keys=len(keys["keys"]))


def count_starts(events: list[Any]) -> Counter[str]:
    """Counts what has started a run: keys by their names, since one may be told twice after a crash."""
    counts = Counter({kind: sum(event["type"] == word for event in events) for kind, word in _WORDS.items()})
    counts["keys"] = len({event["data"]["key"] for event in events if event["type"] == "key.changed"})
    return counts


def count_hooks(receiver: Receiver) -> int:
    """Counts the rows of which webhooks have told. One that comes again has the id of the first."""
    ids: dict[str, set[str]] = {}
    for headers, body in receiver.requests:
        ids.setdefault(json.loads(body)["id"], set()).add(headers["webhook-id"])
    assert all(len(each) == 1 for each in ids.values()), ids
    return len(ids)


@pytest.mark.timeout(1800)
async def test_each_event_starts_its_run_once_however_often_the_server_is_killed(tmp_path: Path) -> None:
    dice = random.Random(11)
    settings = {"BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
    here = Installation.on_backend(tmp_path, settings=settings)
    confirmed_counts: Counter[str] = Counter()
    app = ""
    async with open_session() as session, start_receiver() as receiver:
        for round_number in list_rounds(2, 10):
            with here.start_machine() as server:
                app = app or await prepare(session, server, receiver)
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
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    events = await list_starts(session, server, app)
                    run_counts = count_starts(events)
                    is_complete = all(run_counts[kind] >= count for kind, count in stored_counts.items())
                    if is_complete and count_hooks(receiver) >= stored_counts["rows"]:
                        break
                    await asyncio.sleep(0.5)
            assert run_counts == stored_counts
            assert count_hooks(receiver) == stored_counts["rows"]
            ids = Counter(f"{event['type']} {event['id']}" for event in events)
            assert [event_id for event_id, count in ids.items() if count > 1] == []
