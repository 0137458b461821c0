"""The console: how soon the inbox is there when a thousand calls wait, as a browser on this machine meets it."""

import asyncio
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping

import httpx
from playwright.async_api import async_playwright

from tests.bench.load import free_port, start_server
from tests.bench.rest import KEY

_WAITING, _OF_ONE_KEY, _ROUNDS = 1000, 100, 30
_PAINTS = 11
_ASK_PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (entry.name === "first-contentful-paint") resolve(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
INBOX, EMPTY = "the inbox, 1000 calls wait", "the inbox, nothing waits"
FIRST_PAINT, PAINT = "its first paint in a new Chromium", "its first paint in Chromium again"


async def run() -> Mapping[str, float]:
    """Milliseconds from the request to the last byte of the page, the median of thirty."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        environment = {
            "BAOBAB_DATA": folder, "BAOBAB_PORT": str(port), "BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PLAN": "certified",
        }  # fmt: skip
        async with (
            start_server("-m", "baobab", "serve", port=port, environment=environment),
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client,
        ):
            signed_in = await client.post(
                "/console/sign-in", data={"key": KEY}, headers={"origin": str(client.base_url)}
            )
            assert signed_in.status_code == 303, signed_in.text
            cookies = {"cookie": signed_in.headers["set-cookie"].partition(";")[0]}
            empty = await _measure(client, cookies)
            await _fill(client)
            page = await client.get("/console", headers=cookies)
            assert len(re.findall(r'<li class="row [a-z]+" id="appr_', page.text)) > 0, page.text[:500]
            found = {EMPTY: empty, INBOX: await _measure(client, cookies)}
            return {**found, **await _measure_paint(str(client.base_url), cookies["cookie"])}


async def _fill(client: httpx.AsyncClient) -> None:
    """Has keys that must ask propose calls."""
    owner = {"authorization": f"Bearer {KEY}"}
    app = (await client.post("/init", json={"name": "bench"}, headers=owner)).json()["app_id"]
    for number in range(_WAITING // _OF_ONE_KEY):
        made = await client.post("/api-keys", json={"name": f"agent-{number}", "approval": "write"}, headers=owner)
        agent = {"authorization": f"Bearer {made.json()['key']}"}
        for call in range(_OF_ONE_KEY):
            path = f"/v1/{app}/kv/n{number}-{call}/incr"
            answer = await client.post(path, json={"by": 1}, headers=agent)
            assert answer.status_code == 428, answer.text


async def _measure(client: httpx.AsyncClient, cookies: Mapping[str, str]) -> float:
    times: list[float] = []
    for _ in range(_ROUNDS):
        began_at = time.perf_counter()
        answer = await client.get("/console", headers=dict(cookies))
        times.append((time.perf_counter() - began_at) * 1000)
        assert answer.status_code == 200, answer.text
    return statistics.median(times)


async def _measure_paint(address: str, cookie: str) -> Mapping[str, float]:
    """Milliseconds until Chromium first paints the inbox, from when it is asked for; nothing without Chromium."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        return {}
    name, _, value = cookie.partition("=")
    async with async_playwright() as tool:
        browser = await tool.chromium.launch(executable_path=chromium)
        context = await browser.new_context(base_url=address)
        await context.add_cookies([{"name": name, "value": value, "url": address}])
        page = await context.new_page()
        times: list[float] = []
        for _ in range(_PAINTS):
            await page.goto("/console", wait_until="load")
            times.append(await page.evaluate(_ASK_PAINT))
        await browser.close()
    # The first is that of a browser that has nothing of the console yet.
    return {FIRST_PAINT: times[0], PAINT: statistics.median(times[1:])}


def report(milliseconds: Mapping[str, float]) -> Iterator[str]:
    yield "\nThe console on loopback"
    for name, value in milliseconds.items():
        yield f"{name:40}{value:8.1f} ms"


if __name__ == "__main__":
    print("\n".join(report(asyncio.run(run()))))
