"""The recipes of the page about triggers do what it says."""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.mcp_server.mcp_requests import call_tool
from tests.tools.ai.meetings.test_forwarding import start_receiver
from tests.tools.mail.test_delivery import Relay, open_relay
from tests.tools.triggers.conftest import House, open_house
from tests.users import verify_user

CUSTOMER = "11111111-1111-4111-8111-111111111111"
PAGE = (ROOT / "docs" / "triggers.md").read_text()
_ID = {"type": "uuid", "primaryKey": True, "default": "gen_random_uuid()"}
_COLUMNS = {"id": _ID, "title": "text", "status": "text", "customer": "text"}
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


@contextlib.asynccontextmanager
async def open_desk(folder: Path) -> AsyncIterator[tuple[House, Relay, str]]:
    """An app with a table of tickets, a mail server, and the id of a customer whose address is confirmed."""
    relay = Relay()
    async with open_relay(relay) as port:
        mail = {"BAOBAB_SMTP_URL": f"smtp://127.0.0.1:{port}", "BAOBAB_MAIL_FROM": "desk@mail.example"}
        async with open_house(folder, _SCHEMA, **mail) as house:
            await house.user_headers(house.app, CUSTOMER)
            await verify_user(house.application, house.app, CUSTOMER)
            yield house, relay, f"{CUSTOMER}@users.test"


def get_bodies() -> dict[str, Any]:
    """The bodies of the commands of the recipes by their paths, without those of events."""
    return {path: body for _, path, body in read_requests() if path != "/events"}


async def test_the_five_recipes_start_what_the_page_says(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as (house, relay, address), start_receiver() as receiver:
        own_events: list[Any] = []
        for method, path, body in read_requests():
            if path == "/events":
                own_events.append(body)
                continue
            hook = {"webhook": receiver.url} if "webhook" in body else {}
            status = 201 if path == "/agents" else 200
            await house.request(method, path, status, json={**body, **hook})
        await house.set_trigger("paid", event="custom.order-paid", webhook=receiver.url)

        await house.insert(title="The lamp is broken", status="open", customer=CUSTOMER)
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
        # The answer is drafted; before it is mailed, staff are asked.
        assert run["error"] is None, run["error"]
        assert (run["status"], run["input"]["ticket"]["title"]) == ("paused", "The lamp is broken")
        assert address not in [mail["To"] for mail in relay.mails]
        await house.approve_all()
        for _ in range(2):
            await house.advance(1)
        assert [mail["Subject"] for mail in relay.mails if mail["To"] == address] == ["Your ticket"]
        await house.advance(22 * 3600)
        morning = (await house.list_runs())[-1]
        assert morning["input"]["ticket"]["title"] == "The day of 2027-01-16T06:00:00+00:00"


def test_the_graph_that_answers_a_ticket_has_less_than_thirty_lines() -> None:
    [block] = [block for block in find_blocks(PAGE, "sh", below="Recipes") if '"mail_send"' in block]
    assert len(block.splitlines()) < 30


async def test_an_mcp_client_builds_the_desk_in_at_most_twelve_calls(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as (house, relay, address):
        names: list[str] = []

        async def call(tool: str, **arguments: Any) -> Any:
            names.append(tool)
            result = await call_tool(house, tool, arguments)
            assert not result.get("isError"), (tool, result["content"][0]["text"])
            return result.get("structuredContent")

        bodies = get_bodies()
        agent, trigger = bodies["/agents"], bodies["/triggers/new-ticket"]
        await call("search_tools", query="start an agent when a row arrives")
        await call("schema_apply", app_id=house.app, schema=_SCHEMA)
        await call("agents_validate", app_id=house.app, **agent)
        await call("agents_create", app_id=house.app, **agent)
        await call("triggers_set", app_id=house.app, name="new-ticket", **trigger)
        row = {"id": CUSTOMER, "title": "A lamp", "customer": CUSTOMER}
        data = {"table": "tickets", "row": row}
        outcome = await call("triggers_test", app_id=house.app, name="new-ticket", data=data)
        assert (outcome["fits"], outcome["input"]) == (True, {"ticket": row})
        await call("data_insert", app_id=house.app, table="tickets", values=row)
        await house.advance(1)
        [delivery] = (await call("triggers_deliveries", app_id=house.app, name="new-ticket"))["deliveries"]
        assert delivery["status"] == "delivered"
        assert len(names) <= 12, names
        await house.approve_all()
        for _ in range(2):
            await house.advance(1)
        assert [mail["To"] for mail in relay.mails] == [address]


async def test_an_mcp_client_finds_what_it_needs_by_the_words_that_people_use(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house:
        for words in ("start an agent when a row arrives", "run something every night", "schedule a daily job"):
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
            body["params"] = {"name": "search_tools", "arguments": {"query": words}}
            headers = {**house.owner, "accept": "application/json, text/event-stream"}
            answer = await house.client.post("/mcp", json=body, headers=headers)
            assert "triggers_set" in answer.text, (words, answer.text[:500])
