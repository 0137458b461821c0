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
from baobab.cli.client import apps, functions, login, sites

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_CLIENT_COMMANDS = (login.login, login.logout, apps.apps, functions.functions, sites.sites)
_OPERATOR_COMMANDS = (
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


class _Commands(click.Group):
    """Shows the commands in two sections: those that call a server, and those that work on its folder."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = (("Commands that call a server", _CLIENT_COMMANDS), ("The operator's commands", _OPERATOR_COMMANDS))
        # As wide as the longest name of both leaves it, so that both are aligned.
        limit = formatter.width - 6 - max(map(len, self.commands))
        for title, commands in sections:
            with formatter.section(title):
                formatter.write_dl([(str(each.name), each.get_short_help_str(limit)) for each in commands])


@click.group(cls=_Commands, context_settings=_HELP)
@click.version_option(__version__, prog_name="baobab")
def main() -> None:
    """A backend for AI agents and the apps around them: one set of tools, over MCP and REST.

    To run a server, start with `baobab serve`. The operator's commands work on its folder. Settings are environment
    variables with the prefix BAOBAB_, such as BAOBAB_DATA (the folder that holds everything, `data` by default) and
    BAOBAB_PORT; docs/settings.md lists them all.

    To use a server, begin with `baobab login URL`, or set BAOBAB_URL and BAOBAB_KEY (an API key); BAOBAB_APP names the
    app where `--app` is left out.
    """
    # Everything that a command creates, keys and data alike, is readable only by the account that runs it.
    os.umask(0o077)


for command in (*_CLIENT_COMMANDS, *_OPERATOR_COMMANDS):
    main.add_command(command)
