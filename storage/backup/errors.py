"""What keeps a backup from being made or put back, each in one line for an operator."""

from pathlib import Path


class BackupError(Exception):
    """The text says what is wrong and what to do; nothing has been changed but what the command made itself."""


class NotEmpty(BackupError):
    def __init__(self, folder: object) -> None:
        super().__init__(f"{folder} is not an empty folder; name one that is new or empty")


class NoDataFolder(BackupError):
    """A command that works on an installation was started where there is none."""

    def __init__(self, rows: Path) -> None:
        found = "is not the database of a Baobab" if rows.exists() else "is not there"
        super().__init__(
            f"{rows.absolute()} {found}: a data folder holds one. Run the command where the server is started, or name"
            " its data folder with --data or BAOBAB_DATA. `baobab init` makes a new one"
        )


class WithinItself(BackupError):
    def __init__(self, folder: object, data: object) -> None:
        super().__init__(f"{folder} lies in {data}, which is what is to be copied; name a folder elsewhere")


class StoreBusy(BackupError):
    def __init__(self, file: object, reason: object) -> None:
        super().__init__(f"{file} cannot be read: {reason}")


class NoBackup(BackupError):
    def __init__(self, folder: object, reason: str) -> None:
        super().__init__(f"{folder} holds no whole backup: {reason}")


class BackupDamaged(BackupError):
    def __init__(self, file: object) -> None:
        super().__init__(f"{file} is not what was backed up; take another backup")


class BackupTooNew(BackupError):
    def __init__(self, version: str) -> None:
        super().__init__(
            f"the backup was made by Baobab {version}, whose schema this version does not know; install it"
        )
