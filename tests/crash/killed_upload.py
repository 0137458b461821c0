"""A process with an installation that is killed when the bytes of an upload are stored, and before its row says so."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx

from baobab.server import Server
from baobab.settings import load_settings
from baobab.tools.files import parts, storing


async def kill(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(data: Path, variables: dict[str, str], path: str, headers: dict[str, str], body: str) -> None:
    for module, name in ((storing, "settle"), (parts, "settle_in"), (parts, "_record")):
        setattr(module, name, kill)
    server = Server(load_settings(variables, data=data))
    async with server.open():
        transport = httpx.ASGITransport(app=server)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            method = "PATCH" if "tus-resumable" in headers else "PUT"
            await client.request(method, path, content=body.encode(), headers=headers)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    asyncio.run(main(**{**arguments, "data": Path(arguments["data"])}))
