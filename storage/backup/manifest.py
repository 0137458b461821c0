"""The manifest: what a backup holds. It is written last, so that a folder with a manifest is complete."""

import os
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from baobab.storage.backup.errors import NoBackup

NAME = "manifest.json"


def _check_file_name(name: str) -> str:
    """Refuses names that lead out of the target folder, since a manifest may come from anywhere."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or {".", ".."} & set(name.split("/")) or "\0" in name:
        raise ValueError("is not a path within the backup")
    return name


FileName = Annotated[str, AfterValidator(_check_file_name)]


class File(BaseModel):
    """One file. `rows` maps tables to numbers of rows, for databases only."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: int
    sha256: str
    rows: dict[str, int] | None = None


class Manifest(BaseModel):
    """`files` is by path relative to the folder, with `/` as the separator."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1] = 1
    version: str
    schema_revision: str
    made_at: datetime
    secret_key: bool
    files: dict[FileName, File]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def write(self, folder: Path) -> None:
        """Writes the manifest into a folder, durably and atomically."""
        fresh = folder / f"{NAME}.new"
        with fresh.open("w") as file:
            file.write(self.model_dump_json(indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / NAME)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        try:
            return cls.model_validate_json((folder / NAME).read_bytes())
        except FileNotFoundError as exc:
            raise NoBackup(folder, f"there is no {NAME}") from exc
        except ValidationError as exc:
            fault = exc.errors(include_url=False)[0]
            where = ".".join(str(part) for part in fault["loc"])
            raise NoBackup(folder, f"{NAME}: {where} {fault['msg'][0].lower()}{fault['msg'][1:]}") from exc
