"""The command line: `baobab` and its commands."""

import os

import click

from baobab import __version__
from baobab.cli import (
    backups,
    catalogue,
    cells,
    connect,
    database,
    first_account,
    keys,
    organisations,
    replay,
    servers,
)

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_COMMANDS = (
    servers.serve,
    servers.worker,
    first_account.init,
    first_account.password,
    first_account.sign_in_link,
    keys.keys,
    connect.connect,
    database.migrate,
    database.forget_store,
    database.transfer,
    backups.backup,
    backups.restore,
    organisations.plan_,
    organisations.credits_,
    cells.cells,
    replay.replay,
    catalogue.tools,
    catalogue.openapi,
)


@click.group(context_settings=_HELP)
@click.version_option(__version__, prog_name="baobab")
def main() -> None:
    """A backend for AI agents and the apps around them: one set of tools, over MCP and REST.

    Start with `baobab serve`. Settings are environment variables with the prefix BAOBAB_, such as BAOBAB_DATA (the
    folder that holds everything, `data` by default) and BAOBAB_PORT; docs/settings.md lists them all.
    """
    # Everything that a command creates, keys and data alike, is readable only by the account that runs it.
    os.umask(0o077)


for command in _COMMANDS:
    main.add_command(command)
