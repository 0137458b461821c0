"""The MCP interface with two hundred tools: against a FastAPI route, and against fastmcp, on the same store."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.sqlite import SqliteEngine
from tests.bench.load import Make, build_request, fetch_body, free_port, measure_microseconds, start_server
from tests.bench.peers import environments
from tests.bench.rest import KEY, make_apps
from tests.bench.size import IS_SMOKE, size

_ROUNDS = size(8)
_KEYS = size(3000, 500)
_VALUE = b'{"items":[1,2,3],"name":"cart","total":12.5}'
_PREFIX = "io.modelcontextprotocol/"

Costs = dict[str, float]
CALL, REST = "tools/call, 2026-07-28", "GET over our REST interface"
FASTAPI, ALONE = "FastAPI, 169 routes", "FastAPI, nothing but this"
FASTMCP, FASTMCP_LEGACY = "fastmcp, 2026-07-28", "fastmcp, 2025-06-18"
START, FIRST, SECOND = "tools/list, start set", "tools/list, all: page 1", "tools/list, all: page 2"
LEGACY, UNUSUAL = "tools/call, 2025-06-18", "tools/call, not on the fast path"


async def run(requests: int = size(3000, 300)) -> Costs:
    """Microseconds of server CPU for one request of each kind, the least of eight rounds taken in turns."""
    # A smoke installs nothing.
    python = None if IS_SMOKE else await asyncio.to_thread(environments.install_peer, environments.FASTMCP)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, plain, alone, fast = free_port(), free_port(), free_port(), free_port()
        environment = {
            "BAOBAB_DATA": f"{folder}/ours", "BAOBAB_PORT": str(ours), "BAOBAB_BOOTSTRAP_KEY": KEY,
            "BAOBAB_PLAN": "certified", "BAOBAB_REGION": "bench",
        }  # fmt: skip
        async with start_server(
            "-m", "tests.bench.many_tools", "serve", port=ours, environment=environment
        ) as ours_pid:
            apps = await asyncio.to_thread(make_apps, ours)
            for store in (folder / "ours" / "kv" / "bench", folder / "peers"):
                await _fill_keys(store, apps)
            async with (
                start_server(
                    "-m", "tests.bench.peers.plain_fastapi", f"{folder}/peers", str(plain), port=plain
                ) as plain_pid,
                start_server(
                    "-m", "tests.bench.peers.plain_fastapi", f"{folder}/peers", str(alone), "0", port=alone
                ) as alone_pid,
                AsyncExitStack() as stack,
            ):
                cursor = await _fetch_cursor(ours)
                kinds = {
                    CALL: (ours_pid, ours, _build_calls(apps, ours), requests),
                    FASTAPI: (plain_pid, plain, _build_gets(apps, plain), requests),
                    ALONE: (alone_pid, alone, _build_gets(apps, alone), requests),
                    REST: (ours_pid, ours, _build_gets(apps, ours), requests),
                    START: (ours_pid, ours, _build_lists(ours, "/mcp"), requests),
                    FIRST: (ours_pid, ours, _build_lists(ours, "/mcp?toolsets=all"), requests),
                    SECOND: (ours_pid, ours, _build_lists(ours, "/mcp?toolsets=all", cursor), requests),
                    LEGACY: (ours_pid, ours, _build_legacy_calls(apps, ours), requests // 8),
                    UNUSUAL: (ours_pid, ours, _build_calls(apps, ours, content_type="Application/JSON"), requests // 4),
                }
                if python is not None:
                    command = ("-m", "tests.bench.peers.fast_mcp", f"{folder}/peers", str(fast))
                    starting = start_server(*command, port=fast, python=str(python), environment={"PYTHONPATH": "src"})
                    fast_pid = await stack.enter_async_context(starting)
                    kinds[FASTMCP] = (fast_pid, fast, _build_calls(apps, fast), requests // 30)
                    kinds[FASTMCP_LEGACY] = (fast_pid, fast, _build_legacy_calls(apps, fast), requests // 8)
                rounds = [await _measure_round(kinds) for _ in range(_ROUNDS)]
    return {kind: min(one[kind] for one in rounds) for kind in kinds}


async def _measure_round(kinds: dict[str, tuple[int, int, Make, int]]) -> Costs:
    return {
        kind: await measure_microseconds(
            pid, port, make, requests=requests, holds=b"inputSchema" if "list" in kind else b'"total":12.5'
        )
        for kind, (pid, port, make, requests) in kinds.items()
    }


def _pick_key(apps: list[str], n: int) -> tuple[str, str]:
    return apps[n % len(apps)], f"user:{n % 500}:cart"


def _build_gets(apps: list[str], port: int) -> Make:
    def make(n: int) -> bytes:
        app_id, key = _pick_key(apps, n)
        return build_request("GET", f"/v1/{app_id}/kv/{key}", port, authorization=f"Bearer {KEY}")

    return make


def _build_calls(apps: list[str], port: int, **headers: str) -> Make:
    def make(n: int) -> bytes:
        app_id, key = _pick_key(apps, n)
        params = {"name": "kv_get", "arguments": {"app_id": app_id, "key": key}}
        return build_message(port, "/mcp", n, "tools/call", params, mcp_name="kv_get", **headers)

    return make


def _build_lists(port: int, path: str, cursor: str | None = None) -> Make:
    return lambda n: build_message(port, path, n, "tools/list", {"cursor": cursor} if cursor else {})


def build_message(port: int, path: str, n: int, method: str, params: dict[str, Any], **headers: str) -> bytes:
    """A request as clients of the 2026 protocol send it."""
    meta = {
        f"{_PREFIX}protocolVersion": "2026-07-28",
        f"{_PREFIX}clientInfo": {"name": "bench", "version": "1.0.0"},
        f"{_PREFIX}clientCapabilities": {"elicitation": {"url": {}}},
    }
    return _build_post(
        port, path, {"jsonrpc": "2.0", "id": n, "method": method, "params": {**params, "_meta": meta}},
        mcp_protocol_version="2026-07-28", mcp_method=method, **headers,
    )  # fmt: skip


def _build_legacy_calls(apps: list[str], port: int) -> Make:
    def make(n: int) -> bytes:
        app_id, key = _pick_key(apps, n)
        params = {"name": "kv_get", "arguments": {"app_id": app_id, "key": key}}
        message = {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params}
        return _build_post(port, "/mcp", message, mcp_protocol_version="2025-06-18")

    return make


def _build_post(port: int, path: str, message: dict[str, Any], **headers: str) -> bytes:
    accept = "application/json, text/event-stream"
    body = json.dumps(message).encode()
    return build_request("POST", path, port, body, accept=accept, authorization=f"Bearer {KEY}", **headers)


async def _fetch_cursor(port: int) -> str:
    """The cursor of the second page; an error unless the two pages hold the two hundred tools."""
    first = from_json(await fetch_body(port, _build_lists(port, "/mcp?toolsets=all")(0)))["result"]
    second = from_json(await fetch_body(port, _build_lists(port, "/mcp?toolsets=all", first["nextCursor"])(0)))[
        "result"
    ]
    if len(first["tools"]) + len(second["tools"]) != 200:
        raise RuntimeError("there are not two hundred tools")
    return str(first["nextCursor"])


async def _fill_keys(folder: Path, apps: list[str]) -> None:
    engine = SqliteEngine(folder)
    await engine.open()
    try:
        for app_id, key in {_pick_key(apps, n) for n in range(_KEYS)}:
            await engine.put(app_id, key, _VALUE, 2592000, Tier.DURABLE, Quota(None, None))
    finally:
        await engine.close()


def report(costs: Costs) -> Iterator[str]:
    yield "MCP, 200 tools, 16 callers: server CPU for one request"
    yield ""
    yield f"{'':28}{'us':>8}{'ratio':>8}   (tools/call = 1)"
    ours = costs[CALL]
    for kind, cost in costs.items():
        yield f"{kind:28}{cost:8.0f}{cost / ours:8.2f}"
    yield ""
    routes = f"{ours / costs[FASTAPI]:.2f}, {ours / costs[ALONE]:.2f}"
    yield f"tools/call / the same by FastAPI: {routes} (to hold: at most 1.5)"
    if FASTMCP in costs:
        theirs = f"{costs[FASTMCP] / ours:.1f}, {costs[FASTMCP_LEGACY] / ours:.1f}"
        yield f"tools/call of fastmcp / ours: {theirs} (to hold: at least 5)"
    lists = ", ".join(f"{costs[kind] / ours:.2f}" for kind in (START, FIRST, SECOND))
    yield f"tools/list / tools/call: {lists} (to hold: at most 3)"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in report(asyncio.run(run())))
