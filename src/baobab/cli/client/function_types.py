"""`baobab functions types`: declarations with which editors know `ctx` and the tables of an app."""

import json
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from baobab.cli.client.errors import ClientError
from baobab.cli.client.output import app_option
from baobab.cli.client.server import find_app, find_server
from baobab.settings import CLIENT_APP

_FILE = "baobab.d.ts"
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_TYPE = re.compile(r"([a-z][a-z0-9 ]*?)\s*(?:\([0-9, ]+\))?(\[\])?")
# As rows are answered. Numbers that JavaScript could not hold are texts.
_SCALARS = {
    **dict.fromkeys(("smallint", "integer", "smallserial", "serial", "real", "double precision"), "number"),
    **dict.fromkeys(("text", "varchar", "char", "uuid", "bigint", "bigserial", "numeric", "bytea"), "string"),
    **dict.fromkeys(("timestamptz", "timestamp", "date", "time", "timetz", "interval"), "string"),
    "boolean": "boolean",
    "vector": "number[]",
}
_ITEMS = {"text": "string", "varchar": "string", "uuid": "string", "integer": "number", "boolean": "boolean"}
"""Of arrays. What the items of others are depends on the database."""


@click.command()
@app_option
@click.option("--out", type=click.Path(path_type=Path), help=f"The file that is written; {_FILE} here, if left out.")
def types(app: str | None, out: Path | None) -> None:
    """Write a file with the types of `ctx` and, if the app is named, of its tables. Run it again when these change.

    Example: `baobab functions types --app shop --out functions/baobab.d.ts`

    Editors then know `ctx: Ctx` and, for `ctx.db.query<Tables["orders"]>(...)`, the columns. Without an app, no server
    is asked. Functions need the file neither to be deployed nor to run.
    """
    text = read_declarations()
    if app or os.environ.get(CLIENT_APP):
        server = find_server()
        text += "\n" + render_tables(server.call("GET", f"/v1/{find_app(server, app)}/schema")["schema"])
    file = out or Path(_FILE)
    try:
        file.write_text(text)
    except OSError as exc:
        raise ClientError(f"{file} cannot be written: {exc.strerror}.") from exc
    click.echo(f"Wrote {file}.")


def read_declarations() -> str:
    """Returns the declarations of `ctx`, which lie beside what runs functions."""
    return files("baobab.runtime.functions").joinpath("ctx.d.ts").read_text()


def render_tables(schema: Mapping[str, Any]) -> str:
    """Returns the declaration of the rows of each table, in the form in which `ctx.db.query` answers them."""
    lines = ["/** The rows of the app's tables, as `ctx.db.query` answers `SELECT *`. */", "interface Tables {"]
    for name, table in schema["tables"].items():
        lines.append(f"  {_write_name(name)}: {{")
        for column, definition in table["columns"].items():
            lines.append(f"    {_write_name(column)}: {_write_type(definition)};")
        lines.append("  };")
    return "\n".join([*lines, "}", ""])


def _write_type(definition: Any) -> str:
    if isinstance(definition, str):
        definition = {"type": definition}
    match = _TYPE.fullmatch(str(definition["type"]))
    name, is_array = (match[1], bool(match[2])) if match else ("", False)
    if definition.get("enum"):
        kind = " | ".join(json.dumps(value) for value in definition["enum"])
    elif is_array:
        kind = f"{_ITEMS[name]}[]" if name in _ITEMS else "unknown[]"
    else:
        kind = _SCALARS.get(name, "unknown")
    is_present = definition.get("nullable") is False or definition.get("primaryKey")
    return kind if is_present or kind == "unknown" else f"{kind} | null"


def _write_name(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name)
