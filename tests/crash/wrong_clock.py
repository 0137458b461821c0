"""`baobab serve` on a machine whose clock is wrong: python wrong_clock.py SECONDS_AHEAD serve --port N --data FOLDER"""

import argparse
import asyncio
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn

from baobab.http.protocol import GuardedProtocol
from baobab.logs import configure
from baobab.server import Server
from baobab.serving import render_welcome
from baobab.settings import load_settings
from baobab.storage.clock import SystemClock


class WrongClock(SystemClock):
    """Only what a clock shows is wrong; seconds are as long as elsewhere."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead
        right = SystemClock.time
        self.time = lambda: right() + ahead

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._ahead)


async def serve(ahead: float, port: int, data: Path) -> None:
    settings = load_settings(port=port, data=data)
    configure(settings.log_level)
    server = Server(settings, clock=WrongClock(ahead))
    async with server.open():
        rest_app: Any = server.rest_app
        config = uvicorn.Config(rest_app, port=port, http=GuardedProtocol, lifespan="off", log_config=None)
        sys.stderr.write(render_welcome(settings, server))
        await uvicorn.Server(config).serve()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ahead", type=float)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--port", type=int)
    parser.add_argument("--data", type=Path)
    # Of these machines each has one.
    parser.add_argument("--workers", type=int, choices=[1])
    args = parser.parse_args()
    asyncio.run(serve(args.ahead, args.port, args.data))


if __name__ == "__main__":
    main()
