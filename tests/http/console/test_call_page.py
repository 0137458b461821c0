"""The page of one call: what a person reads in five seconds, and the form in which they change it."""

import re
from html import unescape
from typing import Any

import httpx
import pytest

from tests.conftest import ADDRESS, Baobab
from tests.http.console.test_console import HOSTILE, find_csrf, sign_in
from tests.http.console.test_runs import Runner
from tests.jobs import let_decisions_count, run_due_jobs

COLUMNS: dict[str, Any] = {
    "id": {"type": "text", "primaryKey": True},
    "subject": {"type": "text"},
    "answer": {"type": "text"},
    "status": {"type": "text"},
    "stars": {"type": "integer"},
}
ROW_ID = "35b7b8d0-8075-420e-824e-7cc7185577e6"
OLD, NEW = "Thank you. We will look into it on Monday.", "Thank you. We will look into it today.\n\nYour shop"


def build_desk(**node: Any) -> dict[str, Any]:
    changes = {"answer": "{{ input.draft }}", "status": "answered", "stars": "{{ input.stars }}"}
    call = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "data_update"},
        "args_template": {"table": "tickets", "row_id": "{{ input.id }}", "changes": changes},
        "output_key": "row",
        **node,
    }
    nodes = {"answer": call, "done": {"type": "end", "output_template": "{{ state.row }}"}}
    graph = {"spec_version": 1, "entry": "answer", "nodes": nodes, "edges": [{"from": "answer", "to": "done"}]}
    return graph | {"tools": {"builtin": ["data_update"]}}


class Desk(Runner):
    """A support desk whose agent proposes answers to tickets."""

    async def propose(self, agent: str = "desk", **values: Any) -> str:
        run_input = {"id": ROW_ID, "message": "It came broken.\nPlease help.", "draft": NEW, "stars": 4, **values}
        path = f"/v1/{self.app_id}/agents/{agent}/runs"
        response = await self.baobab.client.post(path, json={"input": run_input}, headers=self.baobab.owner)
        assert response.status_code == 201, response.text
        await run_due_jobs(self.baobab.application)
        rows = await self.baobab.client.get("/v1/approvals?status=pending", headers=self.baobab.owner)
        (approval,) = [row for row in rows.json()["approvals"] if row["run_id"] == response.json()["run_id"]]
        return f"/console/approvals/{approval['id']}"

    async def post(self, path: str, of_page: str, **fields: str) -> httpx.Response:
        """Sends a form as a browser does, which says from which page."""
        form = {"csrf": find_csrf(await self.open(of_page)), **fields}
        headers = {**self.browser, "referer": ADDRESS + of_page}
        return await self.baobab.client.post(path, data=form, headers=headers)

    async def read_ticket(self) -> dict[str, Any]:
        await let_decisions_count(self.baobab.application)
        await run_due_jobs(self.baobab.application)
        response = await self.baobab.client.get(f"/v1/{self.app_id}/tickets/{ROW_ID}", headers=self.baobab.owner)
        row: dict[str, Any] = response.json()
        return row


@pytest.fixture
async def desk(baobab: Baobab) -> Desk:
    created_desk = Desk(baobab, await baobab.create_app(), await sign_in(baobab))
    schema = {"schema": {"tables": {"tickets": {"columns": COLUMNS}}}}
    path = f"/v1/{created_desk.app_id}"
    await baobab.client.post(f"{path}/schema/apply", json=schema, headers=baobab.owner)
    row = {"id": ROW_ID, "subject": "Cracked shade", "answer": OLD, "status": "open", "stars": 1}
    await baobab.client.post(f"{path}/tickets", json=row, headers=baobab.owner)
    ask = {"title": "Answer {{ input.message }}", "show": ["input.message", "arguments.changes.answer"]}
    await created_desk.create_agent("desk", build_desk(ask=ask))
    await created_desk.create_agent("plain", build_desk())
    return created_desk


def read_words(html: str) -> str:
    """The words of a page above what is closed, without marks."""
    main = html.partition("<main")[2].partition("</main>")[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<details.*?</details>", " ", main, flags=re.S))).split())


async def test_the_request_stands_above_the_proposal_and_texts_are_texts(desk: Desk) -> None:
    page = (await desk.open(await desk.propose())).text
    words = read_words(page)
    assert "Answer: It came broken. Please help." in words
    assert words.index("Please help.", words.index("What was asked")) < words.index("What it would do")
    assert "It came broken.\nPlease help." in page
    assert "<ins><span" in page
    assert '<del><span class="visually-hidden">removed: </span>on Monday.</del>' in page
    assert "now: open → answered" in words
    assert "now: 1 → 4" in words
    assert "Nothing else but this text." in words
    assert "With the right of Owner, through the API key first key." in words
    # Neither ids nor JSON are in sight.
    assert ROW_ID not in words
    assert "{" not in words
    assert page.count("Exact arguments</summary>") == 1


async def test_without_the_authors_words_the_row_is_named_by_its_text(desk: Desk) -> None:
    page = (await desk.open(await desk.propose("plain"))).text
    assert "Change answer, stars and status of " in read_words(page)
    assert '<span class="theirs">&#34;Cracked shade&#34;</span> in tickets</h1>' in page


async def test_a_text_that_is_mostly_new_is_shown_alone_with_the_old_one_closed(desk: Desk) -> None:
    page = (
        await desk.open(await desk.propose(draft="No. Something wholly different, and much longer than before."))
    ).text
    assert "<ins>" not in page
    assert re.search(r"<summary>Before</summary><p [^>]*>Thank you", page)


async def test_strangers_text_on_the_page_is_inert(desk: Desk) -> None:
    page = (await desk.open(await desk.propose(message=HOSTILE, draft=f"{HOSTILE} and more words than one"))).text
    assert "<script>alert" not in page
    assert not set(page) & {"\u202e", "\u200b", "\x1b"}


async def test_a_call_is_changed_in_fields_and_approved_in_the_same_step(desk: Desk) -> None:
    path = await desk.propose()
    page = (await desk.open(f"{path}/edit")).text
    assert f">\n{NEW}</textarea>" in unescape(page)
    long_text = "Письмо. " * 20_000
    ids = {match[2]: match[1] for match in re.finditer(r'<label for="(answer-\d+)">(\w+)', page)}
    fields = {"edited": "1", ids["table"]: "tickets", ids["row_id"]: ROW_ID, ids["status"]: "answered"}
    fields |= {ids["answer"]: long_text, ids["stars"]: "5"}
    difference = await desk.post(f"{path}/edit", f"{path}/edit", **fields)
    assert difference.status_code == 200, difference.text
    assert "Your change" in difference.text
    response = await desk.post(f"{path}/approve", f"{path}/edit", **fields)
    assert response.status_code == 303, response.text
    row = await desk.read_ticket()
    assert (row["answer"], row["stars"]) == (long_text, 5)
    page = (await desk.open(path)).text
    assert re.search(r'Approved by <span class="name">Owner, .*with arguments that they changed', page, re.S)


async def test_a_field_that_cannot_be_read_says_so_and_nothing_typed_is_lost(desk: Desk) -> None:
    path = await desk.propose()
    page = (await desk.open(f"{path}/edit")).text
    ids = {match[2]: match[1] for match in re.finditer(r'<label for="(answer-\d+)">(\w+)', page)}
    fields = {"edited": "1", ids["table"]: "tickets", ids["row_id"]: ROW_ID, ids["status"]: "answered"}
    fields |= {ids["answer"]: "a long text that was typed", ids["stars"]: "many"}
    for action in ("approve", "edit"):
        refusal = await desk.post(f"{path}/{action}", f"{path}/edit", **fields)
        assert refusal.status_code == 400
        assert "Type a number, such as 12." in refusal.text
        assert "a long text that was typed" in refusal.text
        assert 'value="many"' in refusal.text
    fields |= {ids["stars"]: "5", ids["table"]: ""}
    refusal = await desk.post(f"{path}/approve", f"{path}/edit", **fields)
    assert refusal.status_code == 400
    assert "a long text that was typed" in refusal.text
    assert (await desk.read_ticket())["status"] == "open"


async def test_what_the_author_fixed_is_locked_and_named(desk: Desk) -> None:
    node = {"run_as": "app", "approvers": {"role": "staff"}, "edit": ["changes.answer"]}
    await desk.create_agent("lender", build_desk(**node))
    path = await desk.propose("lender")
    edit = (await desk.open(f"{path}/edit")).text
    assert re.findall(r'<label for="answer-\d+">(\w+)', edit) == ["answer"]
    assert len(re.findall(r'class="field locked"', edit)) == 4
    assert "With the app&#39;s own right, lent to this call." in edit


async def test_a_decision_that_comes_too_late_says_who_was_first_when_and_why(desk: Desk) -> None:
    path = await desk.propose()
    approval_id = path.rpartition("/")[2]
    reject = {"reason": "Other person first"}
    rejection = await desk.baobab.client.post(
        f"/v1/approvals/{approval_id}/reject", json=reject, headers=desk.baobab.owner
    )
    assert rejection.json()["approval"]["decided_by_name"].startswith("Owner")
    refusal = await desk.baobab.client.post(f"/v1/approvals/{approval_id}/approve", headers=desk.baobab.owner)
    assert refusal.status_code == 409
    assert "rejected by Owner" in refusal.text
    assert "Other person first" in refusal.text
    form = {"csrf": find_csrf(await desk.open("/console"))}
    late = await desk.baobab.client.post(f"{path}/approve", data=form, headers=desk.browser)
    assert late.headers["location"].endswith(f"{path}?late=1")
    words = read_words((await desk.open(f"{path}?late=1")).text)
    assert "Your decision came too late and changed nothing." in words
    assert re.search(r"Denied by Owner.*Other person first.*Nothing was changed\.", words)


async def test_the_red_button_names_what_is_deleted_and_how_much(desk: Desk) -> None:
    for key in ("a", "b"):
        await desk.baobab.client.put(f"/v1/{desk.app_id}/kv/{key}", json={"value": 1}, headers=desk.baobab.owner)
    asking = {"name": "tidy", "approval": "destructive"}
    new_key = (await desk.baobab.client.post("/api-keys", json=asking, headers=desk.baobab.owner)).json()
    headers = {"authorization": f"Bearer {new_key['key']}"}
    flush = await desk.baobab.client.post(f"/v1/{desk.app_id}/kv/_flush", json={"confirm": True}, headers=headers)
    path = f"/console/approvals/{flush.json()['approval_id']}"
    page = await desk.open(path)
    assert re.search(r'<button class="danger"[^>]*>Delete 2 keys', page.text)
    confirm = await desk.send(f"{path}/approve", page)
    assert re.search(r'<button class="danger">Delete 2 keys</button>', confirm.text)


async def test_the_page_of_an_executed_call_says_what_the_call_left_out(desk: Desk) -> None:
    key = (
        await desk.baobab.client.post(
            "/api-keys", json={"name": "agent", "approval": "write"}, headers=desk.baobab.owner
        )
    ).json()["key"]
    path, headers = f"/v1/{desk.app_id}/tickets/{ROW_ID}", {"authorization": f"Bearer {key}"}
    response = await desk.baobab.client.patch(path, json={"answer": NEW, "anwser": "x"}, headers=headers)
    approval_id = response.json()["error"]["details"]["approval_id"]
    approve = f"/v1/approvals/{approval_id}/approve"
    assert (await desk.baobab.client.post(approve, headers=desk.baobab.owner)).status_code == 200
    assert (await desk.read_ticket())["answer"] == NEW
    words = read_words((await desk.open(f"/console/approvals/{approval_id}")).text)
    assert "tickets has no column anwser" in words.replace("`", "")


async def test_the_page_of_a_call_undoes_its_own_write_and_no_other_of_its_run(desk: Desk) -> None:
    graph = build_desk()
    status = {"table": "tickets", "row_id": "{{ input.id }}", "changes": {"stars": 5}}
    graph["nodes"]["rate"] = {**graph["nodes"]["answer"], "args_template": status, "output_key": "rated"}
    graph["edges"] = [{"from": "answer", "to": "rate"}, {"from": "rate", "to": "done"}]
    await desk.create_agent("rater", graph)
    path = await desk.propose("rater")
    await desk.post(f"{path}/approve", path)
    await desk.read_ticket()
    rows = await desk.baobab.client.get("/v1/approvals?status=pending", headers=desk.baobab.owner)
    (second,) = [row["id"] for row in rows.json()["approvals"] if row["agent"] == "rater"]
    await desk.post(f"/console/approvals/{second}/approve", path)
    assert (await desk.read_ticket())["stars"] == 5
    approval = (await desk.baobab.client.get(f"/v1/approvals/{second}", headers=desk.baobab.owner)).json()["approval"]
    page = await desk.open(f"/console/approvals/{second}")
    assert f'name="action_id" value="{approval["action_id"]}"><button>' in page.text
    undo = f"/console/apps/{desk.app_id}/row-changes/undo"
    assert "Undo this write?" in (await desk.send(undo, page, action_id=approval["action_id"])).text
    await desk.send(undo, page, action_id=approval["action_id"], confirmed="1")
    row = await desk.read_ticket()
    assert (row["stars"], row["answer"], row["status"]) == (4, NEW, "answered")


def find_button(page: str) -> str:
    """What the button says that approves a call or answers it."""
    match = re.search(r'<button class="(?:go|danger)"[^>]*data-key="a"[^>]*>([^<]*)', page)
    assert match is not None
    return unescape(match[1]).strip()


async def test_the_page_says_until_when_a_decision_can_be_taken_back(desk: Desk) -> None:
    page = (await desk.open(await desk.propose())).text
    assert find_button(page) == "Change 1 row in tickets"
    words = read_words(page)
    assert "Can be taken back for 10 s, undone for 7 days." in words
    assert words.index("now: open → answered") < words.index("Nothing else but this text.")
    assert words.index("Stored here, not sent.") < words.index("added:")


async def test_a_deletion_of_rows_is_confirmed_and_can_be_undone_unless_they_have_no_key(desk: Desk) -> None:
    key = {"name": "tidy", "approval": "destructive"}
    new_key = (await desk.baobab.client.post("/api-keys", json=key, headers=desk.baobab.owner)).json()
    by, base = {"authorization": f"Bearer {new_key['key']}"}, f"/v1/{desk.app_id}"
    await desk.baobab.client.put(f"{base}/kv/a", json={"value": 1}, headers=desk.baobab.owner)
    notes = {"schema": {"tables": {"notes": {"columns": {"text": {"type": "text"}}}}}, "mode": "merge"}
    for where, body in (("/schema/apply", notes), ("/notes", {"text": "a"})):
        response = await desk.baobab.client.post(base + where, json=body, headers=desk.baobab.owner)
        assert response.status_code < 300, response.text
    for path, button, words in (
        (f"{base}/tickets/{ROW_ID}", "Delete 1 row from tickets", "Can be undone for 7 days. You are asked once more."),
        # Without a key of the table, nothing tells its rows apart.
        (f"{base}/notes?text=eq.a", "Delete 1 row from notes", "Cannot be taken back. You are asked once more."),
        (f"{base}/kv/a", "Delete 1 key", "Cannot be taken back. You are asked once more."),
    ):
        answer = (await desk.baobab.client.delete(path, headers=by)).json()
        approval_id = answer.get("approval_id") or answer["error"]["details"]["approval_id"]
        page = await desk.open(f"/console/approvals/{approval_id}")
        assert find_button(page.text) == button
        assert words in read_words(page.text)
        confirm = (await desk.send(f"/console/approvals/{approval_id}/approve", page)).text
        assert ("it can be undone for 7 days" in confirm) == ("undone" in words)
        assert ("This cannot be taken back." in confirm) == ("undone" not in words)
        if "from tickets" in button:
            assert re.search(r"<dt>id</dt>.*?" + re.escape(ROW_ID), confirm), "the row that goes"
        detail = (await desk.baobab.client.get(f"/v1/approvals/{approval_id}", headers=desk.baobab.owner)).json()
        assert detail["approval"]["button"] == button, "programs read the same words"


async def test_programs_are_told_from_persons_by_a_word_and_a_mark(desk: Desk) -> None:
    page = (await desk.open(await desk.propose())).text
    assert "Agent desk asks" in read_words(page)
    assert 'class="avatar large program c0"' in page
    inbox = read_words((await desk.open("/console")).text)
    assert "Agent desk" in inbox


async def test_a_late_decision_shows_the_draft_apart_from_the_letter(desk: Desk) -> None:
    path = await desk.propose(agent="plain")
    reject = f"/v1/approvals/{path.rpartition('/')[2]}/reject"
    await desk.baobab.client.post(reject, headers=desk.baobab.owner)
    words = read_words((await desk.open(path)).text)
    draft, letter = words.index("We will look into it today."), words.index("It came broken.")
    assert words.index("What it was") < words.index("status answered") < draft < letter
    assert draft < words.index("What the run was given") < words.index("message") < letter
    assert words.count("We will look into it today.") == 1


async def test_a_change_of_a_graph_is_told_in_sentences(desk: Desk) -> None:
    key = {"name": "tidy", "approval": "write"}
    new_key = (await desk.baobab.client.post("/api-keys", json=key, headers=desk.baobab.owner)).json()
    graph = build_desk()
    nodes = {**graph["nodes"], "answer": {**graph["nodes"]["answer"], "on_error": "tell"}}
    nodes["ask"] = {"type": "tool", "tool_ref": {"source": "builtin", "name": "interrupt"}, "args_template": {}}
    nodes["ask"]["args_template"] = {"reason": "May we?"}
    edges = [{"from": "ask", "to": "answer"}, {"from": "answer", "to": "done"}]
    new_graph = {**graph, "entry": "ask", "nodes": nodes, "edges": edges}
    new_graph["tools"] = {"builtin": ["data_update", "interrupt"]}
    answer = await desk.baobab.client.patch(
        f"/v1/{desk.app_id}/agents/plain",
        json={"graph_spec": new_graph},
        headers={"authorization": f"Bearer {new_key['key']}"},
    )
    details = answer.json()
    approval_id = details.get("approval_id") or details["error"]["details"]["approval_id"]
    page = (await desk.open(f"/console/approvals/{approval_id}")).text
    words = read_words(page)
    for sentence in (
        "May now use the tool interrupt .",
        "Adds the node ask , which asks a person.",
        "Changes of the node answer , which calls the tool data_update : on_error .",
        "The run begins with ask , no longer with answer .",
        "After ask comes answer .",
    ):
        assert sentence in words
    assert "{" not in words
    assert find_button(page) == "Change an agent"
