"""Pictures of five kinds of calls on a phone, by which somebody judges whether a call is understood in five seconds.

docs/decisions/0028-console.md says how they are judged. What can be tested of it is tested here: that the outcome, the
request, the proposal and the buttons are on the first screen.
"""

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import mcp_types as types
import pytest
from playwright.async_api import expect

from tests.e2e.console.conftest import DESKTOP, PHONE, SCREENSHOTS, BrowserServer, Person
from tests.tools.agents.tool_server import FakeToolServer, start_tool_server

PICTURES = SCREENSHOTS / "judging"
LIGHT: dict[str, Any] = {**PHONE, "color_scheme": "light"}
LOOKS: dict[str, dict[str, Any]] = {"dark": PHONE, "desktop": DESKTOP}
"""Further looks, which are not judged."""
MESSAGE = (
    "Hello,\nthe shade of my Luna lamp came cracked. I do not want to send all of it back.\n"
    "Could you send a new shade?\nCarla"
)
OLD = "Dear Carla,\nthank you for your message. We will look into it and answer on Monday.\nYour Acme Lamps"
NEW = (
    "Dear Carla,\nthank you for your message. A new shade for your Luna lamp leaves our house today. You need not send "
    "anything back.\nYour Acme Lamps"
)
SMALL = "Dear Carla,\nthank you for your message. We will look into it and answer tomorrow.\nYour Acme Lamps"
REFUND = types.Tool(
    name="refund",
    description="Pay money back.",
    input_schema={
        "type": "object",
        "properties": {
            "amount": {"type": "number"},
            "currency": {"type": "string"},
            "account": {"type": "string"},
            "reason": {"type": "string"},
        },
    },
)
MAIL = types.Tool(
    name="send_mail",
    description="Send a mail.",
    input_schema={
        "type": "object",
        "properties": {"to": {"type": "string"}, "subject": {"type": "string"}, "text": {"type": "string"}},
    },
)


@pytest.fixture
async def shop_tools() -> AsyncIterator[FakeToolServer]:
    async with start_tool_server() as fake:
        fake.tools = [REFUND, MAIL]
        yield fake


def call_node(name: str, arguments: dict[str, Any], server: str | None = None, **node: Any) -> dict[str, Any]:
    ref = (
        {"source": "builtin", "name": name} if server is None else {"source": "mcp", "server_id": server, "name": name}
    )
    return {"type": "tool", "tool_ref": ref, "args_template": arguments, **node}


async def start(
    browser_server: BrowserServer, app: str, name: str, nodes: dict[str, Any], tools: dict[str, Any], **values: Any
) -> str:
    """Starts a run of a new agent. Returns the path of the page of the call that waits."""
    names = [*nodes, "done"]
    edges = [{"from": one, "to": other} for one, other in pairwise(names)]
    graph = {"spec_version": 1, "entry": names[0], "nodes": {**nodes, "done": {"type": "end"}}, "edges": edges}
    body = {"name": name, "display_name": name.capitalize(), "graph_spec": {**graph, "tools": tools}}
    await browser_server.ask("POST", f"/v1/{app}/agents", body)
    run = await browser_server.ask("POST", f"/v1/{app}/agents/{name}/runs", {"input": values})
    await browser_server.wait_for_run(f"/v1/{app}/agents/{name}/runs/{run['run_id']}", "paused")
    rows = (await browser_server.ask("GET", f"/v1/approvals?status=pending&app_id={app}"))["approvals"]
    return f"/console/approvals/{next(row['id'] for row in rows if row['run_id'] == run['run_id'])}"


async def photograph(person: Person, name: str, path: str, *words: str) -> None:
    """Photographs the first screen of a call, which must have these words in it, and a button that names the deed."""
    await person.page.goto(path)
    for text in words:
        await expect(person.page.locator("main").get_by_text(text).first).to_be_in_viewport()
    button = person.page.locator(".decide").locator("button.go, button.danger")
    await expect(button).to_be_in_viewport()
    await expect(button).not_to_contain_text("Approve")
    await expect(person.page.locator(".how-final")).to_contain_text("taken back")
    await person.check_accessibility()
    picture = PICTURES / f"{name}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    await person.page.screenshot(path=picture)


async def test_ten_pictures_of_five_kinds_of_calls(  # noqa: PLR0915 (one call after the other)
    browser_server: BrowserServer, shop_tools: FakeToolServer
) -> None:
    app = await browser_server.create_app("acme-lamps")
    columns = {
        "id": {"type": "text", "primaryKey": True},
        "subject": {"type": "text"},
        "answer": {"type": "text"},
        "status": {"type": "text"},
    }
    await browser_server.ask(
        "POST", f"/v1/{app}/schema/apply", {"schema": {"tables": {"tickets": {"columns": columns}}}}
    )
    ticket = "35b7b8d0-8075-420e-824e-7cc7185577e6"
    row = {"id": ticket, "subject": "Cracked shade on a Luna lamp", "answer": OLD, "status": "open"}
    await browser_server.ask("POST", f"/v1/{app}/tickets", row)
    server = {"name": "shop", "url": shop_tools.mcp}
    await browser_server.ask("POST", f"/v1/{app}/mcp-servers", server)
    pages: dict[str, tuple[str, tuple[str, ...]]] = {}
    changes = {"answer": "{{ input.draft }}", "status": "answered"}
    answer = call_node("data_update", {"table": "tickets", "row_id": "{{ input.ticket }}", "changes": changes})
    ask = {"title": "Answer {{ input.subject }}", "show": ["input.message", "arguments.changes.answer"]}
    values = {"ticket": ticket, "subject": row["subject"], "message": MESSAGE}
    with_data = {"builtin": ["data_update"]}
    path = await start(browser_server, app, "clerk", {"answer": {**answer, "ask": ask}}, with_data, draft=NEW, **values)
    pages["1-answer"] = (path, ("Answer: Cracked shade on a Luna lamp", "Could you send a new shade?"))
    path = await start(browser_server, app, "helper", {"answer": answer}, with_data, draft=SMALL, **values)
    pages["2-answer-without-title"] = (path, ("Cracked shade on a Luna lamp",))
    ask = {"title": "Refund {{ arguments.amount }} EUR to {{ arguments.account }}"}
    money = {"currency": "EUR", "reason": "{{ input.reason }}"}
    refund = call_node("refund", {"amount": "{{ input.amount }}", "account": "{{ input.account }}", **money}, "shop")
    with_shop = {"mcp_servers": [{"server_id": "shop", "tools": ["refund", "send_mail"]}]}
    reason = "The parcel was lost, and Tomas H. does not want another lamp."
    values_of_refund: dict[str, Any] = {
        "amount": 240,
        "account": "tomas@example.com",
        "reason": reason,
        "message": "My lamp never came. Tomas H.",
    }
    path = await start(browser_server, app, "payer", {"refund": {**refund, "ask": ask}}, with_shop, **values_of_refund)
    pages["3-refund"] = (path, ("Refund: 240 EUR to tomas@example.com",))
    mail = call_node("send_mail", {"to": "{{ input.to }}", "subject": "Your lamp", "text": "{{ input.draft }}"}, "shop")
    ask = {"title": "Send a mail: {{ arguments.to }}", "show": ["arguments.text"]}
    values = {"to": "carla@example.com", "draft": NEW, "message": MESSAGE}
    path = await start(browser_server, app, "mailer", {"mail": {**mail, "ask": ask}}, with_shop, **values)
    pages["4-mail"] = (path, ("Send a mail: carla@example.com",))
    for number in range(303):
        await browser_server.ask("PUT", f"/v1/{app}/kv/cache:{number}", {"value": number})
    key = await browser_server.create_asking_key("tidy")
    flush = await browser_server.ask("POST", f"/v1/{app}/kv/_flush", {"confirm": True}, by=key)
    pages["5-delete-all"] = (f"/console/approvals/{flush['approval_id']}", ("Delete every key", "Delete 303 keys"))
    ops = [{"op": "del", "key": f"cache:{number}"} for number in range(20)]
    batch = await browser_server.ask("POST", f"/v1/{app}/kv/_batch", {"ops": ops}, by=key)
    pages["6-delete-twenty"] = (f"/console/approvals/{batch['approval_id']}", ("Delete 20 keys",))
    schema = {
        "type": "object",
        "properties": {"text": {"type": "string", "title": "Answer to Carla", "maxLength": 4000}},
        "required": ["text"],
    }
    question = call_node(
        "interrupt",
        {
            "reason": "What do we answer Carla about her lamp?",
            "answer_schema": schema,
            "data": {"text": "{{ input.draft }}"},
        },
        output_key="said",
        then="write",
        ask={"title": "Answer {{ input.subject }}", "show": ["input.message"]},
    )
    write_changes = {"answer": "{{ state.said.data.text }}", "status": "answered"}
    write = call_node("data_update", {"table": "tickets", "row_id": "{{ input.ticket }}", "changes": write_changes})
    nodes, both = {"ask": question, "write": write}, {"builtin": ["interrupt", "data_update"]}
    values = {"ticket": ticket, "subject": row["subject"], "message": MESSAGE, "draft": NEW}
    path = await start(browser_server, app, "asker", nodes, both, **values)
    pages["7-question-with-its-write"] = (path, ("Answer: Cracked shade on a Luna lamp",))
    plain = call_node("interrupt", {"reason": "May we close the shop on the 24th?"})
    path = await start(browser_server, app, "planner", {"ask": plain}, {"builtin": ["interrupt"]}, day="24 December")
    pages["8-question"] = (path, ("May we close the shop on the 24th?",))
    graph = {"spec_version": 1, "entry": "done", "nodes": {"done": {"type": "end", "output_template": "closed"}}}
    change = await browser_server.ask("PATCH", f"/v1/{app}/agents/planner", {"graph_spec": graph}, by=key)
    pages["9-graph"] = (f"/console/approvals/{find_id(change)}", ("planner",))
    pages["10-late"] = (pages["1-answer"][0], ("Denied by",))
    for look, options in LOOKS.items():
        async with browser_server.open_person(**options) as person:
            for name, (path, words) in pages.items():
                if name != "10-late":
                    await photograph(person, f"{look}/{name}", path, *words)
    async with browser_server.open_person(**LIGHT) as person:
        for name, (path, words) in pages.items():
            if name == "10-late":
                approval_id = path.rpartition("/")[2]
                await browser_server.ask(
                    "POST", f"/v1/approvals/{approval_id}/reject", {"reason": "Other person first"}
                )
                await person.page.goto(f"{path}?late=1")
                await expect(person.page.get_by_text("came too late")).to_be_visible()
                await person.page.screenshot(path=PICTURES / f"{name}.png")
            else:
                await photograph(person, name, path, *words)
        await person.check_accessibility()


def find_id(answer: dict[str, Any]) -> str:
    """The id of the approval that a call waits for."""
    details = answer["error"]["details"] if isinstance(answer.get("error"), dict) else answer
    approval_id: str = details.get("approval_id") or answer["details"]["approval_id"]
    return approval_id
