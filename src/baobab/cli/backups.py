"""`baobab backup` and `baobab restore`."""

from pathlib import Path

import click

from baobab import __version__
from baobab.cli.errors import translate_errors
from baobab.cli.installation import data_option, load_settings


@click.command()
@click.argument("folder", type=Path)
@data_option
@click.option("--without-secret-key", is_flag=True, help="Leave secret.key out. Keep it somewhere else.")
def backup(folder: Path, data: Path | None, *, without_secret_key: bool) -> None:
    """Copy the data folder into FOLDER, which is new or empty, while servers use it.

    Example: `baobab backup /backups/monday`

    All databases are copied as of one moment. FOLDER also holds the key that encrypts secrets, so it is as
    secret as the data folder. If the rows are in Postgres, use pg_dump: see docs/scaling.md.
    """
    from baobab.cli.work import backups as backup_source
    from baobab.storage.backup.backup import back_up

    settings = load_settings(data=data)
    with_secret_key = not without_secret_key
    manifest = translate_errors(
        lambda: back_up(backup_source.data_source(settings), folder, __version__, secret_key=with_secret_key)
    )
    click.echo(f"Backed up {len(manifest.files)} files, {manifest.bytes} bytes.")
    for sentence in backup_source.list_left_out(settings, secret_key=manifest.secret_key):
        click.echo(sentence, err=True)


@click.command()
@click.argument("folder", type=Path)
@click.option("--data", type=Path, help="New or empty folder to restore to [BAOBAB_DATA, data].")
def restore(folder: Path, data: Path | None) -> None:
    """Restore a backup from FOLDER as the data folder, after checking that the backup is complete and unchanged.

    Example: `baobab restore /backups/monday --data restored`
    """
    from baobab.storage.backup.restore import restore as put_back

    settings = load_settings(data=data)
    manifest = translate_errors(lambda: put_back(folder, settings.data))
    click.echo(
        f"Restored {len(manifest.files)} files, {manifest.bytes} bytes, of {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC."
    )
    if not manifest.secret_key:
        click.echo(
            "The backup did not hold the key that encrypts secrets: put secret.key into the folder.",
            err=True,
        )
