"""The pages of runs: their list, a run's graph and timeline, and what a person does with a run."""

import asyncio
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Baobab
from tests.http.console.test_console import HOSTILE, find_csrf, sign_in
from tests.http.live_server import serve_installation
from tests.jobs import let_decisions_count, run_due_jobs
from tests.servers import TIMEOUT_SECONDS


def build_graph(*, asks: bool = False) -> dict[str, Any]:
    """Looks whether a key is there, or stores it, for which a person is asked; then reads it."""
    first = "kv_put" if asks else "kv_exists"
    arguments = {"key": "{{ input.key }}", "value": "{{ input.value }}"} if asks else {"key": "{{ input.key }}"}
    nodes = {
        "first": _call_tool(first, "had", arguments),
        "read": _call_tool("kv_get", "found", {"key": "{{ input.key }}"}),
        "done": {"type": "end", "output_template": {"found": "{{ state.found.value }}"}},
    }
    edges = [{"from": "first", "to": "read"}, {"from": "read", "to": "done"}]
    graph = {"spec_version": 1, "entry": "first", "nodes": nodes, "edges": edges}
    return graph | {"tools": {"builtin": [first, "kv_get"]}}


def _call_tool(name: str, output_key: str, arguments: dict[str, str]) -> dict[str, Any]:
    ref = {"source": "builtin", "name": name}
    return {"type": "tool", "tool_ref": ref, "args_template": arguments, "output_key": output_key}


class Runner:
    """An app with the agents `asker`, which waits for a person, and `keeper`, and a browser that has signed in."""

    def __init__(self, baobab: Baobab, app_id: str, browser: dict[str, str]) -> None:
        self.baobab, self.app_id, self.browser = baobab, app_id, browser

    async def create_agent(self, name: str, graph: dict[str, Any]) -> None:
        body = {"name": name, "graph_spec": graph, "dedupe_window_seconds": 0}
        path = f"/v1/{self.app_id}/agents"
        response = await self.baobab.client.post(path, json=body, headers=self.baobab.owner)
        assert response.status_code == 201, response.text

    async def run(self, name: str, key: str = "a", value: Any = 1) -> str:
        """The path of the page of a run that has ended, or waits. `keeper` finds the value."""
        run_input = {"key": key, "value": value}
        if name != "asker":
            key_path = f"/v1/{self.app_id}/kv/{key}"
            await self.baobab.client.put(key_path, json={"value": value}, headers=self.baobab.owner)
        path = f"/v1/{self.app_id}/agents/{name}/runs"
        response = await self.baobab.client.post(path, json={"input": run_input}, headers=self.baobab.owner)
        assert response.status_code == 201, response.text
        await run_due_jobs(self.baobab.application)
        return f"/console/apps/{self.app_id}/runs/{name}/{response.json()['run_id']}"

    async def open(self, path: str) -> httpx.Response:
        page = await self.baobab.client.get(path, headers=self.browser)
        assert page.status_code == 200, page.text
        return page

    async def send(self, path: str, page: httpx.Response, **fields: str) -> httpx.Response:
        form = {"csrf": find_csrf(page), **fields}
        return await self.baobab.client.post(path, data=form, headers=self.browser)


@pytest.fixture
async def runner(baobab: Baobab) -> Runner:
    return await open_runner(baobab)


async def open_runner(baobab: Baobab) -> Runner:
    created_runner = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    await created_runner.create_agent("asker", build_graph(asks=True))
    await created_runner.create_agent("keeper", build_graph())
    return created_runner


async def test_the_runs_of_an_app_are_listed_by_agent_and_state(runner: Runner) -> None:
    waiting_path, ended_path = await runner.run("asker", key="a", value=1), await runner.run("keeper", key="b", value=2)
    runs = f"/console/apps/{runner.app_id}/runs"
    for query, shown_paths in {
        "": {waiting_path, ended_path},
        "?agent=keeper": {ended_path},
        "?agent=&status=paused": {waiting_path},
        "?agent=keeper&status=paused": set(),
    }.items():
        page = await runner.open(runs + query)
        assert {path for path in (waiting_path, ended_path) if f'href="{path}"' in page.text} == shown_paths
    assert (await runner.baobab.client.get(f"{runs}?status=tired", headers=runner.browser)).status_code == 400


async def test_a_run_shows_its_graph_its_calls_and_what_it_waits_for(runner: Runner) -> None:
    path = await runner.run("asker", key="greeting", value=HOSTILE)
    page = await runner.open(path)
    assert "now in first" in page.text
    assert re.search(r'class="node waiting"><title>first', page.text)
    assert re.search(r'class="node idle"><title>read', page.text)
    assert re.search(rf'data-live="{path}/live\?from=\d+&amp;since=\d+"', page.text)
    assert "<script>alert" not in page.text
    assert not set(page.text) & {"\u202e", "\u200b", "\x1b"}
    (approval_id,) = set(re.findall(r"/console/approvals/(appr_\w+)", page.text))
    waiting = await runner.open(f"/console/approvals/{approval_id}")
    await runner.send(f"/console/approvals/{approval_id}/approve", waiting)
    await let_decisions_count(runner.baobab.application)
    ended_page = await runner.open(path)
    assert 'data-live="/console/session"' in ended_page.text
    assert "Approved." in ended_page.text
    assert len(re.findall(r'class="node done"', ended_page.text)) == 3
    # The result of the second call, as text.
    assert "\\u202egnp.exe" in unescape(ended_page.text)


async def test_a_long_value_is_cut_and_a_page_of_its_own_has_all_of_it(runner: Runner) -> None:
    path = await runner.run("keeper", key="long", value="y" * 5000)
    page = await runner.open(path)
    match = re.search(r'href="([^"]+/events/\d+)">3\d\d\d more characters', page.text)
    assert match
    assert "y" * 5000 in (await runner.open(match[1])).text
    assert (await runner.baobab.client.get(f"{path}/events/999", headers=runner.browser)).status_code == 404


async def test_a_long_timeline_is_read_in_parts(runner: Runner) -> None:
    each = _call_tool("kv_exists", "had", {"key": "{{ item }}"}) | {"type": "map", "over": "{{ input.keys }}"}
    graph = {"spec_version": 1, "entry": "each", "nodes": {"each": each, "done": {"type": "end"}}}
    graph |= {"edges": [{"from": "each", "to": "done"}], "tools": {"builtin": ["kv_exists"]}}
    await runner.create_agent("counter", graph | {"limits": {"max_tool_calls": 500}})
    path = f"/v1/{runner.app_id}/agents/counter/runs"
    body = {"input": {"keys": [f"key-{number}" for number in range(400)]}}
    response = await runner.baobab.client.post(path, json=body, headers=runner.baobab.owner)
    await run_due_jobs(runner.baobab.application)
    page = await runner.open(f"/console/apps/{runner.app_id}/runs/counter/{response.json()['run_id']}")
    shown_keys: list[str] = []
    parts = 0
    while True:
        parts += 1
        shown_keys += re.findall(r"&#34;(key-\d+)&#34;", page.text.partition('aria-labelledby="timeline"')[2].partition(
            'id="input"')[0])  # fmt: skip
        earlier = re.search(r'href="([^"]+\?before=\d+)">', page.text)
        if earlier is None:
            break
        page = await runner.open(earlier[1])
    assert parts == 3
    assert set(shown_keys) == {f"key-{number}" for number in range(400)}


async def test_a_run_that_failed_says_why_and_what_to_do(runner: Runner) -> None:
    await runner.create_agent("stuck", build_graph() | {"edges": [
        {"from": "first", "to": "read", "when": {"==": [1, 2]}}, {"from": "read", "to": "done"}]})  # fmt: skip
    page = await runner.open(await runner.run("stuck", key="a", value=1))
    assert "It failed:" in page.text
    assert "No edge leads on from first" in page.text
    assert "Give the node one edge without a condition" in page.text
    assert re.search(r'class="node failed"><title>first', page.text)


async def test_a_run_is_cancelled(runner: Runner) -> None:
    path = await runner.run("asker", key="a", value=1)
    response = await runner.send(f"{path}/cancel", await runner.open(path))
    assert (response.status_code, response.headers["location"]) == (303, path)
    page = await runner.open(path)
    assert "Cancelled" in page.text
    assert "/cancel" not in page.text
    again = await runner.send(f"{path}/cancel", page)
    assert again.status_code == 409


async def test_a_run_goes_on_from_a_step_with_another_input_and_both_are_compared(runner: Runner) -> None:
    path = await runner.run("keeper", key="a", value="before")
    await runner.run("keeper", "b", "after")
    page = await runner.open(f"{path}/fork?step=1")
    assert 'name="step" inputmode="numeric" pattern="[0-9]*" value="1"' in page.text
    once = re.findall(r'name="once" value="(\w+)"', page.text)[0]
    fields = {"once": once, "step": "0", "input": json.dumps({"key": "b"})}
    response = await runner.send(f"{path}/fork", page, **fields)
    assert response.status_code == 303, response.text
    await run_due_jobs(runner.baobab.application)
    other = response.headers["location"]
    assert other != path
    assert "after" in (await runner.open(other)).text
    # The form that is sent twice starts one run.
    assert (await runner.send(f"{path}/fork", page, **fields)).headers["location"] == other
    comparison = await runner.open(f"{path}/compare?with={other.rpartition('/')[2]}")
    rows = re.findall(
        r'<tr class="differs"><td class="theirs">(.*?)</td><td class="theirs">(.*?)</td>', comparison.text
    )
    assert any("before" in left and "after" in right for left, right in rows)
    assert 'step 1: first</td><td class="theirs">step 1: first' in comparison.text


@pytest.mark.parametrize(
    "fields", [{"step": "one"}, {"step": "99"}, {"input": "{"}, {"input": "[]"}, {"state": '{"nobody": 1}'}]
)
async def test_a_fork_that_cannot_be_is_refused_in_words(runner: Runner, fields: dict[str, str]) -> None:
    path = await runner.run("keeper", key="a", value=1)
    refusal = await runner.send(f"{path}/fork", await runner.open(f"{path}/fork"), **fields)
    assert 400 <= refusal.status_code < 500
    assert "<h1>" in refusal.text


async def test_a_run_is_downloaded_with_its_graph_and_all_its_events(runner: Runner) -> None:
    path = await runner.run("keeper", key="a", value=1)
    response = await runner.open(f"{path}/run.json")
    assert response.headers["content-disposition"] == 'attachment; filename="run.json"'
    body = response.json()
    assert body["run"]["status"] == "completed"
    assert body["graph_spec"]["entry"] == "first"
    assert [event["seq"] for event in body["events"]] == list(range(1, body["run"]["last_seq"] + 1))
    waiting = await runner.open(f"{await runner.run('asker')}/run.json")
    assert "run_paused" in waiting.text
    assert "approval_token" not in waiting.text


async def test_the_events_of_a_run_are_followed_to_its_end_by_whoever_is_signed_in(runner: Runner) -> None:
    path = await runner.run("keeper", key="a", value=1)
    response = await runner.open(f"{path}/live?since=2")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "id: 3\n" in response.text
    assert "id: 2\n" not in response.text
    assert "event: run_end" in response.text
    stranger = await runner.baobab.client.get(f"{path}/live")
    assert stranger.status_code == 401
    none = await runner.baobab.client.get(f"{path[:-4]}0000/live", headers=runner.browser)
    assert none.status_code == 404


async def test_an_app_shows_its_settings_and_they_are_changed(runner: Runner) -> None:
    apps = await runner.open("/console/apps")
    path = f"/console/apps/{runner.app_id}"
    assert f'href="{path}"' in apps.text
    page = await runner.open(path)
    saved_response = await runner.send(f"{path}/access-mode", page, access_mode="public")
    assert saved_response.headers["location"] == f"{path}?saved=1"
    assert (await runner.send(f"{path}/access-mode", page, access_mode="ajar")).status_code == 400
    await runner.send(f"{path}/visibility", page, visibility="public", listed="yes")
    await runner.send(f"{path}/pause", page, paused="yes")
    page_text = (await runner.open(path)).text
    assert page_text.count(" checked") == 2
    assert "is paused" in page_text
    response = await runner.send("/console/apps/create", apps, name="made-here")
    assert "made-here" in (await runner.open(response.headers["location"])).text


async def test_an_agent_is_shown_with_its_graph_and_its_last_runs(runner: Runner) -> None:
    path = await runner.run("keeper", key="a", value=1)
    agents = f"/console/apps/{runner.app_id}/agents"
    assert f'href="{agents}/keeper"' in (await runner.open(agents)).text
    page = await runner.open(f"{agents}/keeper")
    assert page.text.count('class="node idle"') == 3
    assert path in page.text
    (once,) = re.findall(r'name="once" value="(\w+)"', page.text)
    fields = {"once": once, "input": '{"key": "a"}'}
    response = await runner.send(f"{agents}/keeper/run", page, **fields)
    await run_due_jobs(runner.baobab.application)
    assert "completed" in (await runner.open(response.headers["location"])).text
    again = await runner.send(f"{agents}/keeper/run", page, **fields)
    assert again.headers["location"] == response.headers["location"]
    assert (await runner.send(f"{agents}/keeper/run", page, input="[1]")).status_code == 400


async def test_whoever_has_no_right_to_an_app_sees_nothing_of_it(runner: Runner) -> None:
    path = await runner.run("keeper", key="a", value=1)
    baobab = runner.baobab
    body = {"email": "eve@example.com", "password": "correct Horse 7!"}
    await baobab.client.post("/platform/signup", json={**body, "name": "Eve"})
    token = (await baobab.client.post("/platform/login", json=body)).json()["token"]
    headers = {"authorization": f"Bearer {token}"}
    key = (await baobab.client.post("/api-keys", json={"name": "hers"}, headers=headers)).json()["key"]
    browser = await sign_in(baobab, key)
    app = f"/console/apps/{runner.app_id}"
    for hers in (app, f"{app}/runs", f"{app}/agents", path, f"{path}/run.json", f"{path}/live", f"{path}/compare"):
        assert (await baobab.client.get(hers, headers=browser)).status_code in (403, 404), hers


async def test_the_page_of_a_run_is_told_what_has_changed_and_need_not_be_asked_for_again(tmp_path: Path) -> None:
    async with (
        serve_installation(tmp_path / "data", {"BAOBAB_PLAN": "enterprise"}) as baobab,
        asyncio.timeout(TIMEOUT_SECONDS),
    ):
        runner = await open_runner(baobab)
        path = await runner.run("asker", key="a", value=HOSTILE)
        feed = f"{path}/live?from=0&since=1"
        async with baobab.client.stream("GET", feed, headers=runner.browser) as answer:
            lines = answer.aiter_lines()
            while await anext(lines) != "event: parts":
                pass
            parts = json.loads((await anext(lines)).removeprefix("data: "))
            assert 'id="step-1"' in parts
            assert "run_paused" in parts
            # What the page has already shown is not sent again.
            assert 'id="event-1"' not in parts
            assert "<script>alert" not in parts
            assert not set(parts) & {"\u202e", "\u200b", "\x1b"}
