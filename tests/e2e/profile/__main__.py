"""Start the profile: `python -m tests.e2e.profile PORT FOLDER [--sessions]`."""

import argparse
import asyncio
import warnings
from pathlib import Path
from typing import Any

import uvicorn
from mcp.shared.exceptions import MCPDeprecationWarning

from baobab.http.protocol import GuardedProtocol
from baobab.server import Server
from baobab.settings import load
from tests.e2e.profile.fixtures import FIXTURES

KEY = "bb_sk_" + "E" * 40


class Signed:
    """The suite sends no credential; ours lets nobody in without one."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {KEY}".encode())]}
        await self._application(scope, receive, send)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sessions", action="store_true", help="keep sessions for the protocols before 2026")
    given = parser.parse_args()
    # The suite tests what the SDK calls deprecated; that is no news at each call.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    settings = load({"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PORT": str(given.port)}, data=given.folder)
    server = Server(settings, extensions=FIXTURES, sessions=given.sessions)
    config = uvicorn.Config(
        Signed(server), port=given.port, http=GuardedProtocol, lifespan="on", log_level="warning", server_header=False
    )
    asyncio.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
