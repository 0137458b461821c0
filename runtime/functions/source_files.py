"""How functions lie in a folder: `NAME.ts`, `NAME.js` or `NAME.py`, and perhaps `NAME.json` with settings beside it."""

import json
import re
from pathlib import Path
from typing import Any

from baobab.runtime.functions.program import Language

DECLARATIONS = Path(__file__).parent / "ctx.d.ts"
"""The types of `ctx`, for editors."""
_LANGUAGES: dict[str, Language] = {"ts": "typescript", "js": "typescript", "mjs": "typescript", "py": "python"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_NO_SOURCES = (".d", ".test", ".spec")
_OF_THE_FILE = ("name", "code", "language", "app_id", "envVars", "envVarsReplace")


class FileRefused(Exception):
    """A file is no function, or its settings are none. The text says why, and what to do, without the file's name."""


def is_source(file_name: str) -> bool:
    """Returns whether a file is taken for a function: no declaration or test, and no name in `_` or `.`."""
    stem, dot, ending = file_name.rpartition(".")
    is_code = bool(dot) and ending in _LANGUAGES
    return is_code and not stem.startswith(("_", ".")) and not stem.endswith(_NO_SOURCES)


def read_file_name(file_name: str) -> tuple[str, Language]:
    """Returns the name and the language of the function that a file is. Raises FileRefused."""
    stem, _, ending = file_name.rpartition(".")
    if ending not in _LANGUAGES:
        raise FileRefused("It is no source of a function. Name it NAME.ts, NAME.js or NAME.py.")
    if not _NAME.fullmatch(stem):
        raise FileRefused(
            "A function's name has up to 100 letters, digits, `-` and `_`, and begins with no sign. Rename it."
        )
    return stem, _LANGUAGES[ending]


def find_settings_name(file_name: str) -> str:
    """Returns the name of the file that has the settings of a source."""
    return f"{file_name.rpartition('.')[0]}.json"


def read_settings(text: str) -> dict[str, Any]:
    """Returns what the deployment of a function takes beside its name, code and variables. Raises FileRefused."""
    try:
        settings = json.loads(text)
    except ValueError as exc:
        raise FileRefused(f"It is no JSON: {exc}.") from exc
    if not isinstance(settings, dict):
        raise FileRefused('It has to be an object, such as {"timeoutMs": 10000}.')
    for name in _OF_THE_FILE:
        if name in settings:
            way = "Set variables with `baobab functions env set`." if name.startswith("env") else "Leave it out."
            raise FileRefused(f"It must not have `{name}`. {way}")
    return settings
