"""A thousand connections that follow one table, each with the policies of its own reader: how long until the last of
them has a change, and what one message costs the server.
"""

import asyncio
import json
import os
import statistics
import time
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.bench.data import ask, serve_tables
from tests.bench.processes import cpu_seconds
from tests.bench.rest import KEY

_USERS, _OF_EACH, _VISITORS, _WITH_KEY = 30, 20, 100, 300
"""Connections: as many as a user and a network may have, and the rest with the app's key."""
_CHANGES = 20
_SCHEMA = {
    "tables": {
        "items": {
            "columns": {
                "id": {"type": "integer", "primaryKey": True},
                "owner": {"type": "text"},
                "public": {"type": "boolean"},
            }
        }
    }
}
_POLICY = {"table_name": "items", "user_column": "owner", "public_read_column": "public"}


async def run() -> dict[str, float]:
    """Milliseconds until all have a row that all may see, and microseconds of the server's CPU for each message."""
    async with serve_tables() as (pid, port, _):
        app = (await asyncio.to_thread(ask, port, "/init", {"name": "bench"}))["app_id"]
        await asyncio.to_thread(ask, port, f"/v1/{app}/schema/apply", {"schema": _SCHEMA})
        await asyncio.to_thread(ask, port, f"/v1/{app}/rls", _POLICY)
        await asyncio.to_thread(ask, port, f"/v1/{app}/realtime/configure", {"tables": ["items"]})
        await asyncio.to_thread(ask, port, f"/v1/{app}/auth/settings", {"anonymous": True}, "PATCH")
        users = [await asyncio.to_thread(_sign_in, port, app) for _ in range(_USERS)]
        tokens = [token for token in users for _ in range(_OF_EACH)] + [None] * _VISITORS + [KEY] * _WITH_KEY
        sockets = [await _subscribe(port, app, token) for token in tokens]
        try:
            return await _measure(pid, port, app, sockets)
        finally:
            await asyncio.gather(*(socket.close() for socket in sockets))


def _sign_in(port: int, app: str) -> str:
    token: str = ask(port, f"/auth/{app}/anonymous", {})["access_token"]
    return token


async def _subscribe(port: int, app: str, token: str | None) -> ClientConnection:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    socket = await connect(f"ws://127.0.0.1:{port}/v1/{app}/realtime", additional_headers=headers)
    await socket.send(json.dumps({"type": "subscribe", "table": "items"}))
    await _wait_for(socket, "subscribed")
    return socket


async def _wait_for(socket: ClientConnection, type_: str) -> dict[str, Any]:
    while True:
        message: dict[str, Any] = json.loads(await socket.recv())
        if message["type"] == type_:
            return message


async def _measure(pid: int, port: int, app: str, sockets: list[ClientConnection]) -> dict[str, float]:
    delays, before = [], cpu_seconds(pid)
    for number in range(_CHANGES):
        row = {"id": number, "owner": "nobody", "public": True}
        began = time.perf_counter()
        waiting = [asyncio.create_task(_wait_for(socket, "change")) for socket in sockets]
        await asyncio.to_thread(ask, port, f"/v1/{app}/items", row)
        messages = await asyncio.gather(*waiting)
        delays.append((time.perf_counter() - began) * 1000)
        assert all(message["record"]["id"] == number for message in messages)
    cpu = cpu_seconds(pid) - before
    return {
        "connections": len(sockets),
        "median ms": statistics.median(delays),
        "most ms": max(delays),
        "us for a message": cpu / (_CHANGES * len(sockets)) * 1e6,
    }


def report(costs: dict[str, float]) -> str:
    return (
        f"{costs['connections']:.0f} connections follow a table: a change reaches all of them within "
        f"{costs['median ms']:.0f} ms (median; most {costs['most ms']:.0f}), "
        f"{costs['us for a message']:.0f} us of the server's CPU for each message, "
        f"load average {os.getloadavg()[0]:.1f}"
    )
