"""The REST interface against a bare ASGI application and a plain FastAPI one, on the same store."""

import asyncio
import json
import tempfile
import urllib.request

from tests.bench.load import build_request, free_port, measure_microseconds, start_server
from tests.bench.size import size

KEY = "bb_sk_" + "B" * 40
_APPS = 24
_ROUNDS = size(10)
_VALUE = {"items": [1, 2, 3], "name": "cart", "total": 12.5}

Costs = dict[str, float]


async def run(requests: int = size(3000, 200)) -> dict[str, Costs]:
    """Microseconds of server CPU for one PUT and one GET, the least of ten rounds taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        ours, bare, plain = free_port(), free_port(), free_port()
        environment = {
            "BAOBAB_DATA": f"{folder}/ours", "BAOBAB_PORT": str(ours), "BAOBAB_BOOTSTRAP_KEY": KEY,
            # A thousand operations a second for each app, all checks on; the load is spread over apps to stay below.
            "BAOBAB_PLAN": "certified",
        }  # fmt: skip
        async with (
            start_server("-m", "baobab", "serve", port=ours, environment=environment) as ours_pid,
            start_server("-m", "tests.bench.peers.bare", f"{folder}/bare", str(bare), port=bare) as bare_pid,
            start_server(
                "-m", "tests.bench.peers.plain_fastapi", f"{folder}/plain", str(plain), port=plain
            ) as plain_pid,
        ):
            apps = await asyncio.to_thread(make_apps, ours)
            servers = {"baobab": (ours_pid, ours), "bare ASGI": (bare_pid, bare), "plain FastAPI": (plain_pid, plain)}
            rounds = [await _measure_round(servers, apps, requests, number) for number in range(_ROUNDS)]
    least: dict[str, Costs] = {}
    for name in servers:
        least[name] = {verb: min(one[name][verb] for one in rounds) for verb in ("PUT", "GET")}
    return least


async def _measure_round(
    servers: dict[str, tuple[int, int]], apps: list[str], requests: int, number: int
) -> dict[str, Costs]:
    costs: dict[str, Costs] = {}
    for name, (pid, port) in servers.items():

        def put(n: int, port: int = port) -> bytes:
            # Values differ each time: what is the same already never reaches the disk.
            body = json.dumps({"value": {**_VALUE, "n": n, "round": number}}).encode()
            return build_request("PUT", _key_path(apps, n), port, body, authorization=f"Bearer {KEY}")

        def get(n: int, port: int = port) -> bytes:
            return build_request("GET", _key_path(apps, n), port, authorization=f"Bearer {KEY}")

        costs[name] = {
            "PUT": await measure_microseconds(pid, port, put, requests=requests, status=204),
            "GET": await measure_microseconds(pid, port, get, requests=requests),
        }
    return costs


def _key_path(apps: list[str], n: int) -> str:
    return f"/v1/{apps[n % len(apps)]}/kv/user:{n % 500}:cart"


def make_apps(port: int) -> list[str]:
    app_ids = []
    for number in range(_APPS):
        call = urllib.request.Request(
            f"http://127.0.0.1:{port}/init",
            json.dumps({"name": f"bench-{number}"}).encode(),
            {"authorization": f"Bearer {KEY}"},
        )
        with urllib.request.urlopen(call) as answer:
            app_ids.append(json.load(answer)["app_id"])
    return app_ids


def report(costs: dict[str, Costs]) -> list[str]:
    lines = ["REST, 16 callers: server CPU for one request", ""]
    lines.append(f"{'':16}{'PUT us':>10}{'GET us':>10}{'PUT ratio':>12}{'GET ratio':>12}   (baobab = 1)")
    ours = costs["baobab"]
    for name, cost in costs.items():
        ratios = f"{cost['PUT'] / ours['PUT']:12.2f}{cost['GET'] / ours['GET']:12.2f}"
        lines.append(f"{name:16}{cost['PUT']:10.0f}{cost['GET']:10.0f}{ratios}")
    over = {verb: ours[verb] / costs["bare ASGI"][verb] for verb in ours}
    lines += ["", f"baobab / bare ASGI: PUT {over['PUT']:.2f}, GET {over['GET']:.2f} (to hold: at most 1.6 and 1.8)"]
    plain = {verb: costs["plain FastAPI"][verb] / ours[verb] for verb in ours}
    lines.append(f"plain FastAPI / baobab: PUT {plain['PUT']:.2f}, GET {plain['GET']:.2f} (to hold: at least 4)")
    return lines


if __name__ == "__main__":
    print("\n".join(report(asyncio.run(run()))))
