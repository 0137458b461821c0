"""Servers start while requests for everything that is loaded late are already there."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import aiohttp

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.crash.machines import Installation, open_session
from tests.crash.rounds import list_rounds
from tests.ports import free_port

_AGENT = {
    "name": "thinker",
    "graph_spec": {
        "spec_version": 1,
        "entry": "think",
        "nodes": {"think": {"type": "llm", "input_template": "Hi", "output_key": "answer"}, "done": {"type": "end"}},
        "edges": [{"from": "think", "to": "done"}],
    },
}
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
_MCP_HEADERS = {"Accept": "application/json, text/event-stream"}


async def test_a_start_under_traffic_leaves_every_door_open(tmp_path: Path) -> None:
    here = Installation.on_backend(tmp_path, settings={"BAOBAB_EGRESS_ALLOW": "127.0.0.0/8"})
    async with open_session() as session:
        with here.start_machine() as server:
            async with session.post(f"{server.address}/init", json={"name": "busy"}) as response:
                app = (await response.json())["app_id"]
            async with session.post(f"{server.address}/v1/{app}/agents", json=_AGENT) as response:
                assert response.status == 201, await response.text()
            dead = {"name": "gone", "url": f"http://127.0.0.1:{free_port()}/mcp"}
            async with session.post(f"{server.address}/v1/{app}/mcp-servers", json=dead) as response:
                assert response.status == 201, await response.text()
                probe = f"/v1/{app}/mcp-servers/{(await response.json())['mcp_server']['id']}/probe"
        for _ in list_rounds(3, 200):
            port = free_port()
            requests = asyncio.create_task(_request_everything(session, f"http://127.0.0.1:{port}", app, probe))
            with contextlib.ExitStack() as running:
                server = await asyncio.to_thread(running.enter_context, here.start_machine(port=port))
                statuses = await requests
                assert set(statuses) <= {200, 201, 502}, statuses
                async with session.get(f"{server.address}/openapi.json") as document:
                    assert document.status == 200
                async with session.get(f"{server.address}/health/ready") as ready:
                    assert (await ready.json())["checks"]["mcp"] == "ok"


async def _request_everything(session: aiohttp.ClientSession, address: str, app: str, probe: str) -> list[int]:
    """The statuses of requests that are sent at once as soon as the port is open."""
    await _wait_for_port(address)
    return await asyncio.gather(
        *(_fetch_status(session, address + probe, {}) for _ in range(4)),
        *(_fetch_status(session, f"{address}/mcp", _INITIALIZE) for _ in range(2)),
        *(
            _fetch_status(
                session, f"{address}/v1/{app}/agents/thinker/runs", {"input": {}, "idempotency_key": address + key}
            )
            for key in "ab"
        ),
    )


async def _wait_for_port(address: str) -> None:
    port = int(address.rpartition(":")[2])
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


async def _fetch_status(session: aiohttp.ClientSession, url: str, body: Any) -> int:
    async with session.post(url, json=body, headers=_MCP_HEADERS) as answer:
        await answer.read()
        return answer.status
