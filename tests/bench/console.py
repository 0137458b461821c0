"""The console: what the inbox costs when a thousand calls wait, and the page of a run with ten thousand events.

The processor time of the server tells what a page costs, whatever else this machine does; the first paint in Chromium
is wall-clock time, and stands beside that of a page with nothing on it.
"""

import asyncio
import json
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
from playwright.async_api import Page, async_playwright

from tests.bench.load import free_port, start_server
from tests.bench.processes import cpu_seconds
from tests.bench.rest import KEY

_WAITING, _OF_ONE_KEY, _ROUNDS = 1000, 100, 50
_PAINTS = 11
_FEW_EVENTS, _MANY_EVENTS = 300, 10_000
_ASK_PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (entry.name === "first-contentful-paint") resolve(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
_OPEN_ALL = """() => {
    const began = performance.now();
    for (const part of document.querySelectorAll("details")) part.open = true;
    scrollTo(0, document.body.scrollHeight);
    document.body.getBoundingClientRect();
    return performance.now() - began;
}"""


class _Cost(NamedTuple):
    page: str
    cpu: float
    """Milliseconds of the server's processor time, the mean of fifty."""
    kilobytes: float
    paint: float | None
    """Milliseconds until Chromium first paints it again, the best of ten: on a busy machine the others wait."""
    opening: float | None
    """Milliseconds in which Chromium opens all that is closed on the page, and scrolls to its end."""


async def run() -> Sequence[_Cost]:
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        environment = {
            "BAOBAB_DATA": folder, "BAOBAB_PORT": str(port), "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "certified",
        }  # fmt: skip
        async with (
            start_server("-m", "baobab", "serve", port=port, environment=environment) as pid,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client,
        ):
            signed_in = await client.post(
                "/console/sign-in", data={"key": KEY}, headers={"origin": str(client.base_url)}
            )
            assert signed_in.status_code == 303, signed_in.text
            client.headers["cookie"] = signed_in.headers["set-cookie"].partition(";")[0]
            app = (await client.post("/init", json={"name": "bench"}, headers=_OWNER)).json()["app_id"]
            runs = await _make_runs(client, app, Path(folder))
            costs = [await _measure(client, pid, "the inbox, nothing waits", "/console")]
            await _fill(client, app)
            page = await client.get("/console")
            assert len(re.findall(r'<li class="row [a-z]+" id="appr_', page.text)) > 0, page.text[:500]
            costs.append(await _measure(client, pid, f"the inbox, {_WAITING} calls wait", "/console"))
            for count, path in runs.items():
                costs.append(await _measure(client, pid, f"a run of {count} events", path))
            return costs


_OWNER = {"authorization": f"Bearer {KEY}"}


async def _fill(client: httpx.AsyncClient, app: str) -> None:
    """Has keys that must ask propose calls."""
    for number in range(_WAITING // _OF_ONE_KEY):
        response = await client.post("/api-keys", json={"name": f"agent-{number}", "approval": "write"}, headers=_OWNER)
        agent = {"authorization": f"Bearer {response.json()['key']}"}
        for call in range(_OF_ONE_KEY):
            path = f"/v1/{app}/kv/n{number}-{call}/incr"
            answer = await client.post(path, json={"by": 1}, headers=agent)
            assert answer.status_code == 428, answer.text


async def _make_runs(client: httpx.AsyncClient, app: str, folder: Path) -> dict[int, str]:
    """The pages of two runs that have ended, by the number of their events."""
    tool = {"type": "tool", "tool_ref": {"source": "builtin", "name": "kv_exists"}, "args_template": {"key": "a"}}
    graph = {
        "spec_version": 1,
        "entry": "look",
        "nodes": {"look": {**tool, "output_key": "seen"}, "done": {"type": "end"}},
        "edges": [{"from": "look", "to": "done"}],
        "tools": {"builtin": ["kv_exists"]},
    }
    agents = f"/v1/{app}/agents"
    response = await client.post(
        agents, json={"name": "looker", "graph_spec": graph, "dedupe_window_seconds": 0}, headers=_OWNER
    )
    assert response.status_code == 201, response.text
    pages: dict[int, str] = {}
    for count in (_FEW_EVENTS, _MANY_EVENTS):
        started_response = await client.post(f"{agents}/looker/runs", json={"input": {"n": count}}, headers=_OWNER)
        assert started_response.is_success, started_response.text
        run = started_response.json()["run_id"]
        while (await client.get(f"{agents}/looker/runs/{run}", headers=_OWNER)).json()["run"]["finished_at"] is None:
            await asyncio.sleep(0.1)
        await asyncio.to_thread(_write_events, folder / "baobab.db", run, count)
        pages[count] = f"/console/apps/{app}/runs/looker/{run}"
    return pages


def _write_events(path: Path, run: str, count: int) -> None:
    """Gives a run as many events as one with many steps has: to run these would take minutes and measure nothing."""
    database = sqlite3.connect(path, timeout=30)
    with database:
        last, app = database.execute("SELECT last_seq, app_id FROM agent_runs WHERE id = ?", (run,)).fetchone()
        (at,) = database.execute("SELECT max(created_at) FROM agent_events WHERE run_id = ?", (run,)).fetchone()
        rows = []
        for seq in range(last + 1, count + 1):
            step, part = 10 + (seq - last - 1) // 4, (seq - last - 1) % 4
            about = {"tool_source": "builtin", "tool_name": "kv_exists", "call_id": str(step)}
            event, payload = [
                ("node_start", {"node_id": "look", "step": step}),
                ("tool_call_start", {**about, "args": {"key": f"a key of step {step}"}}),
                ("tool_call_end", {**about, "duration_ms": 1, "status": "ok", "result": {"exists": False}}),
                ("node_end", {"node_id": "look", "step": step}),
            ][part]
            rows.append((app, run, seq, event, json.dumps(payload), f"bench {seq}", at))
        columns = "app_id, run_id, seq, type, payload, subject, created_at"
        database.executemany(f"INSERT INTO agent_events ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)  # noqa: S608 - our names
        database.execute("UPDATE agent_runs SET last_seq = ? WHERE id = ?", (count, run))
    database.close()


async def _measure(client: httpx.AsyncClient, pid: int, name: str, path: str) -> _Cost:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    before = cpu_seconds(pid)
    for _ in range(_ROUNDS):
        await client.get(path)
    cpu_ms = (cpu_seconds(pid) - before) / _ROUNDS * 1000
    paint, opening = await _measure_browser(str(client.base_url), client.headers["cookie"], path)
    return _Cost(name, cpu_ms, len(answer.content) / 1000, paint, opening)


async def _measure_browser(address: str, cookie: str, path: str) -> tuple[float | None, float | None]:
    """The first paint, and how long it takes to open all of the page; nothing without Chromium."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        return None, None
    name, _, value = cookie.partition("=")
    async with async_playwright() as tool:
        browser = await tool.chromium.launch(executable_path=chromium)
        context = await browser.new_context(base_url=address)
        await context.add_cookies([{"name": name, "value": value, "url": address}])
        page: Page = await context.new_page()
        paints: list[float] = []
        for _ in range(_PAINTS):
            await page.goto(path, wait_until="load")
            paints.append(await page.evaluate(_ASK_PAINT))
        opening = await page.evaluate(_OPEN_ALL)
        await browser.close()
    # The first is that of a browser that has nothing of the console yet.
    return min(paints[1:]), opening


def report(costs: Sequence[_Cost]) -> Iterator[str]:
    yield f"\n{'The console on loopback':32}{'server CPU':>12}{'size':>10}{'first paint':>14}{'opening all':>14}"
    for one in costs:
        paint = "" if one.paint is None else f"{one.paint:11.0f} ms"
        opening = "" if one.opening is None else f"{one.opening:11.0f} ms"
        yield f"{one.page:32}{one.cpu:9.1f} ms{one.kilobytes:7.0f} kB{paint:>14}{opening:>14}"


if __name__ == "__main__":
    print("\n".join(report(asyncio.run(run()))))
