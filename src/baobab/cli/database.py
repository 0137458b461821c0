"""`baobab migrate`, `forget-store` and `transfer`: the stores of an installation, and where they are."""

from pathlib import Path

import click

from baobab.addresses import KvPlace
from baobab.cli.errors import CommandError, run_work
from baobab.cli.installation import data_option, load_installed_settings


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be applied and what waits, and change nothing.")
@data_option
def migrate(data: Path | None, *, dry_run: bool) -> None:
    """Update the database to the schema of this version.

    `baobab serve` does this by itself. Run this command first if you want to see what it applies, and whether the calls
    and runs that wait for a person can go on afterwards.
    """
    from baobab.cli.work.migration import migrate_database

    run_work(migrate_database(data, dry_run=dry_run, print_line=click.echo))


@click.command("forget-store")
@click.argument("store")
@data_option
def forget_store(store: str, data: Path | None) -> None:
    """Accept that the data of a store is lost, and start again with an empty one.

    Example: `baobab forget-store kv:local`

    STORE is the name in the error at the start, such as `kv:local` or `objects:local`. If you have a backup, restore it
    instead.
    """
    from baobab.storage.identity import forget_store as forget
    from baobab.storage.sql.databases import database_at

    async def work() -> bool:
        database = database_at(load_installed_settings(data).rows_url)
        await database.open()
        try:
            return await forget(database, store)
        finally:
            await database.close()

    if not run_work(work()):
        raise CommandError(f"there is no store {store}; use the name in the error at the start")
    click.echo(f"The next start creates an empty {store}.")


@click.command()
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
    """Move an installation between files and Postgres, or only its key-value store.

    Example: `baobab transfer --to postgresql://baobab@db.example/baobab`

    --to postgresql://... copies the rows and the keys to Postgres and, with --objects, the files to S3. --to FOLDER
    copies everything into a new folder.

    Stop the servers and workers first; none can start while this runs. Nothing in the source changes, but for a note in
    its folder that it was copied. The target must be empty, and cannot be used until everything has been copied and
    compared. If the command is interrupted, run it again: it continues. A password can come from PGPASSWORD or
    ~/.pgpass.

    --kv without --to moves only the key-value stores: of each region with a Valkey, into Valkey or into the region's
    database. Afterwards the old copy is deleted.
    """
    from baobab.cli.work.kv_transfer import transfer_kv
    from baobab.cli.work.transfer import target_settings
    from baobab.cli.work.transfer import transfer as carry

    if to is None and (kv is None or valkey or objects):
        raise click.UsageError("Give --to, or --kv alone.")

    async def work() -> None:
        source = load_installed_settings(data)
        if to is not None:
            target = target_settings(source, to, kv=kv or "database", valkey_url=valkey, objects_url=objects)
            await carry(source, target, dry_run=dry_run, print_line=click.echo)
        elif kv is not None:
            await transfer_kv(source, kv, dry_run=dry_run, print_line=click.echo)

    run_work(work())
