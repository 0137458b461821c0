"""Errors of backup and restore, each one line for an operator."""

from pathlib import Path


class BackupError(Exception):
    """The message says what is wrong and what to do. Only what the command itself created has changed."""


class NotEmpty(BackupError):
    def __init__(self, folder: object) -> None:
        super().__init__(f"{folder} is not an empty folder; name one that is new or empty")


class NoDataFolder(BackupError):
    """There is no installation where a command for one was started."""

    def __init__(self, rows: Path) -> None:
        problem = "is not a Baobab database" if rows.exists() else "does not exist"
        super().__init__(
            f"{rows.absolute()} {problem}: a data folder holds one. Run the command where the server is started, or "
            "name its data folder with --data or BAOBAB_DATA. `baobab init` creates a new one"
        )


class WithinItself(BackupError):
    def __init__(self, folder: object, data: object) -> None:
        super().__init__(f"{folder} is inside {data}, the folder to copy; name a folder elsewhere")


class StoreBusy(BackupError):
    def __init__(self, file: object, reason: object) -> None:
        super().__init__(f"{file} cannot be read: {reason}")


class NoBackup(BackupError):
    def __init__(self, folder: object, reason: str) -> None:
        super().__init__(f"{folder} does not hold a complete backup: {reason}")


class BackupDamaged(BackupError):
    def __init__(self, file: object) -> None:
        super().__init__(f"{file} differs from what was backed up; use another backup")


class BackupTooNew(BackupError):
    def __init__(self, version: str) -> None:
        super().__init__(
            f"the backup was made by Baobab {version}, whose schema this version does not know; install that version"
        )
