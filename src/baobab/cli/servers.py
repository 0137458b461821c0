"""`baobab serve` and `baobab worker`: the processes that keep running."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import click

from baobab.cli.errors import run_work, translate_errors
from baobab.cli.installation import data_option, load_settings, open_application, warn_of_transfer
from baobab.runtime.late_import import without_collections


@click.command()
@click.option("--host", help="Address to listen on [BAOBAB_HOST, 127.0.0.1].")
@click.option("--port", type=int, help="Port to listen on [BAOBAB_PORT, 8000].")
@click.option("--workers", type=int, help="Server processes [BAOBAB_WORKERS, 1].")
@click.option("--live", is_flag=True, help="Say of a copy, such as a restored backup, that it is the one that lives.")
@click.option(
    "--waiting",
    type=click.Choice(["run", "drop"]),
    help="With --live: do what waits in the copy from before it was made, or leave it undone.",
)
@click.option("--copy", is_flag=True, help="Say that this is a copy: it sends and starts nothing until --live.")
@data_option
def serve(*, live: bool, waiting: str | None, copy: bool, **options: Any) -> None:
    """Start the server.

    The first start creates the data folder, a first account and its API key, and prints the key. It is not shown again.
    SIGTERM or Ctrl-C stops the server after the requests in progress.

    A restored backup or a copied data folder serves reads and writes, but sends no mail or webhook and starts no agent,
    until --live says that it is the one that lives. Stop the original first.
    """
    if live and copy:
        raise click.UsageError("Give --live or --copy, not both.")
    if waiting and not live:
        raise click.UsageError("--waiting goes with --live.")
    with without_collections():
        from baobab.serving import run

    def start() -> None:
        settings = load_settings(**options)
        warn_of_transfer(settings)
        if live or copy:
            from baobab.cli.work.liveness import become_copy, begin_to_live

            run_work(begin_to_live(settings, waiting, click.echo) if live else become_copy(settings, click.echo))
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
        async with open_application(settings, jobs=settings.jobs, environment=os.environ) as application:
            is_copy = application.services.liveness.is_copy
            note = " THIS IS A COPY: only upkeep is done until `baobab serve --live`." if is_copy else ""
            click.echo(f"Baobab worker is running.{note}", err=True)
            await stop.wait()

    run_work(work())


def create_server() -> Any:
    """Creates the server of a process of `serve --workers`, where uvicorn calls it by its name."""
    with without_collections():
        from baobab.server import create
    return create()
