"""What `baobab backup` takes from the settings: where the data is, and what of it is not in files."""

from collections.abc import Iterator
from pathlib import Path

from baobab.settings import Settings
from baobab.storage.backup.backup import Source
from baobab.storage.backup.errors import BackupError
from baobab.storage.databases import POSTGRES, SQLITE


class NotOnFiles(BackupError):
    def __init__(self) -> None:
        super().__init__("the rows are in Postgres, which pg_dump backs up: see docs/scaling.md")


def data_source(settings: Settings) -> Source:
    if settings.rows_url.startswith(POSTGRES):
        raise NotOnFiles
    return Source(settings.data, Path(settings.rows_url.removeprefix(SQLITE)))


def list_left_out(settings: Settings, *, secret_key: bool) -> Iterator[str]:
    """What a backup does not hold, a sentence each."""
    if not secret_key:
        yield "The key that secrets are sealed with is not in it: without it they cannot be read."
    if settings.valkey_url and settings.kv_durable == "valkey":
        yield "The key-value store is in Valkey: it is not in it."
    if settings.regions:
        yield f"Regions of {settings.regions} have stores of their own: what those hold elsewhere is not in it."
    if settings.objects_url:
        yield f"Files are kept in {settings.objects_url}: they are not in it."
