"""Functions as files: `NAME.ts`, and perhaps `NAME.json` beside it with what `POST /functions` takes."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baobab.cli.client.errors import ClientError

_LANGUAGES = {".ts": "typescript", ".js": "typescript", ".mjs": "typescript", ".py": "python"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_MOST_BYTES = 2**20
_OURS = ("name", "code", "language", "envVars", "envVarsReplace")


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
    """Returns the sources in a folder, not below it, without declarations, tests, and what begins with `_` or `.`."""
    return sorted(path for path in folder.iterdir() if path.is_file() and is_source(path.name))


def is_source(name: str) -> bool:
    stem, dot, _ = name.rpartition(".")
    return (
        bool(dot)
        and f".{name.rpartition('.')[2]}" in _LANGUAGES
        and not stem.startswith(("_", "."))
        and (not stem.endswith((".d", ".test", ".spec")))
    )


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
    language = _LANGUAGES.get(path.suffix)
    if language is None:
        raise ClientError(f"{path} is no source of a function. Name it NAME.ts, NAME.js or NAME.py.")
    if not _NAME.fullmatch(path.stem):
        raise ClientError(
            f"{path}: a function's name has up to 100 letters, digits, `-` and `_`, and begins with no sign. Rename it."
        )
    try:
        content = path.read_bytes()
        code = content.decode("utf-8-sig")
    except OSError as exc:
        raise ClientError(f"{path} cannot be read: {exc.strerror}.") from exc
    except UnicodeDecodeError as exc:
        raise ClientError(f"{path} is not in UTF-8.") from exc
    if len(content) > _MOST_BYTES:
        raise ClientError(f"{path} has {len(content)} bytes; a function has at most {_MOST_BYTES}.")
    return FunctionFile(path, path.stem, code, language, _read_settings(path.with_suffix(".json")))


def _read_settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text())
    except (OSError, ValueError) as exc:
        raise ClientError(f"{file} is no JSON: {exc}.") from exc
    if not isinstance(settings, dict):
        raise ClientError(f'{file} has to be an object, such as {{"timeoutMs": 10000}}.')
    for name in _OURS:
        if name in settings:
            way = "Set variables with `baobab functions env set`." if name.startswith("env") else "Leave it out."
            raise ClientError(f"{file} must not have `{name}`. {way}")
    return settings
