"""`baobab connect`: the line that connects an MCP client to this installation."""

import json
import re

import click

from baobab.cli.installation import load_settings

_KEY = re.compile(r"bb_(sk|sub)_[A-Za-z0-9]{40}")
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:/_~\[\]-]+")


@click.command()
@click.argument("client", required=False)
@click.option("--key", help="The API key of the client. The command asks for it if it is left out.")
@click.option("--oauth", is_flag=True, help="Without a key: the client opens a page on which you sign in.")
@click.option("--address", help="The server's address, if it is not the one of the settings.")
def connect(client: str | None, key: str | None, address: str | None, *, oauth: bool) -> None:
    """Print what connects the MCP client [CLIENT] to the server, or the names of the clients.

    Example: `baobab connect claude-code`

    It prints a command to run, or JSON for the file that it names, and changes nothing. It creates no key: take the one
    that the first start printed, or `baobab keys create NAME`.
    """
    from baobab.mcp_server.client_setup import render_client_lines

    url = _read_address(address) + "/mcp"
    names = {_shorten(name): name for name in render_client_lines(url, None)}
    if client is None:
        click.echo("\n".join(f"{short:16} {name}" for short, name in names.items()))
        click.echo("Print the line of one: baobab connect NAME", err=True)
        return
    name = next((name for short, name in names.items() if _compare(short) == _compare(client)), None)
    if name is None:
        raise click.BadParameter(f"{client} is none of {', '.join(names)}.", param_hint="CLIENT")
    line = render_client_lines(url, None if oauth else _read_key(key))[name]
    _, _, file_name = name.removesuffix(")").partition(" (")
    if file_name:
        click.echo(f"Put this into {file_name}; if the file has mcpServers, add only the entry baobab:", err=True)
        line = json.dumps(json.loads(line), indent=2)
    click.echo(line)


def _read_address(address: str | None) -> str:
    """Returns the given address, else that of the settings. It becomes part of a command, so it has no other signs."""
    if address is None:
        address = load_settings().address
        if not _ADDRESS.fullmatch(address):
            raise click.UsageError(
                "BAOBAB_BASE_URL has signs that a command must not have. Mend it, or give --address."
            )
        return address
    if not _ADDRESS.fullmatch(address):
        raise click.BadParameter("give an address such as https://baobab.example.com.", param_hint="--address")
    return address.rstrip("/").removesuffix("/mcp")


def _read_key(key: str | None) -> str:
    if key is None:
        key = str(click.prompt("API key (not shown)", hide_input=True, err=True)).strip()
    if not _KEY.fullmatch(key):
        raise click.BadParameter(
            "an API key begins with bb_sk_ and has 40 letters and digits after it.", param_hint="--key"
        )
    return key


def _shorten(name: str) -> str:
    return name.partition(" (")[0].lower().replace(" ", "-")


def _compare(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())
