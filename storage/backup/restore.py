"""Restores a backup as a data folder."""

import shutil
from pathlib import Path

from baobab.storage.backup.errors import BackupDamaged, BackupTooNew
from baobab.storage.backup.manifest import Manifest
from baobab.storage.backup.tree import copy_file, make_empty, remove_empty, sync_folders
from baobab.storage.copies import NOTE, remove_note, write_note
from baobab.storage.sql.migrate import list_revisions

_STAGE = ".restoring"


def restore(backup: Path, data: Path) -> Manifest:
    """Copies a backup into a data folder that is new or empty. Raises BackupError, OSError.

    All files are copied and compared before any is moved into place. The folder may be a mount, which cannot be
    replaced as a whole; an interrupted restore therefore leaves a folder that is not empty and is refused the next
    time.

    What is restored is a copy, which sends and starts nothing until somebody says that it is the one that lives.
    """
    manifest = Manifest.read(backup)
    if manifest.schema_revision not in list_revisions():
        raise BackupTooNew(manifest.version)
    new_folders = make_empty(data)
    stage = data / _STAGE
    stage.mkdir(mode=0o700)
    try:
        _fill(stage, backup, manifest)
        # Before anything is moved into place: a folder that a server can start on says that it is a copy.
        write_note(data, f"it was restored from a backup of {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC")
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        remove_note(data)
        remove_empty(new_folders)
        raise
    for path in sorted(stage.iterdir()):
        if path.name != NOTE:
            path.rename(data / path.name)
    shutil.rmtree(stage)
    sync_folders(data)
    return manifest


def _fill(stage: Path, backup: Path, manifest: Manifest) -> None:
    for name, file in manifest.files.items():
        try:
            copied_file = copy_file(backup / name, stage / name)
        except FileNotFoundError as exc:
            raise BackupDamaged(backup / name) from exc
        if copied_file != (file.bytes, file.sha256):
            raise BackupDamaged(backup / name)
    sync_folders(stage)
