"""The file of further regions: TOML, with one table per region that holds the addresses of its stores.

[eu-west-1]
database_url = "postgresql://baobab:PASSWORD@db.eu-west-1.example.com/baobab"
valkey_url = "redis://valkey.eu-west-1.example.com:6379/0"
objects_url = "s3://baobab-eu-west-1"
"""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from baobab.addresses import DatabaseUrl, KvPlace, NoticesUrl, ObjectsUrl, RegionName, ValkeyUrl


class Region(BaseModel):
    """Where one region stores the data of its apps. Each field means what the setting of the same name means."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    database_url: DatabaseUrl = ""
    notices_url: NoticesUrl = ""
    valkey_url: ValkeyUrl = ""
    kv: KvPlace = "database"
    objects_url: ObjectsUrl = ""
    geography: RegionName | Literal[""] = ""
    max_apps: Annotated[int, Field(ge=0)] = 0


_File = TypeAdapter(dict[RegionName, Region])


def read_regions(path: Path) -> dict[str, Region]:
    """Reads the regions of a file, in its order. Raises ValueError with one line that says what is wrong with it."""
    try:
        return _File.validate_python(tomllib.loads(path.read_text()))
    except OSError as exc:
        raise ValueError(f"cannot read {path}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ValueError(f"{path} is not valid TOML: {exc}") from exc
    except ValidationError as exc:
        fault = exc.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"] if part != "[key]")
        # The value is left out: it may hold a password.
        message = str(fault["msg"]).removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = f"there is no such field; the fields are {', '.join(Region.model_fields)}"
        raise ValueError(f"{path}: {where}: {message}") from exc
