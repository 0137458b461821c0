"""A process with an installation that is killed while it imports a file, at the second part of its rows."""

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
from baobab.tools.data.exchange import importing
from baobab.tools.data.rows.attempts import Attempts


def kill_at_second(owner: Any, name: str) -> None:
    """Lets a function be called once, and kills the process when it is called again."""
    original, calls = getattr(owner, name), 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **options)

    setattr(owner, name, call)


async def main(
    data: Path, variables: dict[str, str], path: str, headers: dict[str, str], body: str, place: str
) -> None:
    # Before a part's transaction, or in it when its rows are written.
    kill_at_second(*{"before": (importing, "write_part"), "within": (Attempts, "keep_progress")}[place])
    server = Server(load_settings(variables, data=data))
    async with server.open():
        transport = httpx.ASGITransport(app=server)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            await client.post(path, content=body.encode(), headers=headers)


if __name__ == "__main__":
    asyncio.run(main(**{**(arguments := json.loads(sys.argv[1])), "data": Path(arguments["data"])}))
