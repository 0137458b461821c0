"""Functions as files: `NAME.ts`, and perhaps `NAME.json` beside it with what `POST /functions` takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baobab.cli.client.errors import ClientError
from baobab.runtime.functions.source_files import (
    FileRefused,
    find_settings_name,
    is_source,
    read_file_name,
    read_settings,
)

_MOST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class FunctionFile:
    """One function as it lies in a folder. settings: the fields of its JSON file."""

    path: Path
    name: str
    code: str
    language: str
    settings: dict[str, Any]

    def build_deployment(self, message: str | None = None) -> dict[str, Any]:
        """Returns the body that deploys it."""
        body = {**self.settings, "name": self.name, "code": self.code, "language": self.language}
        return body if message is None else {**body, "message": message}


def list_sources(folder: Path) -> list[Path]:
    """Returns the sources in a folder, not below it."""
    return sorted(path for path in folder.iterdir() if path.is_file() and is_source(path.name))


def read_functions(path: Path) -> list[FunctionFile]:
    """Reads the functions of a file or of a folder. Raises ClientError."""
    if not path.exists():
        raise ClientError(f"{path} does not exist.")
    sources = list_sources(path) if path.is_dir() else [path]
    if not sources:
        raise ClientError(f"{path} has no functions: files named NAME.ts, NAME.js or NAME.py, with nothing below it.")
    functions = [read_function(source) for source in sources]
    by_name: dict[str, FunctionFile] = {}
    for function in functions:
        other = by_name.setdefault(function.name.lower(), function)
        if other is not function:
            raise ClientError(f"{other.path} and {function.path} are the same function. Rename one of them.")
    return functions


def read_function(path: Path) -> FunctionFile:
    """Reads one function. Raises ClientError."""
    settings_file = path.with_name(find_settings_name(path.name))
    try:
        name, language = read_file_name(path.name)
        content = path.read_bytes()
        code = content.decode("utf-8-sig")
    except FileRefused as exc:
        raise ClientError(f"{path}: {exc}") from exc
    except OSError as exc:
        raise ClientError(f"{path} cannot be read: {exc.strerror}.") from exc
    except UnicodeDecodeError as exc:
        raise ClientError(f"{path} is not in UTF-8.") from exc
    if len(content) > _MOST_BYTES:
        raise ClientError(f"{path} has {len(content)} bytes; a function has at most {_MOST_BYTES}.")
    return FunctionFile(path, name, code, language, _read_settings(settings_file))


def _read_settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        return read_settings(file.read_text())
    except (FileRefused, UnicodeDecodeError) as exc:
        raise ClientError(f"{file}: {exc}") from exc
    except OSError as exc:
        raise ClientError(f"{file} cannot be read: {exc.strerror}.") from exc
