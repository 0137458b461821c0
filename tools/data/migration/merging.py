"""Merges a part of a schema into the whole: what the part does not name stays as it is, and null removes what holds no
data.
"""

from collections.abc import Mapping
from typing import Any

from baobab.tools.data.errors import InvalidSchema
from baobab.tools.data.migration.renaming import find_renames, follow_texts, rename_catalogue
from baobab.tools.data.schema.catalogue import Catalogue
from baobab.tools.data.schema.document import render_document

_PARTS = ("indexes", "checks")
"""The parts of a table that hold no data, so that null removes one of them."""


def merge_document(parser: Any, current: Catalogue, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the whole schema document that a part of one asks for. Raises InvalidSchema.

    What is not built like a schema is passed on as it is, for the errors of `read_document`.
    """
    tables = document.get("tables", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        _require_no_null(tables, "tables", "`_drop`")
        return document
    renamed_tables = _as_names(document.get("_renameTables", {}))
    renamed_columns = {name: _as_names(table.get("_renameColumns", {})) for name, table in tables.items()}
    renames = find_renames(current, renamed_tables, {name: each for name, each in renamed_columns.items() if each})
    if renames:
        current = rename_catalogue(parser, current, renames, keeps_views=True)
        current = follow_texts(parser, current, renames)
    whole = render_document(current)
    dropped_names = document.get("_drop", [])
    gone_names = {name for name in dropped_names if isinstance(name, str)} if isinstance(dropped_names, list) else set()
    gone_names |= {name for name, table in tables.items() if table.get("_drop") is True}
    all_tables: dict[str, Any] = {name: table for name, table in whole["tables"].items() if name not in gone_names}
    for name, part in tables.items():
        all_tables[name] = part if name in gone_names else _merge_table(name, all_tables.get(name, {}), part)
    whole_document = {**document, "tables": all_tables}
    if isinstance(document.get("views"), dict):
        whole_document["views"] = _merge(whole.get("views", {}), document["views"])
    return whole_document


def _merge_table(name: str, whole: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    whole_table = {**whole, **part}
    columns = part.get("columns", {})
    dropped_columns = part.get("_dropColumns", [])
    gone_columns = set(dropped_columns) if _is_list_of_names(dropped_columns) else set()
    if isinstance(columns, dict):
        _require_no_null(columns, f"{name}.columns", f"`_dropColumns` of `{name}`")
        present_columns = {key: each for key, each in whole.get("columns", {}).items() if key not in gone_columns}
        present_columns |= {key: _merge_column(present_columns.get(key, {}), each) for key, each in columns.items()}
        whole_table["columns"] = present_columns
    for word in _PARTS:
        if isinstance(part.get(word, {}), dict) and (word in whole or word in part):
            whole_table[word] = _merge(whole.get(word, {}), part.get(word, {}))
    named_indexes = part.get("indexes") or {}
    if gone_columns and isinstance(whole_table.get("indexes"), dict):
        # An index goes with its column, as in Postgres.
        whole_table["indexes"] = {
            key: index
            for key, index in whole_table["indexes"].items()
            if key in named_indexes or not gone_columns.intersection(index["columns"])
        }
    return whole_table


def _merge_column(whole: Mapping[str, Any], part: Any) -> Any:
    if isinstance(part, str):
        part = {"type": part}
    if not isinstance(part, dict):
        return part
    if "primary" in part and "primaryKey" not in part:
        part = {**part, "primaryKey": part["primary"]}
    return {name: value for name, value in {**whole, **part}.items() if value is not None and name != "primary"}


def _merge(whole: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**whole, **part}.items() if value is not None}


def _require_no_null(parts: Any, place: str, word: str) -> None:
    if isinstance(parts, dict) and (nulls := [name for name, value in parts.items() if value is None]):
        raise InvalidSchema(
            f"`{place}.{nulls[0][:63]}` is null, which drops nothing that holds data.",
            remediation=f"Leave it out to keep it. To drop it with its data, name it in {word}.",
        )


def _as_names(renames: Any) -> dict[str, str]:
    """Returns `{"old": "new"}`; empty for anything else, which `read_document` refuses."""
    is_valid = isinstance(renames, dict) and all(isinstance(name, str) for name in renames.values())
    return dict(renames) if is_valid else {}


def _is_list_of_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
