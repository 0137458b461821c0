"""What client commands print: results on standard output, what else there is to know on standard error."""

import json
from collections.abc import Sequence
from typing import Any

import click

from baobab.settings import CLIENT_APP

app_option = click.option("--app", help=f"The app, by its id or name [{CLIENT_APP}].")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(rows: Sequence[Sequence[str]], empty: str) -> None:
    """Prints rows in columns, each as wide as it has to be; `empty` on standard error if there are none."""
    if not rows:
        click.echo(empty, err=True)
        return
    widths = [max(len(make_plain(row[at])) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (make_plain(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def make_plain(text: str) -> str:
    """Returns a text without what a terminal would obey: others wrote it."""
    return "".join(sign if sign.isprintable() else f"\\x{ord(sign):02x}" for sign in text)


def make_lines_plain(text: str) -> str:
    """As `make_plain`, but keeps the ends of lines and tabs."""
    return "".join(sign if sign in "\n\t" else make_plain(sign) for sign in text)
