"""A process with an installation that is killed while it clones an app, at a given place."""

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
from baobab.tools.templates import cloner
from baobab.tools.templates.cloner import Cloner


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(place: str) -> None:
    """Kills the process when a clone is at a place: before the row says that a step is done, within the last
    transaction, after it, or when what a failed clone has left was removed.
    """
    module: Any = cloner
    make_app, set_values, read_row, erase_app = module.make_app, Cloner._set, Cloner._now, module.erase_app

    async def make_and_die(*arguments: Any) -> Any:
        if place == "seeding_data":
            # The last step is done with the app itself.
            kill()
        values = await make_app(*arguments)
        if place == "within":
            kill()
        return values

    async def set_or_die(self: Cloner, values: dict[str, Any]) -> None:
        if self._row.status == place:
            kill()
        await set_values(self, values)

    async def read_or_die(self: Cloner) -> Any:
        row = await read_row(self)
        if place == "after" and row.status == "completed":
            kill()
        return row

    async def erase_and_die(*arguments: Any) -> None:
        await erase_app(*arguments)
        if place == "undone":
            kill()

    module.make_app = make_and_die
    module.erase_app = erase_and_die
    Cloner._set = set_or_die  # type: ignore[method-assign]
    Cloner._now = read_or_die  # type: ignore[method-assign]


async def main(data: Path, variables: dict[str, str], path: str, headers: dict[str, str], place: str) -> None:
    kill_at(place)
    server = Server(load_settings(variables, data=data))
    async with server.open():
        transport = httpx.ASGITransport(app=server)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
            answer = await client.post(path, json={"name": f"copy-{place.replace('_', '-')}"}, headers=headers)
            assert answer.status_code == 202, answer.text
            # Until the job that makes the clone kills this process.
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(**{**(arguments := json.loads(sys.argv[1])), "data": Path(arguments["data"])}))
