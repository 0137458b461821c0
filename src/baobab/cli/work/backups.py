"""Reads from the settings where the data is, and which of it a backup leaves out, for `baobab backup`."""

from collections.abc import Iterator
from pathlib import Path

from baobab.settings import Settings
from baobab.storage.backup.backup import Source
from baobab.storage.backup.errors import BackupError
from baobab.storage.sql.databases import POSTGRES, SQLITE


class NotOnFiles(BackupError):
    def __init__(self) -> None:
        super().__init__("the rows are in Postgres, which pg_dump backs up: see docs/scaling.md")


def data_source(settings: Settings) -> Source:
    if settings.rows_url.startswith(POSTGRES):
        raise NotOnFiles
    return Source(settings.data, Path(settings.rows_url.removeprefix(SQLITE)))


def list_left_out(settings: Settings, *, secret_key: bool) -> Iterator[str]:
    """Yields a sentence for each thing that a backup does not hold."""
    if not secret_key:
        yield "The backup does not hold the key that encrypts secrets. Without it, they cannot be read."
    if settings.kv == "valkey":
        yield "The backup does not hold the key-value store, which is in Valkey."
    if settings.regions:
        yield f"The backup does not hold the data of the regions in {settings.regions}, which have stores of their own."
    if settings.objects_url:
        yield f"The backup does not hold the files, which are in {settings.objects_url}."
