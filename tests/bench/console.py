"""The console: how soon the inbox is there when a thousand calls wait, as a browser on this machine meets it."""

import asyncio
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping

import httpx

from tests.bench.load import free_port, start_server
from tests.bench.rest import KEY

_WAITING, _OF_ONE_KEY, _ROUNDS = 1000, 100, 30
INBOX, EMPTY = "the inbox, 1000 calls wait", "the inbox, nothing waits"


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
            return {EMPTY: empty, INBOX: await _measure(client, cookies)}


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


def report(milliseconds: Mapping[str, float]) -> Iterator[str]:
    yield "\nThe console on loopback"
    for name, value in milliseconds.items():
        yield f"{name:40}{value:8.1f} ms"


if __name__ == "__main__":
    print("\n".join(report(asyncio.run(run()))))
