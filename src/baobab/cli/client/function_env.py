"""`baobab functions env`: variables, whose values come from prompts or a pipe, and are never printed."""

import sys

import click

from baobab.cli.client.errors import ClientError, json_option
from baobab.cli.client.output import app_option, print_json
from baobab.cli.client.server import Server, find_app, find_server, write_segment

function_option = click.option("--function", metavar="NAME", help="Of this function only; left out, of all of the app.")


@click.group()
def env() -> None:
    """Set, remove and list the environment variables of functions. Values go in and never come out again."""


@env.command("set")
@click.argument("variables", nargs=-1)
@function_option
@app_option
@json_option
def set_variables(variables: tuple[str, ...], function: str | None, app: str | None, *, as_json: bool) -> None:
    """Set [VARIABLES]..., whose values are asked for, or read from a pipe: one value, or lines NAME=value.

    Example: `baobab functions env set STRIPE_KEY --app shop`, or `baobab functions env set --app shop < production.env`

    Values are no arguments, which every process of the machine could read. Other variables stay as they are.
    """
    values = _read_values(variables)
    server = find_server()
    _change(server, find_app(server, app), function, values, "set", as_json=as_json)


@env.command("unset")
@click.argument("variables", nargs=-1, required=True)
@function_option
@app_option
@json_option
def unset_variables(variables: tuple[str, ...], function: str | None, app: str | None, *, as_json: bool) -> None:
    """Remove VARIABLES.... Their values cannot be brought back."""
    server = find_server()
    _change(server, find_app(server, app), function, dict.fromkeys(variables), "removed", as_json=as_json)


@env.command("list")
@function_option
@app_option
@json_option
def list_variables(function: str | None, app: str | None, *, as_json: bool) -> None:
    """List the names of the variables that all functions of an app have, or that one has of its own."""
    server = find_server()
    app_id = find_app(server, app)
    if function is None:
        names = server.call("GET", f"/v1/{app_id}/env")["keys"]
    else:
        names = server.call("GET", f"/v1/{app_id}/functions/{write_segment(function)}")["envKeys"]
    if as_json:
        print_json({"keys": names})
    elif names:
        click.echo("\n".join(names))
    else:
        click.echo("There are no variables.", err=True)


def _change(
    server: Server, app_id: str, function: str | None, values: dict[str, str | None], verb: str, *, as_json: bool
) -> None:
    path = f"/v1/{app_id}/env" if function is None else f"/v1/{app_id}/functions/{write_segment(function)}/env"
    answer = server.call("PATCH", path, {"envVars": values})
    if as_json:
        print_json(answer)
        return
    whose = f"the function {function}" if function else "all functions of the app"
    click.echo(f"{', '.join(sorted(values))} {verb} for {whose}. The next call sees it.")


def _read_values(variables: tuple[str, ...]) -> dict[str, str | None]:
    """Returns the values that were typed or piped. Raises ClientError."""
    for variable in variables:
        if "=" in variable:
            name = variable.partition("=")[0]
            raise ClientError(f"Give only the name {name}: the value is asked for, so that no other program reads it.")
    if sys.stdin.isatty():
        if not variables:
            raise ClientError("Name the variables, or pipe lines NAME=value into the command.")
        return {name: str(click.prompt(f"{name} (not shown)", hide_input=True, err=True)) for name in variables}
    content = sys.stdin.read()
    if len(variables) == 1:
        value = content.removesuffix("\n").removesuffix("\r")
        if not value:
            raise ClientError(f"The pipe is empty; `baobab functions env unset {variables[0]}` removes the variable.")
        return {variables[0]: value}
    values = read_lines(content, "standard input")
    if variables and set(variables) != set(values):
        raise ClientError(f"The pipe has lines for {', '.join(sorted(values))}, and not for just the variables named.")
    return dict(values)


def read_lines(content: str, place: str) -> dict[str, str]:
    """Returns the variables of lines `NAME=value`, without empty lines and those that begin with `#`.

    Quotes around a whole value are taken away, `export` before a name too. Raises ClientError.
    """
    values: dict[str, str] = {}
    for number, text in enumerate(content.splitlines(), 1):
        line = text.strip()
        if not line or line.startswith("#"):
            continue
        name, separator, value = line.removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not separator or not name:
            raise ClientError(f"Line {number} of {place} is not NAME=value.")
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        values[name] = value
    if not values:
        raise ClientError(f"There are no variables in {place}.")
    return values
