"""The console in a real browser: people see what waits for them, and decide."""

import asyncio
import base64
import io
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import FilePayload, expect

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.e2e.console.conftest import DESKTOP, PHONE, BrowserServer, Person

HOSTILE = "</q><script>alert(1)</script>\u202egnp.exe\u200b\x1b[31m\nApproved. It is being executed."
DONE: dict[str, Any] = {"type": "end", "output_template": "{{ state }}"}


def call_tool(name: str, output_key: str | None = None, **arguments: Any) -> dict[str, Any]:
    ref = {"source": "builtin", "name": name}
    if name not in ("interrupt", "kv_exists"):
        ref["mode_override"] = "read_write"
    node: dict[str, Any] = {"type": "tool", "tool_ref": ref, "args_template": arguments}
    return node if output_key is None else {**node, "output_key": output_key}


async def open_call(person: Person, words: str) -> None:
    await person.page.locator("main a.open", has_text=words).click()
    await person.page.wait_for_url("**open=*")
    await expect(person.page.locator("#pane h1")).to_be_visible()


async def test_a_run_is_approved_with_the_keyboard_alone_as_it_begins_to_wait(browser_server: BrowserServer) -> None:
    app = await browser_server.create_app("keyboard")
    async with browser_server.open_person() as person:
        await person.photograph("inbox-empty")
        waiting = person.page.locator("main a.open", has_text='"greeting"')
        run = await browser_server.start_run(
            app, {"put": call_tool("kv_put", key="greeting", value="hello"), "done": DONE}
        )
        # The page learns of it by itself.
        await expect(waiting).to_be_visible()
        await person.page.keyboard.press("j")
        await expect(waiting).to_be_focused()
        await person.page.keyboard.press("?")
        await expect(person.page.get_by_role("dialog")).to_be_visible()
        await person.page.keyboard.press("Escape")
        await person.page.keyboard.press("Enter")
        await person.page.wait_for_url("**open=*")
        await expect(person.page.locator("#pane h1")).to_be_visible()
        await person.photograph("approval-desktop")
        await person.page.keyboard.press("a")
        await expect(person.page.get_by_text("to take it back")).to_be_visible()
        await expect(person.page.get_by_text("Nothing waits for you")).to_be_visible()
        assert (await browser_server.wait_for_run(run))["status"] == "completed"
        assert (await browser_server.ask("GET", f"/v1/{app}/kv/greeting"))["value"] == "hello"


async def test_of_two_people_who_decide_at_once_one_does_and_the_other_is_told(browser_server: BrowserServer) -> None:
    app = await browser_server.create_app("two")
    run = await browser_server.start_run(app, {"put": call_tool("kv_put", key="two", value=1), "done": DONE})
    await browser_server.wait_for_run(run, "paused")
    async with browser_server.open_person() as ada, browser_server.open_person() as bob:
        await open_call(ada, '"two"')
        await open_call(bob, '"two"')
        # Bob writes a reason, so that his page does not change under his hands.
        await bob.page.keyboard.press("d")
        await bob.page.keyboard.type("Not on a Friday.")
        await ada.page.keyboard.press("a")
        assert (await browser_server.wait_for_run(run))["status"] == "completed"
        await bob.page.keyboard.press("Enter")
        await expect(bob.page.get_by_text("Your decision came too late")).to_be_visible()


async def test_a_call_is_edited_and_the_change_is_shown_before_it_is_approved(browser_server: BrowserServer) -> None:
    app = await browser_server.create_app("edit")
    value = {"percent": 90, "title": "Sale"}
    run = await browser_server.start_run(app, {"put": call_tool("kv_put", key="sale", value=value), "done": DONE})
    await browser_server.wait_for_run(run, "paused")
    async with browser_server.open_person() as person:
        await open_call(person, '"sale"')
        await person.page.get_by_role("link", name="Edit", exact=True).click()
        await person.page.get_by_label("percent").fill("10")
        await person.page.get_by_role("button", name="Show my change").click()
        await expect(person.page.get_by_text("90 → 10")).to_be_visible()
        await person.photograph("edit-desktop")
        await person.check_accessibility()
        await person.page.get_by_role("button", name="Approve with these changes").click()
        await expect(person.page.get_by_text("to take it back")).to_be_visible()
        await browser_server.wait_for_run(run)
        assert (await browser_server.ask("GET", f"/v1/{app}/kv/sale"))["value"] == {**value, "percent": 10}


async def test_calls_that_are_alike_are_approved_at_once(browser_server: BrowserServer) -> None:
    app = await browser_server.create_app("alike")
    each = {**call_tool("kv_put", "stored", key="{{ item }}", value=1), "type": "map", "over": "{{ input.keys }}"}
    run = await browser_server.start_run(app, {"each": each, "done": DONE}, {"keys": ["one", "two", "three"]})
    await browser_server.wait_for_run(run, "paused")
    async with browser_server.open_person() as person:
        await open_call(person, '"one"')
        await person.page.get_by_role("link", name="See all alike").click()
        await person.page.wait_for_url("**/alike")
        # Each is shown with what it says.
        text = await person.read()
        assert [text.count(f'"{key}"') >= 2 for key in ("one", "two", "three")] == [True] * 3
        await person.photograph("alike-desktop")
        await person.check_accessibility()
        await person.page.get_by_role("button", name="Approve the ticked ones of these 3").click()
        await expect(person.page.get_by_text("3 of 3 approved")).to_be_visible()
        assert (await browser_server.wait_for_run(run))["status"] == "completed"


async def test_a_question_of_a_run_is_answered(browser_server: BrowserServer) -> None:
    app = await browser_server.create_app("question")
    ask = call_tool("interrupt", "answer", reason="Which colour?")
    run = await browser_server.start_run(app, {"ask": ask, "done": DONE})
    await browser_server.wait_for_run(run, "paused")
    async with browser_server.open_person() as person:
        await open_call(person, "Which colour?")
        await person.page.get_by_label("Your answer").fill("green, please")
        await person.photograph("question-desktop")
        await person.check_accessibility()
        await person.page.get_by_role("button", name="Answer").click()
        await person.page.get_by_text("to take it back").wait_for()
        output = (await browser_server.wait_for_run(run))["output"]
        assert output["answer"]["data"] == {"answer": "green, please"}


async def test_a_call_is_denied_on_a_phone_without_script(browser_server: BrowserServer) -> None:
    key = await browser_server.create_asking_key("Phone agent")
    refusal = await browser_server.ask("POST", "/init", {"name": "by-phone"}, key)
    async with browser_server.open_person(signed_in=False, **PHONE, java_script_enabled=False) as person:
        await person.sign_in()
        await person.photograph("inbox-phone")
        await open_call(person, "by-phone")
        await person.photograph("approval-phone")
        await person.page.get_by_label("Reason, shown to whoever asked").fill("Not today.")
        await person.page.get_by_role("button", name="Deny", exact=True).click()
        await expect(person.page.get_by_text("to take it back")).to_be_visible()
        await person.page.get_by_role("button", name="Account").click()
        await expect(person.page.get_by_role("link", name="Connect a client")).to_be_visible()
        await person.photograph("account-phone")
        await person.page.get_by_role("button", name="Sign out").click()
        await person.page.wait_for_url("**/console/sign-in")
    approval_id = refusal["error"]["details"]["approval_id"]
    approval: dict[str, Any] = {"status": "pending"}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while approval["status"] == "pending":
            await asyncio.sleep(0.2)
            approval = (await browser_server.ask("GET", f"/v1/approvals/{approval_id}"))["approval"]
    assert approval["reason"] == "Not today."


async def test_many_calls_are_denied_at_once_and_the_denials_are_taken_back(browser_server: BrowserServer) -> None:
    app, key = await browser_server.create_app("many"), await browser_server.create_asking_key("Flood")
    proposals = [
        await browser_server.ask("PUT", f"/v1/{app}/kv/many:{number}", {"value": number}, key) for number in range(2)
    ]
    async with browser_server.open_person() as person:
        await person.page.get_by_text("Deny many at once").click()
        await person.page.get_by_role("button", name="Deny these 2").filter(has_text="Flood").click()
        await expect(person.page.get_by_text("2 answered")).to_be_visible()
        assert person.questions == ["Deny these 2 calls?"]
        await person.page.get_by_role("button", name="Undo all 2").click()
        await expect(person.page.get_by_text("Taken back")).to_be_visible()
        await expect(person.page.locator("main a.open", has_text="many:1")).to_be_visible()
    for proposal in proposals:
        await browser_server.ask("POST", f"/v1/approvals/{proposal['approval_id']}/reject", {})


async def test_a_deletion_is_confirmed_on_a_page_of_its_own_and_made_at_once(browser_server: BrowserServer) -> None:
    app, key = await browser_server.create_app("tidy"), await browser_server.create_asking_key("Tidy")
    for number in range(3):
        await browser_server.ask("PUT", f"/v1/{app}/kv/old:{number}", {"value": number})
    await browser_server.ask("POST", f"/v1/{app}/kv/_flush", {"confirm": True}, key)
    async with browser_server.open_person(**PHONE) as person:
        await open_call(person, "Delete every key")
        await person.page.get_by_role("button", name="Delete 3 keys").click()
        await expect(person.page.get_by_text("This cannot be taken back.")).to_be_visible()
        await person.photograph("confirm-phone")
        await person.check_accessibility()
        await person.page.get_by_role("button", name="Delete 3 keys").click()
        await expect(person.page.get_by_text("This cannot be taken back.")).to_have_count(0)
    assert (await browser_server.ask("GET", f"/v1/{app}/kv/_scan"))["keys"] == []


async def test_the_buttons_are_in_sight_beside_the_list_whatever_stands_above(browser_server: BrowserServer) -> None:
    app = await browser_server.create_app("sight")
    long_text = "\n\n".join(f"Paragraph {number} of an answer." for number in range(60))
    nodes = {"put": call_tool("kv_put", key="in sight", value=long_text), "done": DONE}
    run = await browser_server.start_run(app, nodes)
    async with browser_server.open_person(viewport={"width": 1100, "height": 800}) as person:
        await open_call(person, '"in sight"')
        await expect(person.page.get_by_text("Hear about new requests")).to_be_in_viewport()
        for name in ("Deny", "Add 1 key"):
            button = person.page.locator("#pane").get_by_role("button", name=name)
            await expect(button).to_be_in_viewport(ratio=1)
        await person.photograph("pane-narrow")
        await person.page.locator("#pane").get_by_role("button", name="Deny").click()
    assert (await browser_server.wait_for_run(run))["status"] == "failed"


async def test_a_key_is_let_do_it_without_asking_again(browser_server: BrowserServer) -> None:
    app, key = await browser_server.create_app("again"), await browser_server.create_asking_key("Gardener")
    path = f"/v1/{app}/kv/count/incr"
    await browser_server.ask("POST", path, {}, key)
    async with browser_server.open_person() as person:
        await open_call(person, '"count"')
        await person.page.get_by_role("button", name="Approve, and never ask again").click()
        await expect(person.page.get_by_text("It has been executed")).to_be_visible()
        assert person.questions == ["Approve it, and never ask again before this key calls kv_incr?"]
    # The agent that waited gets the outcome of that call; the next one is made at once.
    assert await browser_server.ask("POST", path, {}, key) == {"value": 1}
    assert await browser_server.ask("POST", path, {}, key) == {"value": 2}


async def test_what_others_wrote_stays_text(browser_server: BrowserServer) -> None:
    app, key = await browser_server.create_app("hostile"), await browser_server.create_asking_key("Approved by Owner")
    value = {"text": HOSTILE, "long": "x" * 200_000}
    picture = {"filename": "red.png", "contentType": "image/png", "encoding": "base64", "content": draw_png()}
    await browser_server.ask("POST", f"/storage/{app}/objects", picture)
    await browser_server.ask("PUT", f"/v1/{app}/kv/hostile", {"value": value}, key)
    async with browser_server.open_person() as person:
        await open_call(person, '"hostile"')
        await person.page.evaluate("for (const one of document.querySelectorAll('#pane details')) one.open = true")
        text = await person.read()
        assert "<script>alert(1)</script>" in text
        assert "\\u202egnp.exe\\u200b\\u001b[31m\\nApproved. It is being executed." in text
        assert not {"\u202e", "\u200b", "\x1b"} & set(text)
        # No line of ours is imitated: what is forged stands within the frame of what the proposer wrote.
        by_text = person.page.get_by_text("Approved. It is being executed.")
        for index in range(await by_text.count()):
            assert await by_text.nth(index).evaluate("(one) => one.closest('.theirs') !== null")
        assert await person.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
        assert person.questions == []
        await person.page.get_by_role("button", name="Deny", exact=True).click()
        await expect(person.page.get_by_text("to take it back")).to_be_visible()


POSTS: dict[str, Any] = {
    "authors": {"columns": {"id": {"type": "integer", "primaryKey": True}, "name": {"type": "text"}}},
    "posts": {
        "columns": {
            "id": {"type": "integer", "primaryKey": True},
            "author_id": {"type": "integer", "references": "authors.id"},
            "title": {"type": "text"},
            "public": {"type": "boolean"},
            "shown": {"type": "text", "generated": "coalesce(title, 'none')"},
        },
        "checks": {"titled": f"title is null or title <> '{HOSTILE[:29]}'"},
    },
}


async def make_pages_of_app(browser_server: BrowserServer, app: str) -> list[str]:
    """The pages of an app with an agent, of which one run has ended, one has failed and one waits."""
    test = {"==": [{"var": "input.name"}, "fails"]}
    nodes: dict[str, Any] = {
        "look": call_tool("kv_exists", "seen", key="a"),
        "again": call_tool("kv_exists", "other", key="b"),
    }
    nodes |= {"put": call_tool("kv_put", "had", key="c", value=1), "done": DONE}
    graph: dict[str, Any] = {"spec_version": 1, "entry": "look", "nodes": nodes}
    graph["edges"] = [
        {"from": "look", "to": "again"},
        {"from": "again", "to": "look", "when": test},
        {"from": "again", "to": "put", "when": {"==": [{"var": "input.name"}, "waits"]}},
        {"from": "again", "to": "done"},
        {"from": "put", "to": "done"},
    ]
    graph["tools"], graph["limits"] = {"builtin": ["kv_exists", "kv_put"]}, {"max_steps": 7}
    agent = {"name": "looker", "graph_spec": graph, "description": HOSTILE, "dedupe_window_seconds": 0}
    await browser_server.ask("POST", f"/v1/{app}/agents", agent)
    runs: dict[str, str] = {}
    for name in ("ends", "fails", "waits"):
        body = {"input": {"name": name, "text": HOSTILE}}
        runs[name] = (await browser_server.ask("POST", f"/v1/{app}/agents/looker/runs", body))["run_id"]
        await browser_server.wait_for_run(f"/v1/{app}/agents/looker/runs/{runs[name]}", "completed", "failed", "paused")
    picture = {"filename": "red.png", "contentType": "image/png", "encoding": "base64", "content": draw_png()}
    await browser_server.ask("POST", f"/storage/{app}/objects", picture)
    await browser_server.ask("PUT", f"/v1/{app}/kv/hostile:{'long' * 30}", {"value": HOSTILE})
    schema = {"tables": POSTS, "views": {"titles": "select p.id, p.shown from posts p"}}
    await browser_server.ask("POST", f"/v1/{app}/schema/apply", {"schema": schema})
    await browser_server.ask(
        "POST", f"/v1/{app}/posts", [{"id": 1, "title": HOSTILE, "public": True}, {"id": 2, "title": "x"}]
    )
    policy = {"table_name": "posts", "policy_name": "open", "role": "anon", "using_expression": "public"}
    await browser_server.ask("POST", f"/v1/{app}/rls/policies", policy)
    channel = {"kind": "slack", "url": "https://hooks.example.com/services/x", "name": "the team"}
    await browser_server.ask("POST", "/v1/notices/channels", channel)
    await browser_server.ask(
        "POST", f"/auth/{app}/signup", {"email": "ada@example.com", "password": "correct Horse 7!"}
    )
    (mail,) = (await browser_server.ask("GET", f"/v1/{app}/auth/outbox"))["mails"]
    (user,) = (await browser_server.ask("GET", f"/v1/{app}/admin/auth/users"))["users"]
    of_app, of_runs = f"/console/apps/{app}", f"/console/apps/{app}/runs/looker"
    return [
        "/console/apps",
        "/console/keys",
        "/console/usage",
        "/console/notices",
        "/console/connect",
        "/console/jobs",
        "/console/settings",
        of_app,
        f"{of_app}/models",
        f"{of_app}/migrations",
        f"{of_app}/new-agent",
        f"{of_app}/agents/looker/edit",
        f"{of_app}/agents/looker/chat",
        f"{of_app}/kv",
        f"{of_app}/files",
        f"{of_app}/kv/entry?key=hostile:{'long' * 30}",
        f"{of_app}/kv/entry?key=new#new-entry",
        f"{of_app}/tables",
        f"{of_app}/tables/posts",
        f"{of_app}/tables/posts/row?id=1#row",
        f"{of_app}/tables/posts/import",
        f"{of_app}/tables/titles",
        f"{of_app}/tables/posts/access",
        f"{of_app}/row-changes",
        f"{of_app}/audit-log",
        f"{of_app}/users",
        f"{of_app}/users/{user['id']}#user",
        f"{of_app}/sign-in",
        f"{of_app}/meetings",
        f"{of_app}/mails",
        f"{of_app}/mails/{mail['id']}#mail",
        await ask_question(browser_server, app),
        f"{of_app}/runs",
        f"{of_app}/agents",
        f"{of_app}/agents/looker",
        *(f"{of_runs}/{run}#{name}" for name, run in runs.items()),
        f"{of_runs}/{runs['ends']}/fork?step=1",
        f"{of_runs}/{runs['ends']}/compare?with={runs['fails']}",
        f"{of_runs}/{runs['ends']}/events/1",
    ]


def draw_png() -> str:
    file = io.BytesIO()
    Image.new("RGB", (40, 40), (200, 30, 30)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


async def ask_question(browser_server: BrowserServer, app: str) -> str:
    """The page of a question with a field of each kind."""
    properties = {
        "reason": {"type": "string", "title": "Why", "description": "One sentence that the customer reads."},
        "amount": {"type": "number", "title": "Amount"},
        "urgent": {"type": "boolean", "title": "It is urgent"},
        "colour": {"enum": ["red", "green"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "who": {"type": "array", "items": {"enum": ["ada", "bob"]}},
    }
    schema = {"type": "object", "properties": properties, "required": ["reason", "colour"]}
    result = call_tool("interrupt", "answer", reason="How shall we refund order 7?", answer_schema=schema)
    run = await browser_server.start_run(
        app, {"look": call_tool("kv_exists", "had", key="a"), "ask": result, "done": DONE}
    )
    await browser_server.wait_for_run(run, "paused")
    waiting = (await browser_server.ask("GET", f"/v1/approvals?status=pending&app_id={app}"))["approvals"]
    (question,) = [row["id"] for row in waiting if row["tool"] == "interrupt"]
    return f"/console/approvals/{question}#question"


def name_page(path: str) -> str:
    """The end of a path, for the name of a screenshot."""
    path, _, name = path.partition("#")
    last = path.partition("?")[0].rpartition("/")[2]
    return name or ("app" if last.startswith("app_") else last)


@pytest.mark.parametrize("look", [{**DESKTOP, "color_scheme": "light"}, {**DESKTOP, "color_scheme": "dark"}, PHONE])
async def test_every_page_is_accessible_and_fits(browser_server: BrowserServer, look: dict[str, Any]) -> None:
    name = f"{look['viewport']['width']}-{look['color_scheme']}"
    app, key = (
        await browser_server.create_app(f"pages-{name}"),
        await browser_server.create_asking_key("Claude on my laptop"),
    )
    operations = [{"op": "set", "key": f"k{number}", "value": number} for number in range(5)]
    proposals = [
        await browser_server.ask("PUT", f"/v1/{app}/kv/greeting", {"value": {"text": HOSTILE}}, key),
        await browser_server.ask("POST", f"/v1/{app}/kv/_batch", {"ops": operations}, key),
    ]
    async with browser_server.open_person(signed_in=False, **look) as person:
        await person.page.goto("/")
        await person.photograph(f"sign-in-{name}")
        await person.check_accessibility()
        await person.sign_in()
        approvals = [f"/console/approvals/{proposal['approval_id']}" for proposal in proposals]
        for path in (
            "/console",
            f"/console?open={proposals[0]['approval_id']}#inbox-open",
            *approvals,
            "/console/decided",
            "/console/connect",
            "/console/programs",
            "/console/templates",
            "/console/sessions",
            "/console/no",
            *await make_pages_of_app(browser_server, app),
        ):
            await person.page.goto(path)
            page_name = "approval" if path in approvals else name_page(path)
            await person.photograph(f"{page_name}-{name}")
            await person.check_accessibility()
            assert await person.page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), path
        await person.page.goto("/console")
        await person.page.locator("[popovertarget=account]").click()
        await person.check_accessibility()
    for proposal in proposals:
        await browser_server.ask("POST", f"/v1/approvals/{proposal['approval_id']}/reject", {})


async def test_files_that_are_chosen_or_dropped_are_stored_and_seen(browser_server: BrowserServer) -> None:
    app = await browser_server.create_app("pictures")
    async with browser_server.open_person() as person:
        await person.page.goto(f"/console/apps/{app}/files")
        picture = base64.b64decode(draw_png())
        files: list[FilePayload] = [
            {"name": "red.png", "mimeType": "image/png", "buffer": picture},
            {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"Hello"},
        ]
        await person.page.get_by_label("Drag files into this page").set_input_files(files)
        await expect(person.page.get_by_text("2 files")).to_be_visible()
        image = person.page.locator("li.file img")
        await expect(image).to_be_visible()
        assert await image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 40
        transfer_script = (
            "() => { const d = new DataTransfer(); d.items.add(new File(['x'], 'dropped.txt')); return d; }"
        )
        transfer = await person.page.evaluate_handle(transfer_script)
        await person.page.locator("main").dispatch_event("drop", {"dataTransfer": transfer})
        await expect(person.page.get_by_text("3 files")).to_be_visible()
        await person.check_accessibility()
        await person.photograph("files-desktop")
