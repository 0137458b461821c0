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
from baobab.settings import load_settings
from tests.backends import prepare_data, release_data
from tests.conftest import KEY, Baobab


@contextlib.asynccontextmanager
async def serve_installation(data: Path, variables: dict[str, str]) -> AsyncIterator[Baobab]:
    given = load_settings({**variables, **prepare_data(data), "BAOBAB_BOOTSTRAP_KEY": KEY}, data=data)
    server = Server(given)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with server.open() as application:
            options = {**serving._uvicorn_options(given), "loop": "asyncio", "timeout_graceful_shutdown": 1}
            assert server.rest_app is not None
            running = _QuietServer(uvicorn.Config(server.rest_app, lifespan="off", **options))
            task = asyncio.create_task(running.serve([listener]))
            async with httpx.AsyncClient(base_url=address, trust_env=False, timeout=20) as client:
                while not running.started:
                    await asyncio.sleep(0.001)
                yield Baobab(application, client)
            running.should_exit = True
            await task
    release_data(data)


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
