"""The command line."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from baobab import __version__
from baobab.settings import Settings, SettingsError, load

T = TypeVar("T")

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Failure(click.ClickException):
    """One line on standard error, exit status 1."""


@click.group(context_settings=_HELP)
@click.version_option(__version__, prog_name="baobab")
def main() -> None:
    """A backend for AI agents and the apps around them: one registry of tools, over MCP and REST.

    Settings are environment variables with the prefix BAOBAB_, such as BAOBAB_DATA (the folder where everything is
    kept, `data` by default) and BAOBAB_PORT; docs/settings.md lists them all. Start with `baobab serve`.
    """
    # Whatever a command makes, keys and data alike, is for the account that runs it.
    os.umask(0o077)


@main.command()
@click.option("--host", help="Address to listen on [BAOBAB_HOST, 127.0.0.1].")
@click.option("--port", type=int, help="Port to listen on [BAOBAB_PORT, 8000].")
@click.option("--workers", type=int, help="Server processes [BAOBAB_WORKERS, 1].")
@click.option("--data", type=Path, help="Folder where everything is kept [BAOBAB_DATA, data].")
def serve(**given: Any) -> None:
    """Start the server.

    The first start makes the data folder, a first account and its API key, and prints the key this once. SIGTERM or
    Ctrl-C stops it: requests under way are finished first.
    """
    from baobab.serving import run

    _told(lambda: run(_settings(**given)))


@main.command()
@click.option("--data", type=Path, help="Folder where everything is kept [BAOBAB_DATA, data].")
def worker(data: Path | None) -> None:
    """Run background work without serving requests.

    What a server does beside answering - sweeping expired keys, finishing the deletion of apps, writing tallies - until
    SIGTERM or Ctrl-C.
    """
    settings = _settings(data=data)

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with _house(settings):
            click.echo("Baobab worker is running.", err=True)
            await stop.wait()

    _run(work())


@main.command()
@click.option("--data", type=Path, help="Folder where everything is kept [BAOBAB_DATA, data].")
def migrate(data: Path | None) -> None:
    """Bring the database to the schema of this version.

    `baobab serve` does so by itself; run it beforehand when you want to see it happen.
    """
    from baobab.storage.databases import database_at
    from baobab.storage.migrate import migrate as apply

    async def work() -> list[str]:
        settings = _settings(data=data)
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = database_at(settings.rows_url)
        await database.open()
        try:
            return await apply(database)
        finally:
            await database.close()

    applied = _run(work())
    click.echo(f"Applied {', '.join(applied)}." if applied else "The database is up to date.")


@main.command()
@click.option("--data", type=Path, help="Folder where everything is kept [BAOBAB_DATA, data].")
def init(data: Path | None) -> None:
    """Make the data folder, the first account and its API key, without starting the server.

    Prints the key, this once. Does nothing when there is an account already; `baobab keys create` makes another key.
    """
    from baobab.tools.accounts.first import ensure_first_account

    settings = _settings(data=data)

    async def work() -> str | None:
        async with _house(settings) as services:
            return await ensure_first_account(services, settings.bootstrap_key or None)

    key = _run(work())
    click.echo(key or "There is an account already. `baobab keys create` makes another key.", err=key is None)


@main.command()
def openapi() -> None:
    """Print the OpenAPI 3.1 document of the REST door."""
    from baobab.http.openapi import document

    click.echo(json.dumps(document(_registry(), __version__, _settings().address), indent=2))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Names, schemas and effects as JSON.")
def tools(*, as_json: bool) -> None:
    """Print the catalogue of tools: name, effect, route and what each is for."""
    registry = _registry()
    if as_json:
        click.echo(json.dumps([_described(tool) for tool in registry.tools.values()], indent=2))
        return
    for toolset in registry.toolsets:
        click.echo(f"{toolset.name}: {toolset.description}")
        for tool in toolset.tools.values():
            route = f"{tool.rest.method} {tool.rest.path}" if tool.rest else ""
            click.echo(f"  {tool.name:28} {tool.effect:12} {route:50} {tool.summary}")


@main.group()
def keys() -> None:
    """API keys of the first account, and the keys that secrets are sealed with.

    These commands work on the data folder itself: whoever can read it needs no credential. They may be used while the
    server runs; it takes notice within a second.
    """


@keys.command("create")
@click.argument("name")
@click.option("--data", type=Path, help="Folder where everything is kept [BAOBAB_DATA, data].")
def keys_create(name: str, data: Path | None) -> None:
    """Make an API key called NAME with every right of the first account, and print it this once."""
    click.echo(_run(_as_first_account(_settings(data=data), "api_keys_create", name=name))["key"])


@keys.command("list")
@click.option("--data", type=Path, help="Folder where everything is kept [BAOBAB_DATA, data].")
def keys_list(data: Path | None) -> None:
    """List the live API keys of the first account's organisation; never the keys themselves."""
    for key in _run(_as_first_account(_settings(data=data), "api_keys_list"))["keys"]:
        used = key["last_used_at"].isoformat(timespec="seconds") if key["last_used_at"] else "never used"
        click.echo(f"{key['id']}  {key['prefix']}...  {','.join(key['scopes']):24} {used:26} {key['name']}")


@keys.command("revoke")
@click.argument("key_id")
@click.option("--data", type=Path, help="Folder where everything is kept [BAOBAB_DATA, data].")
def keys_revoke(key_id: str, data: Path | None) -> None:
    """Revoke the API key with the id KEY_ID. It stops working within a second, on every worker."""
    _run(_as_first_account(_settings(data=data), "api_keys_revoke", key_id=key_id))
    click.echo("Revoked.")


@keys.command("rotate-secret")
@click.option("--data", type=Path, help="Folder where everything is kept [BAOBAB_DATA, data].")
def keys_rotate_secret(data: Path | None) -> None:
    """Make a new key for sealing secrets, and seal everything anew with it.

    The old key stays in DATA/secret.key behind the new one, so that backups can still be read. Servers that run keep
    working with the old key; restart them when this has finished. With BAOBAB_SECRET_KEY set, put a new key in front
    of that list first; this command then only seals anew.
    """
    from baobab.storage.rotation import reseal, rotate

    settings = _settings(data=data)

    async def work() -> int:
        if not settings.secret_key:
            rotate(settings.secret_file)
        async with _house(settings) as services:
            return await reseal(services.database, services.vault)

    click.echo(f"Sealed {_run(work())} secrets anew.")


def _settings(**given: Any) -> Settings:
    try:
        return load(**given)
    except SettingsError as exc:
        raise Failure(str(exc)) from exc


def _registry() -> Any:
    from baobab.tools import toolsets
    from baobab.tools.registry import Registry

    return Registry(toolsets())


def _described(tool: Any) -> dict[str, Any]:
    return {
        "name": tool.name,
        "toolset": tool.toolset.name,
        "effect": tool.effect,
        "description": tool.description,
        "route": f"{tool.rest.method} {tool.rest.path}" if tool.rest else None,
        "access": tool.access.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
    }


@contextlib.asynccontextmanager
async def _house(settings: Settings) -> AsyncIterator[Any]:
    from baobab.composition import house

    async with house(settings) as home:
        yield home.services


async def _as_first_account(settings: Settings, tool: str, **arguments: Any) -> Any:
    """Call a tool as the first account: on the command line the data folder is the credential."""
    from baobab.composition import house
    from baobab.tools.accounts.first import first_account
    from baobab.tools.call import Door

    async with house(settings) as home:
        caller = await first_account(home.services)
        door = Door("cli", f"cli_{home.services.ids.hex(12)}")
        return await home.registry.call(tool, arguments, caller, door)


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _told(lambda: asyncio.run(work))


def _told(work: Callable[[], T]) -> T:
    """Run, and tell what an operator can mend in one line instead of a traceback."""
    from baobab.storage.database import DatabaseUnavailable
    from baobab.storage.kv.errors import StoreUnavailable
    from baobab.storage.migrate import SchemaTooNew
    from baobab.storage.secrets import SecretUnreadable
    from baobab.tools.errors import BaobabError

    try:
        return work()
    except BaobabError as exc:
        raise Failure(f"{exc.message} {exc.remedy}") from exc
    except (SchemaTooNew, SecretUnreadable) as exc:
        raise Failure(str(exc)) from exc
    except DatabaseUnavailable as exc:
        raise Failure(f"the database does not open: {exc.reason}") from exc
    except StoreUnavailable as exc:
        raise Failure(f"the key-value store does not open: {exc}") from exc
    except OSError as exc:
        raise Failure(f"{exc.strerror or exc}: {exc.filename or ''}".rstrip(": ")) from exc
