"""Which paths of files a deployment may have: each names one page, the same on every machine."""

import re
from collections.abc import Iterable
from unicodedata import normalize

from baobab.tools.sites.errors import SiteInvalid

API_PATHS = frozenset(("data", "fn", "auth", "storage", "schema", "migrations", "_do", "v1", "mcp", "health"))
"""First segments of paths that belong to the API on every host of an app. Files below them are not reached."""
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\\:*?\"<>|\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MOST_BYTES, _MOST_SEGMENT_BYTES = 400, 255
_CLUTTER = frozenset(("__macosx", "thumbs.db", "desktop.ini"))
RULE_FILES = frozenset(("_headers", "_redirects"))


def check_path(path: str) -> str:
    """Returns the path in the one spelling in which it is stored. Raises SiteInvalid."""
    path_text = path[:120]
    normal = normalize("NFC", path)
    if _FORBIDDEN.search(normal):
        raise SiteInvalid(f"The path {path_text!r} has a character that an address cannot have.")
    segments = normal.split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        raise SiteInvalid(f"The path {path_text!r} is not relative, or has an empty segment, `.` or `..`.")
    if any(segment != segment.strip() or segment.endswith(".") for segment in segments):
        raise SiteInvalid(f"The path {path_text!r} has a segment that begins or ends with a space, or ends with a dot.")
    if len(normal.encode()) > _MOST_BYTES or any(len(part.encode()) > _MOST_SEGMENT_BYTES for part in segments):
        raise SiteInvalid(f"The path {path_text!r} is longer than {_MOST_BYTES} bytes.")
    return normal


def is_clutter(path: str) -> bool:
    """Returns whether a path is what systems and editors leave behind, or hidden: `.env` must not become a page."""
    segments = path.split("/")
    return any(
        segment.lower() in _CLUTTER or (segment.startswith(".") and segment != ".well-known") for segment in segments
    )


def require_distinct(paths: Iterable[str]) -> None:
    """Raises SiteInvalid if two paths differ only in case, or one is a folder of another."""
    by_fold: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        fold = path.casefold()
        if fold in by_fold:
            raise SiteInvalid(
                f"The paths {by_fold[fold][:120]!r} and {path[:120]!r} differ only in case, or are equal."
            )
        by_fold[fold] = path
        parts = fold.split("/")
        for end in range(1, len(parts)):
            folders.setdefault("/".join(parts[:end]), path)
    for fold, path in by_fold.items():
        if fold in folders:
            raise SiteInvalid(f"{path[:120]!r} is a file, and also a folder of {folders[fold][:120]!r}.")


def warn_of(paths: Iterable[str]) -> list[str]:
    """Returns what whoever deploys these paths should know."""
    known_paths = set(paths)
    warnings = []
    if "index.html" not in known_paths:
        warnings.append("There is no `index.html`: the address of the site itself answers 404.")
    api_names = sorted({path.split("/")[0] for path in known_paths} & API_PATHS)
    if api_names:
        names = ", ".join(f"`/{name}`" for name in api_names)
        warnings.append(f"Files below {names} are not reached: these paths belong to the API on every host of an app.")
    return warnings
