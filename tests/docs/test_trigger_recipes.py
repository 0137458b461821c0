"""The recipes of the page about triggers do what it says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.tools.ai.meetings.test_forwarding import start_receiver
from tests.tools.triggers.conftest import open_house

PAGE = (ROOT / "docs" / "triggers.md").read_text()
_ID = {"type": "uuid", "primaryKey": True, "default": "gen_random_uuid()"}
_COLUMNS = {"id": _ID, "title": "text", "status": "text", "answer": "text"}
_SCHEMA = {"tables": {"tickets": {"columns": _COLUMNS}}}
_CURL = re.compile(
    r"curl -s (?:-X (?P<method>PUT) )?\$BAOBAB(?P<path>\S+) -H \"[^\"]*\" -d '(?P<body>.*?)'$", re.MULTILINE | re.DOTALL
)


def read_requests() -> Iterator[tuple[str, str, Any]]:
    """Yields the method, the path behind the app, and the body of each command of the recipes."""
    for block in find_blocks(PAGE, "sh", below="Recipes"):
        for match in _CURL.finditer(block):
            path = match["path"].removeprefix("/v1/$APP")
            yield match["method"] or "POST", path, json.loads(match["body"])


async def test_the_five_recipes_start_what_the_page_says(tmp_path: Path) -> None:
    async with open_house(tmp_path, _SCHEMA) as house, start_receiver() as receiver:
        own_events: list[Any] = []
        for method, path, body in read_requests():
            if path == "/events":
                own_events.append(body)
                continue
            address = {"webhook": receiver.url} if "webhook" in body else {}
            status = 201 if path == "/agents" else 200
            await house.request(method, path, status, json={**body, **address})
        await house.set_trigger("paid", event="custom.order-paid", webhook=receiver.url)

        await house.insert(title="The lamp is broken", status="open")
        person = {"email": "ada@mail.example", "password": "correct Horse 7!"}
        assert (await house.client.post(f"/auth/{house.app}/signup", json=person)).is_success
        for collection in ("handbook", "letters"):
            await house.request("POST", "/rag/collections", 201, json={"name": collection})
            text = {"text": "Lamps have two years."}
            await house.request("POST", f"/rag/collections/{collection}/ingest", 202, json=text)
        for _ in range(2):
            await house.request("POST", "/events", 202, json=own_events[0])
        for _ in range(3):
            await house.advance(1)
        bodies = [json.loads(body) for _, body in receiver.requests]
        assert sorted(each["type"] for each in bodies) == ["custom.order-paid", "document.ready", "user.signed_up"]
        [run] = await house.list_runs()
        # The answer is drafted; before it is written into the ticket, staff are asked.
        assert run["error"] is None, run["error"]
        assert (run["status"], run["input"]["ticket"]["title"]) == ("paused", "The lamp is broken")
        await house.advance(22 * 3600)
        morning = (await house.list_runs())[-1]
        assert morning["input"]["ticket"]["title"] == "The day of 2027-01-16T06:00:00+00:00"


async def test_an_mcp_client_finds_what_it_needs_by_the_words_that_people_use(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        for words in ("start an agent when a row arrives", "run something every night", "schedule a daily job"):
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            body["params"] = {"name": "search_tools", "arguments": {"query": words}}
            headers = {**house.owner, "accept": "application/json, text/event-stream"}
            answer = await house.client.post("/mcp", json=body, headers=headers)
            assert "triggers_set" in answer.text, (words, answer.text[:500])
