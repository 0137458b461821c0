"""The names of files in queries: how they begin, which folders they form, and their order."""

from typing import Any

from sqlalchemy import ColumnElement, collate, func

from baobab.tools.files.tables import files_table

_filename = files_table.c.filename


def has_prefix(prefix: str | None) -> list[ColumnElement[bool]]:
    """Returns the condition for names that begin so, upper and lower case apart; none for None."""
    return [] if prefix is None else [func.substr(_filename, 1, len(prefix)) == prefix]


def is_direct(dialect: str, prefix: str | None) -> ColumnElement[bool]:
    """Returns the condition for names without a further slash behind the prefix."""
    return _find_slash(dialect, _take_rest(prefix or "")) == 0


def split_folder(dialect: str, prefix: str) -> ColumnElement[str]:
    """Returns what stands between the prefix and the next slash; empty for names without one."""
    rest = _take_rest(prefix)
    return func.substr(rest, 1, func.coalesce(func.nullif(_find_slash(dialect, rest), 0), 1) - 1)


def name_order(dialect: str) -> Any:
    """Returns the name by which files are sorted: by code point, in both databases."""
    return _filename if dialect == "sqlite" else collate(_filename, "C")


def _take_rest(prefix: str) -> ColumnElement[str]:
    return func.substr(_filename, len(prefix) + 1)


def _find_slash(dialect: str, text: ColumnElement[str]) -> ColumnElement[int]:
    """Returns the position of the first slash, from 1; 0 if there is none."""
    return func.instr(text, "/") if dialect == "sqlite" else func.strpos(text, "/")
