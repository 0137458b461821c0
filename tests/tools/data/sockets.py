"""Two servers of one installation on real sockets, and clients that follow changes over WebSockets and SSE."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from baobab.composition import Application
from baobab.server import Server
from baobab.settings import load_settings
from tests.backends import prepare_data, release_data
from tests.conftest import KEY
from tests.http.live_server import serve_on_socket
from tests.users import mint_user_token

SECONDS = 20.0


@dataclass
class Machine:
    """One of the servers."""

    application: Application
    client: httpx.AsyncClient


@dataclass
class Live:
    """An app on two servers."""

    machines: list[Machine]
    app_id: str

    @property
    def base(self) -> str:
        return f"/v1/{self.app_id}"

    async def ask(self, method: str, path: str, body: Any = None, on: int = 0, token: str = KEY) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return await self.machines[on].client.request(method, f"{self.base}{path}", json=body, headers=headers)

    async def insert(self, table: str, row: dict[str, Any], on: int = 0, token: str = KEY) -> Any:
        response = await self.ask("POST", f"/{table}", row, on, token)
        assert response.status_code == 201, response.text
        return response.json()

    async def user(self, user_id: str, **claims: Any) -> str:
        return await mint_user_token(self.machines[0].application, self.app_id, user_id, **claims)

    @contextlib.asynccontextmanager
    async def open(
        self, token: str = KEY, on: int = 0, protocols: Sequence[str] = (), **query: str
    ) -> AsyncIterator["Client"]:
        address = str(self.machines[on].client.base_url).rstrip("/").replace("http", "ws", 1)
        parameters = {**({"token": token} if token else {}), **query}
        url = f"{address}{self.base}/realtime?{httpx.QueryParams(parameters)}"
        subprotocols = [Subprotocol(name) for name in protocols]
        async with connect(url, proxy=None, subprotocols=subprotocols or None) as socket:
            yield Client(socket)

    @contextlib.asynccontextmanager
    async def follow(self, query: str, token: str = KEY, on: int = 0, **headers: str) -> AsyncIterator["Events"]:
        authorization = {"authorization": f"Bearer {token}"} if token else {}
        request = self.machines[on].client.stream(
            "GET", f"{self.base}/realtime/changes?{query}", headers=authorization | headers
        )
        async with request as response:
            yield Events(response)


@dataclass
class Client:
    """A client's end of a WebSocket."""

    socket: ClientConnection

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def read(self) -> Any:
        """The next message, or the code with which the socket was closed."""
        try:
            async with asyncio.timeout(SECONDS):
                return json.loads(await self.socket.recv())
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else None

    async def subscribe(self, table: str, **fields: Any) -> Any:
        assert (await self.read())["type"] == "connected"
        await self.send("subscribe", table=table, **fields)
        return await self.read()


class Events:
    """A client's end of a stream of server-sent events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def read(self) -> dict[str, Any]:
        """The next event, with its id."""
        event: dict[str, Any] = {}
        async with asyncio.timeout(SECONDS):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "id":
                    event["number"] = int(value)
                elif name == "data":
                    event |= json.loads(value)
                elif not line and event:
                    return event
        raise EOFError


@contextlib.asynccontextmanager
async def open_machines(data: Path, count: int = 2, **settings: str) -> AsyncIterator[list[Machine]]:
    variables = {f"BAOBAB_{name.upper()}": value for name, value in settings.items()}
    environment = {**prepare_data(data), "BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY, **variables}
    async with contextlib.AsyncExitStack() as stack:
        machines = []
        for _ in range(count):
            server_settings = load_settings(environment, data=data)
            server = Server(server_settings)
            application = await stack.enter_async_context(server.open())
            client = await stack.enter_async_context(serve_on_socket(server, server_settings))
            machines.append(Machine(application, client))
        yield machines
    release_data(data)
