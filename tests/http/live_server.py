"""An installation behind a real socket, served as `baobab serve` does, in the process of the test."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from baobab import serving
from baobab.server import Server
from baobab.settings import Settings, load_settings
from tests.backends import prepare_data, release_data
from tests.conftest import KEY, Baobab
from tests.servers import TIMEOUT_SECONDS


@contextlib.asynccontextmanager
async def serve_installation(data: Path, variables: dict[str, str]) -> AsyncIterator[Baobab]:
    settings = load_settings({**variables, **prepare_data(data), "BAOBAB_BOOTSTRAP_KEY": KEY}, data=data)
    server = Server(settings)
    async with server.open() as application, serve_on_socket(server, settings) as client:
        yield Baobab(application, client)
    release_data(data)


@contextlib.asynccontextmanager
async def serve_on_socket(server: Server, settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Yields a client of an open server, which listens at an address of its own meanwhile."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        options = {**serving._uvicorn_options(settings), "loop": "asyncio", "timeout_graceful_shutdown": 1}
        assert server.rest_app is not None
        running = _QuietServer(uvicorn.Config(server.rest_app, lifespan="off", **options))
        task = asyncio.create_task(running.serve([listener]))
        async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=TIMEOUT_SECONDS) as client:
            while not running.started:
                await asyncio.sleep(0.001)
            yield client
        running.should_exit = True
        await task


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
