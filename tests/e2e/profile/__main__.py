"""Start the profile: `python -m tests.e2e.profile PORT FOLDER [--sessions]`."""

import argparse
import asyncio
import warnings
from pathlib import Path
from typing import Any

import uvicorn
from mcp.shared.exceptions import MCPDeprecationWarning

from baobab.http.protocol import GuardedProtocol
from baobab.logs import configure
from baobab.server import Server
from baobab.settings import load_settings
from tests.e2e.profile.fixtures import FIXTURES
from tests.e2e.profile.notifications import NOTIFICATIONS

_GRACE_SECONDS = 2
KEY = "bb_sk_" + "E" * 40


class AuthenticatedApp:
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
    args = parser.parse_args()
    # What the suite does wrong on purpose is logged as a warning.
    configure("error")
    # The suite tests what the SDK calls deprecated; that is no news at each call.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(serve(args.port, args.folder, sessions=args.sessions))


async def serve(port: int, folder: Path, *, sessions: bool) -> None:
    settings = load_settings({"BAOBAB_BOOTSTRAP_KEY": KEY, "BAOBAB_PORT": str(port)}, data=folder)
    server = Server(settings, extensions=FIXTURES, sessions=sessions)
    async with server.open() as application:
        NOTIFICATIONS.services = application.services
        config = uvicorn.Config(
            AuthenticatedApp(server.rest_app), port=port, http=GuardedProtocol, lifespan="off", log_config=None,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )  # fmt: skip
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    main()
