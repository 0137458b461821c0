"""Rows over REST: a list of ten, and a call that writes, on files and on Postgres, against a plain FastAPI application.

The plain one stands on SQLAlchemy with aiosqlite and reads and writes the same rows.
"""

import asyncio
import itertools
import json
import tempfile
import urllib.request
from collections.abc import Iterator

from tests.bench.backends import POSTGRES, SQLITE, Servers
from tests.bench.load import build_request, free_port, measure_microseconds, start_server

_KEY = "bb_sk_" + "B" * 40
_PLAIN = "plain FastAPI"
_APPS = 10
_ROUNDS = 4
_KEYS = 24
_LISTS, _INITS = 600, 300
_MOST = {"GET /apps": 500.0, "POST /init": 2000.0}
_CHEAPER = {"GET /apps": 3.0, "POST /init": 2.0}

Costs = dict[str, dict[str, float]]


def run(servers: Servers) -> Costs:
    return asyncio.run(_run(servers))


async def _run(servers: Servers) -> Costs:
    """Microseconds of CPU of our process for one call, the least of some rounds taken in turns."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        ports = {name: free_port() for name in (SQLITE, POSTGRES, _PLAIN)}
        ours = {
            name: {
                **servers.settings(name),
                "BAOBAB_DATA": f"{folder}/{name}",
                "BAOBAB_PORT": str(ports[name]),
                "BAOBAB_BOOTSTRAP_KEY": _KEY,
                "BAOBAB_PLAN": "certified",
            }
            for name in (SQLITE, POSTGRES)
        }
        plain = ("-m", "tests.bench.peers.plain_rows", f"{folder}/plain.db", str(ports[_PLAIN]))
        serve = ("-m", "baobab", "serve")
        async with (
            start_server(*serve, port=ports[SQLITE], environment=ours[SQLITE]) as files,
            start_server(*serve, port=ports[POSTGRES], environment=ours[POSTGRES]) as postgres,
            start_server(*plain, port=ports[_PLAIN]) as peer,
        ):
            pids = {SQLITE: files, POSTGRES: postgres, _PLAIN: peer}
            keys = {name: await asyncio.to_thread(_make_keys, ports[name]) for name in (SQLITE, POSTGRES)}
            keys[_PLAIN] = [_KEY]
            numbers = itertools.count()
            rounds = [await _measure_round(pids, ports, keys, numbers) for _ in range(_ROUNDS)]
    return {name: {call: min(one[name][call] for one in rounds) for call in _MOST} for name in pids}


async def _measure_round(
    pids: dict[str, int], ports: dict[str, int], keys: dict[str, list[str]], numbers: Iterator[int]
) -> Costs:
    costs: Costs = {}
    for name, port in ports.items():

        def init(_: int, name: str = name, port: int = port) -> bytes:
            # An app that is there already would be answered without a write.
            body = json.dumps({"name": f"bench-{(number := next(numbers))}"}).encode()
            key = keys[name][number % len(keys[name])]
            return build_request("POST", "/init", port, body, authorization=f"Bearer {key}")

        def list_ten(_: int, name: str = name, port: int = port) -> bytes:
            key = keys[name][next(numbers) % len(keys[name])]
            return build_request("GET", f"/apps?limit={_APPS}", port, authorization=f"Bearer {key}")

        costs[name] = {
            "POST /init": await measure_microseconds(pids[name], port, init, requests=_INITS, status=201),
            "GET /apps": await measure_microseconds(pids[name], port, list_ten, requests=_LISTS),
        }
    return costs


def _make_keys(port: int) -> list[str]:
    """A key may send 600 requests a minute; the load is spread over enough of them."""
    keys = []
    for number in range(_KEYS):
        call = urllib.request.Request(
            f"http://127.0.0.1:{port}/api-keys",
            json.dumps({"name": f"bench-{number}"}).encode(),
            {"authorization": f"Bearer {_KEY}", "content-type": "application/json"},
        )
        with urllib.request.urlopen(call) as answer:
            keys.append(json.load(answer)["key"])
    return keys


def report(costs: Costs) -> Iterator[str]:
    yield "rows over REST, 16 callers: CPU of our process for one request, in microseconds"
    yield f"{'':14}" + "".join(f"{name:>16}" for name in costs) + f"{'plain / files':>16}"
    for call, most in _MOST.items():
        ours, plain = costs[SQLITE][call], costs[_PLAIN][call]
        cells = "".join(f"{cost[call]:16.0f}" for cost in costs.values())
        yield f"{call:14}{cells}{plain / ours:16.1f}   (to hold: {most:.0f} us, {_CHEAPER[call]:.0f} times)"
