"""What the page of a waiting call says of its run: whose text it has read, what it costs; and a long run's page."""

import re
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, update

from baobab.runtime.agents.tables import events, runs
from tests.conftest import Baobab
from tests.http.console.test_console import sign_in
from tests.http.console.test_runs import Runner, _call_tool
from tests.jobs import run_due_jobs

_MOST_ELEMENTS = 8000
"""In a page of a run, whatever its length."""


def build_reader(*, reads_first: bool) -> dict[str, Any]:
    """Reads a key, which anybody may have written, and stores another, for which a person is asked."""
    nodes = {
        "read": _call_tool("kv_get", "found", {"key": "{{ input.key }}"}),
        "store": _call_tool("kv_put", "had", {"key": "copy", "value": "1"}),
        "done": {"type": "end", "output_template": "{{ state.had }}"},
    }
    if not reads_first:
        del nodes["read"]
    edges = [{"from": "store", "to": "done"}, *([{"from": "read", "to": "store"}] if reads_first else [])]
    graph = {"spec_version": 1, "entry": "read" if reads_first else "store", "nodes": nodes, "edges": edges}
    return graph | {"tools": {"builtin": ["kv_put", "kv_get"]}}


@pytest.fixture
async def runner(baobab: Baobab) -> Runner:
    created_runner = Runner(baobab, await baobab.create_app(), await sign_in(baobab))
    await created_runner.create_agent("reader", build_reader(reads_first=True))
    await created_runner.create_agent("writer", build_reader(reads_first=False))
    return created_runner


async def find_approval(runner: Runner, run_path: str) -> str:
    run_id = run_path.rpartition("/")[2]
    response = await runner.baobab.client.get("/v1/approvals?status=pending", headers=runner.baobab.owner)
    (approval,) = [row["id"] for row in response.json()["approvals"] if row["run_id"] == run_id]
    return f"/console/approvals/{approval}"


async def test_a_call_of_a_run_says_what_the_run_has_read_and_warns_only_where_that_is_due(runner: Runner) -> None:
    page = (await runner.open(await find_approval(runner, await runner.run("reader")))).text
    assert re.search(r"<dt>It read</dt><dd><span class=\"theirs\">the key [^<]+</span></dd>", page), page
    assert 'class="callout warn"' not in page
    clean = (await runner.open(await find_approval(runner, await runner.run("writer")))).text
    assert "It read" not in clean


async def test_a_call_of_a_run_says_what_the_run_may_still_cost(runner: Runner) -> None:
    path = await runner.run("reader")
    run_id = path.rpartition("/")[2]
    async with runner.baobab.application.services.regions["local"].database.writing() as connection:
        await connection.execute(update(runs).where(runs.c.id == run_id).values(cost=2_000_000_000))
    page = (await runner.open(await find_approval(runner, path))).text
    assert "2 of at most 50 steps so far" in page
    assert "$48.00 more" in page


async def test_the_page_of_a_run_of_ten_thousand_events_shows_a_window_of_it(runner: Runner) -> None:
    path = await runner.run("reader")
    run_id = path.rpartition("/")[2]
    now = runner.baobab.application.services.clock.now()
    rows = []
    for number in range(10_000):
        kind = ("node_start", "node_end")[number % 2]
        payload = {"node_id": "read", "step": 100 + number // 2}
        at = now + timedelta(milliseconds=number)
        rows.append({"run_id": run_id, "seq": 100 + number, "type": kind, "payload": payload, "created_at": at})
    database = runner.baobab.application.services.regions["local"].database
    async with database.writing() as connection:
        await connection.execute(insert(events), [{"app_id": runner.app_id, "subject": None, **row} for row in rows])
        await connection.execute(update(runs).where(runs.c.id == run_id).values(last_seq=10_099))
    page = await runner.open(path)
    assert page.text.count("<") < _MOST_ELEMENTS
    assert "step 5099" in page.text.lower()
    (earlier,) = set(re.findall(r'href="([^"]+\?before=\d+)"', page.text))
    before = await runner.open(earlier)
    assert before.text.count("<") < _MOST_ELEMENTS
    assert "step 5099" not in before.text.lower()
    await run_due_jobs(runner.baobab.application)
