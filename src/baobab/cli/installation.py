"""The installation that a command works on: its settings, and its application."""

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import click

from baobab import settings as settings_module
from baobab.cli.errors import CommandError, run_work
from baobab.settings import Settings, SettingsError

TRANSFER_NOTE = "transferred.txt"
"""In the data folder of an installation that `baobab transfer` has copied: where to, and when."""

data_option = click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")


def load_settings(**options: Any) -> Settings:
    """Loads the settings from the environment and the command's options. Raises CommandError if one is not valid."""
    try:
        return settings_module.load_settings(**options)
    except SettingsError as exc:
        raise CommandError(str(exc)) from exc


def load_installed_settings(data: Path | None) -> Settings:
    """Loads the settings of an existing installation. Raises CommandError if there is none, instead of creating one."""
    from baobab.storage.backup.errors import NoDataFolder
    from baobab.storage.sql.databases import SQLITE

    settings = load_settings(data=data)
    rows = Path(settings.rows_url.removeprefix(SQLITE))
    if settings.rows_url.startswith(SQLITE) and not rows.is_file():
        raise CommandError(str(NoDataFolder(rows)))
    return settings


def warn_of_transfer(settings: Settings) -> None:
    """Warns on standard error if the rows of the folder have been copied to another place, where servers run now."""
    from baobab.storage.sql.databases import SQLITE

    note = settings.data / TRANSFER_NOTE
    if settings.rows_url.startswith(SQLITE) and note.is_file():
        click.echo(
            f"Warning: {note.read_text().strip()} What you write here does not arrive there. Set BAOBAB_DATABASE_URL "
            f"to go on there, or delete {note} to go on here.",
            err=True,
        )


@contextlib.asynccontextmanager
async def open_application(
    settings: Settings, *, jobs: int = 0, environment: Mapping[str, str] | None = None, every_region: bool = False
) -> AsyncIterator[Any]:
    """Opens the application without model servers.

    jobs: how many durable jobs it runs at once; 0 for a short command. every_region: whether a further region that does
    not answer is an error.
    """
    from baobab import composition

    quiet = settings.model_copy(update={"jobs": jobs, "ai_probe": False})
    async with composition.open_application(quiet, environment=environment, every_region=every_region) as application:
        yield application


def print_lines(data: Path | None, work: Callable[[Any], Coroutine[Any, Any, list[str]]]) -> None:
    """Prints the lines that `work` returns. It is given the services of the opened application."""
    settings = load_installed_settings(data)

    async def collect_lines() -> list[str]:
        async with open_application(settings) as application:
            return await work(application.services)

    for line in run_work(collect_lines()):
        click.echo(line)
