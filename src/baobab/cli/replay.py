"""`baobab replay`: compares an ended run with what its graph would do now."""

from pathlib import Path

import click

from baobab.cli.errors import run_work
from baobab.cli.installation import data_option, load_installed_settings, open_application
from baobab.cli.parameters import Word


@click.command()
@click.argument("run", type=Word())
@click.option("--app", type=Word(), help="The app that the run must belong to.")
@click.option("--agent", is_flag=True, help="Use the graph that the agent has now, instead of the run's own.")
@data_option
def replay(run: str, app: str | None, data: Path | None, *, agent: bool) -> None:
    """Replay the ended run RUN with the answers that its tools and models gave then, and compare.

    Example: `baobab replay 4f0c8a52-3c1e-4d7b-9f52-2f6f3a1c9d10`

    No tool or model is called, and nothing is written. Prints the events of the run: `-` before an event that is
    missing this time, `+` before a new one. The exit status is 1 if there is any difference.
    """
    from baobab.cli.work.replays import replay as replay_run

    settings = load_installed_settings(data)

    async def work() -> tuple[list[str], bool]:
        async with open_application(settings, every_region=True) as application:
            return await replay_run(application.services, run, app, present=agent)

    lines, is_same = run_work(work())
    for line in lines:
        click.echo(line)
    if not is_same:
        raise SystemExit(1)
