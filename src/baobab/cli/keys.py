"""`baobab keys`: API keys, and the keys that encrypt secrets."""

from pathlib import Path
from typing import Any

import click

from baobab.cli.errors import run_work
from baobab.cli.installation import data_option, load_installed_settings, open_application
from baobab.settings import Settings


@click.group()
def keys() -> None:
    """Manage the first account's API keys, and the keys that encrypt secrets.

    These commands work on the data folder itself: whoever can read it needs no credential. You can use them while the
    server runs; it notices a change within a second.
    """


@keys.command("create")
@click.argument("name")
@data_option
def keys_create(name: str, data: Path | None) -> None:
    """Create an API key called NAME with every right of the first account, and print it. It is not shown again.

    Example: `baobab keys create laptop`
    """
    click.echo(run_work(_call_as_first_account(load_installed_settings(data), "api_keys_create", name=name))["key"])


@keys.command("list")
@data_option
def keys_list(data: Path | None) -> None:
    """List the live API keys of the first account's organisation: id, first letters, scopes, last use and name."""
    for key in run_work(_call_as_first_account(load_installed_settings(data), "api_keys_list"))["keys"]:
        last_use = key["last_used_at"].isoformat(timespec="seconds") if key["last_used_at"] else "never used"
        click.echo(f"{key['id']}  {key['prefix']}...  {','.join(key['scopes']):24} {last_use:26} {key['name']}")


@keys.command("revoke")
@click.argument("key_id")
@click.option("--keep-made", is_flag=True, help="Do not revoke the keys that were created with it.")
@data_option
def keys_revoke(key_id: str, data: Path | None, *, keep_made: bool) -> None:
    """Revoke the API key with the id KEY_ID, and the keys that were created with it.

    `baobab keys list` shows the ids. The keys stop working within a second, on every worker.
    """
    settings = load_installed_settings(data)
    revoked_count = run_work(_call_as_first_account(settings, "api_keys_revoke", key_id=key_id, keep_made=keep_made))[
        "keys_revoked"
    ]
    click.echo(
        "Revoked." if revoked_count == 1 else f"Revoked, with {revoked_count - 1} keys that were created with it."
    )


@keys.command("rotate-secret")
@data_option
def keys_rotate_secret(data: Path | None) -> None:
    """Create a new key for secrets, and encrypt every secret again with it.

    The old key stays in DATA/secret.key behind the new one, so that backups can still be read. Running servers keep
    using the old key; restart them when this has finished. If BAOBAB_SECRET_KEY is set, put a new key in front of that
    list first; this command then only encrypts again.
    """
    from baobab.storage.rotation import reseal, rotate_key

    settings = load_installed_settings(data)

    async def work() -> int:
        if not settings.secret_key:
            rotate_key(settings.secret_file)
        async with open_application(settings, every_region=True) as application:
            databases = {stores.database for stores in application.services.regions.values()}
            return sum([await reseal(database, application.services.vault) for database in databases])

    click.echo(f"Encrypted {run_work(work())} secrets with the new key.")


async def _call_as_first_account(settings: Settings, tool: str, **arguments: Any) -> Any:
    """Calls a tool as the first account: on the command line, access to the data folder is the credential."""
    from baobab.tools.accounts.first_account import first_account
    from baobab.tools.core.context import RequestContext

    async with open_application(settings) as application:
        caller = await first_account(application.services)
        context = RequestContext("cli", f"cli_{application.services.ids.hex(12)}")
        return await application.registry.call(tool, arguments, caller, context)
