"""The command line."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from baobab import __version__
from baobab.addresses import KvPlace
from baobab.parameters import Dollars, Word
from baobab.settings import Settings, SettingsError, load_settings
from baobab.tools.core.plans import PLANS

T = TypeVar("T")

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class CommandError(click.ClickException):
    """An error that is shown as one line on standard error; the exit status is 1."""


@click.group(context_settings=_HELP)
@click.version_option(__version__, prog_name="baobab")
def main() -> None:
    """A backend for AI agents and the apps around them: one set of tools, over MCP and REST.

    Start with `baobab serve`. Settings are environment variables with the prefix BAOBAB_, such as BAOBAB_DATA (the
    folder that holds everything, `data` by default) and BAOBAB_PORT; docs/settings.md lists them all.
    """
    # What a command creates, keys and data alike, is readable only by the account that runs it.
    os.umask(0o077)


@main.command()
@click.option("--host", help="Address to listen on [BAOBAB_HOST, 127.0.0.1].")
@click.option("--port", type=int, help="Port to listen on [BAOBAB_PORT, 8000].")
@click.option("--workers", type=int, help="Server processes [BAOBAB_WORKERS, 1].")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def serve(**given: Any) -> None:
    """Start the server.

    The first start creates the data folder, a first account and its API key, and prints the key, only this once.
    SIGTERM or Ctrl-C stops the server: requests in progress are finished first.
    """
    from baobab.serving import run

    _translate_errors(lambda: run(_load_settings(**given)))


@main.command()
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def worker(data: Path | None) -> None:
    """Run durable jobs without serving requests, until SIGTERM or Ctrl-C.

    Servers run jobs too, unless BAOBAB_JOBS=0 leaves them all to workers.
    """
    settings = _load_settings(data=data)

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with _open_application(settings, jobs=settings.jobs, environment=os.environ):
            click.echo("Baobab worker is running.", err=True)
            await stop.wait()

    _run(work())


@main.command()
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def migrate(data: Path | None) -> None:
    """Update the database to the schema of this version.

    `baobab serve` does this by itself. Run this command first if you want to see what it applies.
    """
    from baobab.storage.databases import database_at
    from baobab.storage.migrate import migrate as apply

    async def work() -> list[str]:
        settings = _load_settings(data=data)
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = database_at(settings.rows_url)
        await database.open()
        try:
            return await apply(database)
        finally:
            await database.close()

    applied = _run(work())
    click.echo(f"Applied {', '.join(applied)}." if applied else "The database is up to date.")


@main.command("forget-store")
@click.argument("store")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def forget_store(store: str, data: Path | None) -> None:
    """Accept that the data of a store is lost, and start again with an empty one.

    STORE is the name in the error of the start, such as `kv:local` or `objects:local`. If you have a backup, restore it
    instead.
    """
    from baobab.storage.databases import database_at
    from baobab.storage.identity import forget_store as forget

    async def work() -> bool:
        database = database_at(_load_installed_settings(data).rows_url)
        await database.open()
        try:
            return await forget(database, store)
        finally:
            await database.close()

    if not _run(work()):
        raise CommandError(f"there is no store {store}; use the name that the error of the start gives")
    click.echo(f"The next start creates an empty {store}.")


@main.command()
@click.option("--to", help="Where the rows go: an empty database, postgresql://..., or a new folder.")
@click.option("--kv", type=click.Choice(["database", "valkey"]), help="Where the key-value store goes [database].")
@click.option("--valkey", help="With --to: the Valkey or Redis of the new installation, redis://...")
@click.option("--objects", help="Where the files go: an empty s3://BUCKET/PREFIX.")
@click.option("--data", type=Path, help="Folder of the installation [BAOBAB_DATA, data].")
@click.option("--dry-run", is_flag=True, help="Check both sides and change nothing.")
def transfer(
    to: str | None,
    kv: KvPlace | None,
    valkey: str | None,
    objects: str | None,
    data: Path | None,
    *,
    dry_run: bool,
) -> None:
    """Move an installation from files to Postgres, or from Postgres to files; or only its key-value store.

    --to postgresql://... copies the rows, the keys and, with --objects, the files of the installation that the settings
    name. --to FOLDER copies all of it into a new folder.

    Stop its servers and workers first; none can start while this runs. The source is only read. The target must be
    empty, and cannot be used until everything has arrived and has been compared. If the command is interrupted, run it
    again: it continues. You can leave a password to PGPASSWORD or ~/.pgpass.

    --kv without --to moves the key-value store of each region with a Valkey: into Valkey or into the region's
    database, with the keys that earlier versions kept in Valkey. What was moved is deleted where it was.
    """
    from baobab.kv_transfer_command import transfer_kv
    from baobab.transfer_command import target_settings
    from baobab.transfer_command import transfer as carry

    if to is None and (kv is None or valkey or objects):
        raise click.UsageError("Give --to, or --kv alone.")

    async def work() -> None:
        source = _load_installed_settings(data)
        if to is not None:
            target = target_settings(source, to, kv=kv or "database", valkey_url=valkey, objects_url=objects)
            await carry(source, target, dry_run=dry_run, print_line=click.echo)
        elif kv is not None:
            await transfer_kv(source, kv, dry_run=dry_run, print_line=click.echo)

    _run(work())


@main.command()
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def init(data: Path | None) -> None:
    """Create the data folder, the first account and its API key, without starting the server.

    Prints the key, only this once. Does nothing if there is an account already; `baobab keys create` creates another
    key.
    """
    from baobab.tools.accounts.first_account import ensure_first_account

    settings = _load_settings(data=data)

    async def work() -> str | None:
        async with _open_application(settings) as application:
            return await ensure_first_account(application.services, settings.bootstrap_key or None)

    key = _run(work())
    click.echo(key or "There is an account already. `baobab keys create` creates another key.", err=key is None)


@main.command()
def openapi() -> None:
    """Print the OpenAPI 3.1 document of the REST API."""
    from baobab.http.openapi import build_document

    click.echo(json.dumps(build_document(_build_registry(), __version__, _load_settings().address), indent=2))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Names, schemas and effects as JSON.")
def tools(*, as_json: bool) -> None:
    """Print all tools: name, effect, route and what each does."""
    registry = _build_registry()
    if as_json:
        click.echo(json.dumps([_describe_tool(tool) for tool in registry.tools.values()], indent=2))
        return
    for toolset in registry.toolsets:
        click.echo(f"{toolset.name}: {toolset.description}")
        for tool in toolset.tools.values():
            route = f"{tool.rest.method} {tool.rest.path}" if tool.rest else ""
            click.echo(f"  {tool.name:28} {tool.effect:12} {route:50} {tool.summary}")


@main.command()
@click.argument("email", required=False)
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
@click.password_option(help="The new password; the command asks for it if it is left out.")
def password(email: str | None, data: Path | None, password: str) -> None:
    """Set the password of the account [EMAIL]; if it is left out, of the first account, `owner@localhost`.

    People sign in with it, to decide on approvals and to connect programs. The command works on the data folder itself,
    so it can also replace a password that was forgotten. It ends every session of the account.
    """
    from baobab.tools.accounts.password_reset import set_password

    settings = _load_installed_settings(data)

    async def work() -> str:
        async with _open_application(settings) as application:
            return await set_password(application.services, email, password)

    click.echo(f"{_run(work())} can sign in with the new password.")


@main.command("sign-in-link")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def sign_in_link(data: Path | None) -> None:
    """Print a link that signs the first account in to the console, once and within ten minutes."""
    from baobab.serving import render_link
    from baobab.tools.accounts.first_account import first_account
    from baobab.tools.console.sessions import LINK_LIFETIME, create_link

    settings = _load_installed_settings(data)

    async def work() -> str:
        async with _open_application(settings) as application:
            owner = await first_account(application.services)
            return await create_link(application.services, owner.account_id)

    click.echo(render_link(settings, _run(work()), LINK_LIFETIME))


@main.group()
def keys() -> None:
    """Manage the first account's API keys, and the keys that secrets are sealed with.

    These commands work on the data folder itself: whoever can read it needs no credential. You can use them while the
    server runs; it notices a change within a second.
    """


@keys.command("create")
@click.argument("name")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def keys_create(name: str, data: Path | None) -> None:
    """Create an API key called NAME with every right of the first account, and print it, only this once."""
    click.echo(_run(_call_as_first_account(_load_installed_settings(data), "api_keys_create", name=name))["key"])


@keys.command("list")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def keys_list(data: Path | None) -> None:
    """List the API keys of the first account's organisation that are in force. The keys themselves are not shown."""
    for key in _run(_call_as_first_account(_load_installed_settings(data), "api_keys_list"))["keys"]:
        used = key["last_used_at"].isoformat(timespec="seconds") if key["last_used_at"] else "never used"
        click.echo(f"{key['id']}  {key['prefix']}...  {','.join(key['scopes']):24} {used:26} {key['name']}")


@keys.command("revoke")
@click.argument("key_id")
@click.option("--keep-made", is_flag=True, help="Do not revoke the keys that were created with it.")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def keys_revoke(key_id: str, data: Path | None, *, keep_made: bool) -> None:
    """Revoke the API key with the id KEY_ID, and the keys that were created with it.

    They stop working within a second, on every worker.
    """
    settings = _load_installed_settings(data)
    revoked = _run(_call_as_first_account(settings, "api_keys_revoke", key_id=key_id, keep_made=keep_made))[
        "keys_revoked"
    ]
    click.echo("Revoked." if revoked == 1 else f"Revoked, with {revoked - 1} keys that were created with it.")


@keys.command("rotate-secret")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def keys_rotate_secret(data: Path | None) -> None:
    """Create a new key for sealing secrets, and seal every secret again with it.

    The old key stays in DATA/secret.key behind the new one, so that backups can still be read. Running servers keep
    using the old key; restart them when this has finished. If BAOBAB_SECRET_KEY is set, put a new key in front of that
    list first; this command then only seals again.
    """
    from baobab.storage.rotation import reseal, rotate_key

    settings = _load_installed_settings(data)

    async def work() -> int:
        if not settings.secret_key:
            rotate_key(settings.secret_file)
        async with _open_application(settings, every_region=True) as application:
            databases = {stores.database for stores in application.services.regions.values()}
            return sum([await reseal(database, application.services.vault) for database in databases])

    click.echo(f"Sealed {_run(work())} secrets with the new key.")


@main.command("plan")
@click.argument("org", type=Word())
@click.argument("plan", type=click.Choice(list(PLANS)), required=False, metavar="[PLAN]")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def plan_(org: str, plan: str | None, data: Path | None) -> None:
    """Print the plan of the organisation ORG; if [PLAN] is given, change it to that plan.

    ORG is the id of an organisation, or the e-mail address of the account whose personal organisation it is.
    docs/settings.md describes the plans. A running server uses the new plan at once. What the organisation has already
    stays, even if the new plan allows less.
    """
    from baobab.plan_command import change_plan, show_plan

    _print_lines(data, lambda services: change_plan(services, org, plan) if plan else show_plan(services, org))


@main.group("credits")
def credits_() -> None:
    """Show and change what organisations may spend on models.

    There is no payment provider in Baobab: how an organisation pays is between it and you, and these commands record
    what you agreed. They work on the data folder itself. You can use them while the server runs; changes take effect at
    once. ORG is the id of an organisation, or the e-mail address of the account whose personal organisation it is.
    Amounts are US dollars with up to 9 decimals.
    """


@credits_.command("show")
@click.argument("org", type=Word())
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def credits_show(org: str, data: Path | None) -> None:
    """Print the credits of the organisation ORG: allowance, top-ups, floor, reservations and budgets."""
    from baobab.credit_commands import show_credits

    _print_lines(data, lambda services: show_credits(services, org))


@credits_.command("top-up")
@click.argument("org", type=Word())
@click.argument("usd", type=Dollars())
@click.option(
    "--reference", type=Word(), required=True, help="Names the payment. A reference that was used before adds nothing."
)
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def credits_top_up(org: str, usd: int, reference: str, data: Path | None) -> None:
    """Add credits of USD dollars, which do not expire, to the organisation ORG, and print its credits."""
    from baobab.credit_commands import top_up

    if not usd:
        raise CommandError("The top-up is 0 dollars: give more than 0.")
    _print_lines(data, lambda services: top_up(services, org, usd, reference))


@credits_.command("terms")
@click.argument("org", type=Word())
@click.option("--allowance", type=Dollars(), help="Dollars per month, instead of the allowance of its plan.")
@click.option("--floor", type=Dollars(below=True), help="How far below zero it may go, such as -10.")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def credits_terms(org: str, allowance: int | None, floor: int | None, data: Path | None) -> None:
    """Set the organisation ORG's own terms, and print its credits.

    This sets both terms at once: an option that you leave out goes back to what its plan says.
    """
    from baobab.credit_commands import set_terms

    _print_lines(data, lambda services: set_terms(services, org, allowance, floor))


@main.group()
def cells() -> None:
    """Show cells, and drain them.

    A cell is a region: see docs/scaling.md. These commands work on the data folder itself. You can use them while the
    server runs; changes take effect at once.
    """


@cells.command("list")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def cells_list(data: Path | None) -> None:
    """List the cells: geography, apps, and how far a drain is."""
    from baobab.cell_commands import show_cells

    _print_lines(data, show_cells)


@cells.command("drain")
@click.argument("name", type=Word())
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def cells_drain(name: str, data: Path | None) -> None:
    """Empty the cell NAME: it takes no new apps, and its apps move to other cells of its geography.

    The servers and workers move the apps in the background; `baobab cells list` says how far they are. While an app
    moves, writes of its data answer 503 with Retry-After for some seconds. What moves leave behind in the cell stays
    there. The cell takes apps again after `baobab cells admit`.
    """
    from baobab.cell_commands import drain_cell

    _print_lines(data, lambda services: drain_cell(services, name))


@cells.command("admit")
@click.argument("name", type=Word())
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def cells_admit(name: str, data: Path | None) -> None:
    """Stop draining the cell NAME: it takes new apps again.

    Moves that are under way are completed. Apps that have moved stay where they are.
    """
    from baobab.cell_commands import admit_to_cell

    _print_lines(data, lambda services: admit_to_cell(services, name))


def _print_lines(data: Path | None, work: Callable[[Any], Coroutine[Any, Any, list[str]]]) -> None:
    settings = _load_installed_settings(data)

    async def collect_lines() -> list[str]:
        async with _open_application(settings) as application:
            return await work(application.services)

    for line in _run(collect_lines()):
        click.echo(line)


@main.command()
@click.argument("run", type=Word())
@click.option("--app", type=Word(), help="The app that the run must belong to.")
@click.option("--agent", is_flag=True, help="Use the graph that the agent has now, instead of the run's own.")
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
def replay(run: str, app: str | None, data: Path | None, *, agent: bool) -> None:
    """Replay the ended run RUN with the answers that its tools and models gave then, and compare.

    No tool or model is called, and nothing is written. Prints the events of the run: `-` before an event that is
    missing this time, `+` before a new one. The exit status is 1 if there is any difference.
    """
    from baobab.replay_command import replay as replay_run

    settings = _load_installed_settings(data)

    async def work() -> tuple[list[str], bool]:
        async with _open_application(settings, every_region=True) as application:
            return await replay_run(application.services, run, app, present=agent)

    lines, same = _run(work())
    for line in lines:
        click.echo(line)
    if not same:
        raise SystemExit(1)


@main.command()
@click.argument("folder", type=Path)
@click.option("--data", type=Path, help="Folder that holds everything [BAOBAB_DATA, data].")
@click.option("--without-secret-key", is_flag=True, help="Leave secret.key out. Keep it somewhere else.")
def backup(folder: Path, data: Path | None, *, without_secret_key: bool) -> None:
    """Copy the data folder into FOLDER, which is new or empty, while servers use it.

    All databases are copied as of one moment. FOLDER also holds the key that secrets are sealed with, so it is as
    secret as the data folder. If the rows are in Postgres, use pg_dump: see docs/scaling.md.
    """
    from baobab import backup as backup_source
    from baobab.storage.backup.backup import back_up

    settings = _load_settings(data=data)
    with_secret_key = not without_secret_key
    manifest = _translate_errors(
        lambda: back_up(backup_source.data_source(settings), folder, __version__, secret_key=with_secret_key)
    )
    click.echo(f"Backed up {len(manifest.files)} files, {manifest.bytes} bytes.")
    for sentence in backup_source.list_left_out(settings, secret_key=manifest.secret_key):
        click.echo(sentence, err=True)


@main.command()
@click.argument("folder", type=Path)
@click.option("--data", type=Path, help="New or empty folder to restore to [BAOBAB_DATA, data].")
def restore(folder: Path, data: Path | None) -> None:
    """Restore a backup from FOLDER as the data folder, after checking that the backup is complete and unchanged."""
    from baobab.storage.backup.restore import restore as put_back

    settings = _load_settings(data=data)
    manifest = _translate_errors(lambda: put_back(folder, settings.data))
    click.echo(
        f"Restored {len(manifest.files)} files, {manifest.bytes} bytes, of {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC."
    )
    if not manifest.secret_key:
        click.echo(
            "The backup did not hold the key that secrets are sealed with: put secret.key into the folder.",
            err=True,
        )


def _load_settings(**given: Any) -> Settings:
    try:
        return load_settings(**given)
    except SettingsError as exc:
        raise CommandError(str(exc)) from exc


def _load_installed_settings(data: Path | None) -> Settings:
    """Loads the settings of an existing installation. Raises CommandError if there is none, instead of creating one."""
    from baobab.storage.backup.errors import NoDataFolder
    from baobab.storage.databases import SQLITE

    settings = _load_settings(data=data)
    rows = Path(settings.rows_url.removeprefix(SQLITE))
    if settings.rows_url.startswith(SQLITE) and not rows.is_file():
        raise CommandError(str(NoDataFolder(rows)))
    return settings


def _build_registry() -> Any:
    from baobab.tools import toolsets
    from baobab.tools.core.registry import Registry

    return Registry(toolsets())


def _describe_tool(tool: Any) -> dict[str, Any]:
    from baobab.tools.core.errors import name_operations, name_operations_within

    return {
        "name": tool.name,
        "toolset": tool.toolset.name,
        "effect": tool.effect,
        "description": name_operations(tool.description),
        "route": f"{tool.rest.method} {tool.rest.path}" if tool.rest else None,
        "access": tool.access.description,
        "input_schema": name_operations_within(tool.input_schema),
        "output_schema": name_operations_within(tool.output_schema),
    }


@contextlib.asynccontextmanager
async def _open_application(
    settings: Settings, *, jobs: int = 0, environment: Mapping[str, str] | None = None, every_region: bool = False
) -> AsyncIterator[Any]:
    """Opens the application without model servers. jobs: how many durable jobs it runs at once; 0 for a short
    command. every_region: whether a further region that does not answer is an error.
    """
    from baobab.composition import open_application

    quiet = settings.model_copy(update={"jobs": jobs, "ai_probe": False})
    async with open_application(quiet, environment=environment, every_region=every_region) as application:
        yield application


async def _call_as_first_account(settings: Settings, tool: str, **arguments: Any) -> Any:
    """Calls a tool as the first account: on the command line, access to the data folder is the credential."""
    from baobab.tools.accounts.first_account import first_account
    from baobab.tools.core.context import RequestContext

    async with _open_application(settings) as application:
        caller = await first_account(application.services)
        context = RequestContext("cli", f"cli_{application.services.ids.hex(12)}")
        return await application.registry.call(tool, arguments, caller, context)


def _run(work: Coroutine[Any, Any, T]) -> T:
    return _translate_errors(lambda: asyncio.run(work))


def _translate_errors(work: Callable[[], T]) -> T:
    """Calls `work` and turns errors that an operator can fix into a CommandError of one line."""
    from baobab.region_stores import RegionUnavailable
    from baobab.storage.backup.errors import BackupError
    from baobab.storage.database import DatabaseUnavailable
    from baobab.storage.identity import StoreLost
    from baobab.storage.kv.errors import StoreUnavailable
    from baobab.storage.migrate import SchemaTooNew
    from baobab.storage.secrets import SecretUnreadable
    from baobab.storage.transfer.errors import TransferRefused
    from baobab.tools.core.errors import BaobabError

    try:
        return work()
    except BaobabError as exc:
        raise CommandError(f"{exc.message} {exc.remedy}") from exc
    except (
        BackupError,
        RegionUnavailable,
        SchemaTooNew,
        SecretUnreadable,
        SettingsError,
        StoreLost,
        TransferRefused,
    ) as exc:
        raise CommandError(str(exc)) from exc
    except DatabaseUnavailable as exc:
        raise CommandError(f"the database does not open: {exc.reason}") from exc
    except StoreUnavailable as exc:
        raise CommandError(f"the key-value store does not open: {exc}") from exc
    except (FileExistsError, NotADirectoryError) as exc:
        raise CommandError(
            f"{exc.filename}: a file is where a folder is needed. Move it, or choose a folder with --data."
        ) from exc
    except IsADirectoryError as exc:
        raise CommandError(f"{exc.filename}: a folder is where a file is needed. Move it away.") from exc
    except OSError as exc:
        raise CommandError(f"{exc.strerror or exc}: {exc.filename or ''}".rstrip(": ")) from exc
