"""`baobab init`, `password` and `sign-in-link`: the first account, and how people sign in."""

from pathlib import Path

import click

from baobab.cli.errors import run_work
from baobab.cli.installation import data_option, load_installed_settings, load_settings, open_application


@click.command()
@data_option
def init(data: Path | None) -> None:
    """Create the data folder, the first account and its API key, without starting the server.

    Prints the key, which is not shown again. If there is an account already, nothing happens: create another key with
    `baobab keys create`.
    """
    from baobab.tools.accounts.first_account import ensure_first_account

    settings = load_settings(data=data)

    async def work() -> str | None:
        async with open_application(settings) as application:
            return await ensure_first_account(application.services, settings.bootstrap_key or None)

    key = run_work(work())
    click.echo(key or "There is an account already. `baobab keys create` creates another key.", err=key is None)


@click.command()
@click.argument("email", required=False)
@data_option
@click.password_option(help="The new password; the command asks for it if it is left out.")
def password(email: str | None, data: Path | None, password: str) -> None:
    """Set the password of the account [EMAIL], or of the first account, `owner@localhost`.

    Example: `baobab password ada@example.com`

    People sign in with it to decide on approvals and to connect programs. You need no old password, because the command
    works on the data folder itself. It ends every session of the account.
    """
    from baobab.tools.accounts.first_account import set_password

    settings = load_installed_settings(data)

    async def work() -> str:
        async with open_application(settings) as application:
            return await set_password(application.services, email, password)

    click.echo(f"{run_work(work())} can sign in with the new password.")


@click.command("sign-in-link")
@data_option
def sign_in_link(data: Path | None) -> None:
    """Print a link that signs the first account in to the console, once and within ten minutes."""
    from baobab.serving import render_link
    from baobab.tools.accounts.first_account import first_account
    from baobab.tools.console.sessions import LINK_LIFETIME, create_link

    settings = load_installed_settings(data)

    async def work() -> str:
        async with open_application(settings) as application:
            owner = await first_account(application.services)
            return await create_link(application.services, owner.account_id)

    click.echo(render_link(settings, run_work(work()), LINK_LIFETIME))
