"""A process with an installation that is killed while it deploys a site, at a given place."""

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
from baobab.tools.sites import building


def kill_at(place: str) -> None:
    """Kills the process after the first content is stored, before the deployment is published, within that
    transaction, or after it.
    """
    module: Any = building
    store, publish, build = module._store, module._publish, module.build

    async def store_and_die(*arguments: Any) -> None:
        await store(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    async def publish_and_die(*arguments: Any) -> Any:
        if place == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        missing = await publish(*arguments)
        if place == "within":
            os.kill(os.getpid(), signal.SIGKILL)
        return missing

    async def build_and_die(*arguments: Any) -> None:
        await build(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    if place == "stored":
        module._store = store_and_die
    elif place == "after":
        from baobab.tools.sites import jobs

        jobs_module: Any = jobs
        jobs_module.build = build_and_die
    else:
        module._publish = publish_and_die


async def main(data: Path, variables: dict[str, str], path: str, headers: dict[str, str], place: str) -> None:
    kill_at(place)
    server = Server(load_settings(variables, data=data))
    async with server.open():
        transport = httpx.ASGITransport(app=server)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            answer = await client.post(path, headers=headers)
            assert answer.status_code == 202, answer.text
            # Until the job that unpacks the zip kills this process.
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(**{**(arguments := json.loads(sys.argv[1])), "data": Path(arguments["data"])}))
