"""The errors of client commands: a sentence with a way on, or JSON where `--json` was given."""

import json
from collections.abc import Mapping
from typing import IO, Any

import click

from baobab.cli.errors import CommandError

_AS_JSON = "baobab.as_json"


class ClientError(CommandError):
    """What a command could not do; the exit status is 1. code: that of the server's error, else the command's own."""

    def __init__(self, message: str, code: str = "CLIENT_ERROR", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = details
        context = click.get_current_context(silent=True)
        self._as_json = context is not None and bool(context.meta.get(_AS_JSON))

    def show(self, file: IO[Any] | None = None) -> None:
        if not self._as_json:
            super().show(file)
            return
        error = {"code": self.code, "message": self.message, **({"details": self.details} if self.details else {})}
        click.echo(json.dumps({"error": error}), file=file)


def _remember(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    context.meta[_AS_JSON] = value
    return value


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    callback=_remember,
    is_eager=True,
    help="Print the answer, or the error, as JSON.",
)
