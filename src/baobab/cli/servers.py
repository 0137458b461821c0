"""`baobab serve` and `baobab worker`: the processes that keep running."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import click

from baobab.cli.errors import run_work, translate_errors
from baobab.cli.installation import data_option, load_settings, open_application, warn_of_transfer


@click.command()
@click.option("--host", help="Address to listen on [BAOBAB_HOST, 127.0.0.1].")
@click.option("--port", type=int, help="Port to listen on [BAOBAB_PORT, 8000].")
@click.option("--workers", type=int, help="Server processes [BAOBAB_WORKERS, 1].")
@data_option
def serve(**options: Any) -> None:
    """Start the server.

    The first start creates the data folder, a first account and its API key, and prints the key. It is not shown again.
    SIGTERM or Ctrl-C stops the server after the requests in progress.
    """
    from baobab.serving import run

    def start() -> None:
        settings = load_settings(**options)
        warn_of_transfer(settings)
        run(settings)

    translate_errors(start)


@click.command()
@data_option
def worker(data: Path | None) -> None:
    """Run durable jobs without serving requests, until SIGTERM or Ctrl-C.

    Servers run jobs too, unless BAOBAB_JOBS=0 leaves them all to workers.
    """
    settings = load_settings(data=data)
    warn_of_transfer(settings)

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with open_application(settings, jobs=settings.jobs, environment=os.environ):
            click.echo("Baobab worker is running.", err=True)
            await stop.wait()

    run_work(work())
