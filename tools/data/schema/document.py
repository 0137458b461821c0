"""The schema document that a developer writes: reads it into a catalogue, and renders a catalogue as one."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from baobab.tools.core import BadRequest
from baobab.tools.data.actor import SERVICE
from baobab.tools.data.errors import InvalidName, InvalidSchema, ReservedTable, TableLimit, UnknownTable
from baobab.tools.data.schema.catalogue import NAME, Catalogue, Check, Column, Index, Reference, TableInfo
from baobab.tools.data.schema.defaults import evaluate
from baobab.tools.data.values.column_types import ColumnType, UnknownType, parse_type

MOST_TABLES = 50
MOST_COLUMNS = 200
_MOST_INDEXES = 50
_MOST_CHECKS = 50
_MOST_VIEWS = 50
_LONGEST_EXPRESSION = 4000
_LONGEST_DEFAULT = 1000
_LONGEST_EXPRESSIONS = 20_000
"""The most characters of all checks and generated columns of a table, which become parts of one statement."""
_LONGEST_OWN_NAME = 56
"""The most characters of the name of a check or a generated column. The name of its constraint is longer."""
_ACTIONS = ("NO ACTION", "RESTRICT", "CASCADE", "SET NULL", "SET DEFAULT")
_METHODS = ("btree", "hash", "gist", "gin", "hnsw", "ivfflat", "fts")
_OPCLASS = re.compile(r"[a-z_]{1,40}")
_TABLE_FIELDS = {"columns", "indexes", "checks", "_dropColumns", "_renameColumns", "_seed", "_drop"}
_COLUMN_FIELDS = {
    "type", "primaryKey", "primary", "nullable", "default", "onUpdate", "unique", "references", "generated", "enum"
}  # fmt: skip
_MOST_WORDS = 100
"""The most values of an enum."""
_LONGEST_WORD = 200
_INDEX_FIELDS = {"columns", "unique", "method", "opclass"}
TAKEN = frozenset({"functions", "fn", "webhook", "env", "integrations", "frontend", "people", "billing"})
"""Names that no new table or view may have, because the contract has other routes at `/v1/{app_id}/NAME`. One that has
such a name from before keeps it: every table has its rows at `/v1/{app_id}/data/NAME` too. The contract's names with a
hyphen (`edge-ssr`, `durable-objects`, `custom-domains`) are no names of tables anyway.
"""
_OF_SQLITE = "sqlite_"
_SAMPLE_MOMENT = "2000-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class Wanted:
    """The contents of a document: the tables as they should be, and what may be dropped."""

    tables: Mapping[str, TableInfo]
    dropped_tables: frozenset[str] = frozenset()
    dropped_columns: Mapping[str, frozenset[str]] = field(default_factory=dict)
    views: Mapping[str, str] | None = None
    """The queries of the views by name. None if the document names no views, so that the present ones stay."""
    renamed_tables: Mapping[str, str] = field(default_factory=dict)
    """The new names of tables by their present ones."""
    renamed_columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The new names of columns by their present ones, by the new names of their tables."""


def read_document(document: Mapping[str, Any]) -> Wanted:
    """Reads a schema document. Its errors name the table and the field."""
    unknown = set(document) - {"tables", "views", "_drop", "_renameTables"}
    if unknown:
        raise InvalidSchema(f"A schema has `tables`, `views`, `_drop` and `_renameTables`, and no `{min(unknown)}`.")
    table_documents = document.get("tables", {})
    if not isinstance(table_documents, dict):
        raise InvalidSchema("`tables` must be an object: the tables by their names.")
    dropped_names = set(_names(document.get("_drop", []), "_drop"))
    tables: dict[str, TableInfo] = {}
    columns: dict[str, frozenset[str]] = {}
    renamed_columns: dict[str, dict[str, str]] = {}
    for name, table in table_documents.items():
        _check_table_name(name, "table")
        if not isinstance(table, dict):
            raise InvalidSchema(f"`{name}` must be an object with `columns`.")
        if table.get("_drop") is True:
            dropped_names.add(name)
            continue
        tables[name] = _read_table(name, table)
        columns[name] = frozenset(_names(table.get("_dropColumns", []), f"{name}._dropColumns"))
        for column in sorted(columns[name] & tables[name].columns.keys()):
            raise InvalidSchema(f"`{name}.{column}` is both dropped and described.")
        renamed_columns[name] = _read_renames(
            table.get("_renameColumns", {}), f"{name}._renameColumns", tables[name].columns
        )
    for name in dropped_names & tables.keys():
        raise InvalidSchema(f"`{name}` is both dropped and declared.")
    if len(tables) > MOST_TABLES:
        raise TableLimit(details={"limit": MOST_TABLES, "current": len(tables)})
    check_references(tables)
    return Wanted(
        tables,
        frozenset(dropped_names),
        columns,
        _read_views(document.get("views")),
        _read_renames(document.get("_renameTables", {}), "_renameTables", tables),
        renamed_columns,
    )


def _read_renames(renames: Any, place: str, new_names: Mapping[str, Any]) -> dict[str, str]:
    """Reads `{"old": "new"}`, whose new names the document describes and whose old ones it does not."""
    if not isinstance(renames, dict) or not all(isinstance(name, str) for name in renames.values()):
        raise InvalidSchema(f'`{place}` must be an object of new names by present ones: {{"old": "new"}}.')
    for old, new in renames.items():
        if new not in new_names or old in new_names:
            raise InvalidSchema(
                f"`{place}`: the document describes `{new[:63]}` under its new name, and no `{old[:63]}`."
            )
    if len(set(renames.values())) < len(renames):
        raise InvalidSchema(f"`{place}` gives two of them one name.")
    return renames


def _check_table_name(name: str, noun: str) -> None:
    _check_name(name, f"{noun} `{name}`")
    if name.startswith("_"):
        raise ReservedTable(f"`{name}` begins with `_`.")
    if name == "data":
        raise InvalidName(f"A {noun} cannot be called `{name}`: the addresses of all tables begin with it.")


def require_free_names(new_names: Collection[str]) -> None:
    """Raises ReservedTable for a new table or view whose name another route has, or SQLite keeps for itself."""
    if kept_names := sorted(name for name in new_names if name.startswith(_OF_SQLITE)):
        raise ReservedTable(
            f"`{kept_names[0]}` begins with `{_OF_SQLITE}`, as only SQLite's own tables do.",
            remediation=f"Choose another name, such as `app_{kept_names[0]}`.",
        )
    for name in sorted(TAKEN.intersection(new_names)):
        raise ReservedTable(
            f"A new table or view cannot be called `{name}`: /v1/{{app_id}}/{name} is the address of something else. "
            f"A table that has this name already keeps it, with its rows at /v1/{{app_id}}/data/{name}.",
            remediation=f"Choose another name, such as `app_{name}`.",
        )


def _read_views(views: Any) -> dict[str, str] | None:
    if views is None:
        return None
    if not isinstance(views, dict) or len(views) > _MOST_VIEWS:
        raise InvalidSchema(f"`views` must be an object of at most {_MOST_VIEWS} queries, by the names of the views.")
    for name, text in views.items():
        _check_table_name(name, "view")
        _check_expression(text, f"views.{name}")
    return views


def render_document(catalogue: Catalogue) -> dict[str, Any]:
    answer: dict[str, Any] = {"tables": {name: render_table(table) for name, table in sorted(catalogue.tables.items())}}
    if catalogue.views:
        answer["views"] = {name: view.text for name, view in sorted(catalogue.views.items())}
    return answer


def render_table(table: TableInfo) -> dict[str, Any]:
    document: dict[str, Any] = {"columns": {column.name: _render_column(column) for column in table.columns.values()}}
    if table.indexes:
        document["indexes"] = {
            index.name: {
                "columns": list(index.columns),
                "unique": index.unique,
                "method": index.method,
                **({"opclass": index.opclass} if index.opclass else {}),
            }
            for index in table.indexes.values()
        }
    if table.checks:
        document["checks"] = {check.name: check.text for check in table.checks.values()}
    if table.seed:
        document["_seed"] = True
    return document


def order_by_reference(tables: Mapping[str, TableInfo]) -> list[TableInfo]:
    """Sorts tables so that a table comes after those that it refers to. Raises InvalidSchema if they refer to each
    other in a circle.
    """
    in_order: dict[str, TableInfo] = {}
    remaining = dict(tables)
    while remaining:
        ready = [
            table
            for table in remaining.values()
            if all(
                column.references is None
                or column.references.table == table.name
                or column.references.table not in remaining
                for column in table.columns.values()
            )
        ]
        if not ready:
            raise InvalidSchema(f"The tables {', '.join(sorted(remaining))} refer to each other in a circle.")
        for table in ready:
            in_order[table.name] = remaining.pop(table.name)
    return list(in_order.values())


def _render_column(column: Column) -> dict[str, Any]:
    document: dict[str, Any] = {"type": str(column.type)}
    if column.primary_key:
        document["primaryKey"] = True
    document["nullable"] = not column.needs_value
    if column.default is not None:
        document["default"] = column.default
    if column.on_update is not None:
        document["onUpdate"] = column.on_update
    if column.enum is not None:
        document["enum"] = list(column.enum)
    if column.unique:
        document["unique"] = True
    if column.generated is not None:
        document["generated"] = column.generated
    if column.references is not None:
        to = column.references
        document["references"] = {
            "table": to.table,
            "column": to.column,
            "onDelete": to.on_delete,
            "onUpdate": to.on_update,
        }
    return document


def _read_table(name: str, document: Mapping[str, Any]) -> TableInfo:
    _check_fields(document, _TABLE_FIELDS, f"table `{name}`")
    column_documents = document.get("columns")
    if not isinstance(column_documents, dict) or not column_documents:
        raise InvalidSchema(f"`{name}` has no columns: `columns` must be an object, the columns by their names.")
    if len(column_documents) > MOST_COLUMNS:
        raise InvalidSchema(f"`{name}` has more than {MOST_COLUMNS} columns.")
    columns = {column: _read_column(name, column, each) for column, each in column_documents.items()}
    indexes = document.get("indexes", {})
    if not isinstance(indexes, dict) or len(indexes) > _MOST_INDEXES:
        raise InvalidSchema(f"`{name}.indexes` must be an object of at most {_MOST_INDEXES} indexes, by their names.")
    seed = document.get("_seed", False)
    if not isinstance(seed, bool):
        raise InvalidSchema(f"`{name}._seed` must be true or false.")
    checks = _read_checks(name, document.get("checks", {}))
    texts = [*(check.text for check in checks.values()), *(column.generated or "" for column in columns.values())]
    if sum(map(len, texts)) > _LONGEST_EXPRESSIONS:
        raise InvalidSchema(f"The expressions of `{name}` have more than {_LONGEST_EXPRESSIONS} characters together.")
    return TableInfo(
        name,
        columns,
        {index: _read_index(name, index, each, columns) for index, each in indexes.items()},
        seed,
        checks=checks,
    )


def _read_checks(table: str, document: Any) -> dict[str, Check]:
    if not isinstance(document, dict) or len(document) > _MOST_CHECKS:
        raise InvalidSchema(f"`{table}.checks` must be an object of at most {_MOST_CHECKS} conditions, by their names.")
    for name, text in document.items():
        _check_name(name, f"check `{name}`")
        if len(name) > _LONGEST_OWN_NAME:
            raise InvalidName(f"The check `{name}` has a name of more than {_LONGEST_OWN_NAME} characters.")
        _check_expression(text, f"{table}.checks.{name}")
    return {name: Check(name, text) for name, text in document.items()}


def _check_expression(text: Any, place: str) -> None:
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_EXPRESSION:
        raise InvalidSchema(
            f"`{place}` must be an expression of SQL, as a text of at most {_LONGEST_EXPRESSION} characters."
        )


def _read_column(table: str, name: str, document: Any) -> Column:
    place = f"{table}.{name}"
    _check_name(name, f"column `{place}`")
    if isinstance(document, str):
        document = {"type": document}
    if not isinstance(document, dict) or not isinstance(document.get("type"), str):
        raise InvalidSchema(f"`{place}` has no `type`.")
    _check_fields(document, _COLUMN_FIELDS, f"column `{place}`")
    flags = {field: document[field] for field in ("primaryKey", "primary", "nullable", "unique") if field in document}
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise InvalidSchema(f"`{place}.{flag}` must be true or false.")
    default = document.get("default")
    if isinstance(default, bool):
        default = "true" if default else "false"
    elif isinstance(default, int | float):
        default = repr(default)
    if default is not None and (not isinstance(default, str) or len(default) > _LONGEST_DEFAULT):
        raise InvalidSchema(f"`{place}.default` must be an expression of SQL, as a text of at most 1000 characters.")
    try:
        kind = parse_type(document["type"])
    except UnknownType as exc:
        raise InvalidSchema(f"`{place}`: {exc}.") from exc
    column = Column(
        name,
        kind,
        primary_key=flags.get("primaryKey", flags.get("primary", False)),
        nullable=flags.get("nullable", True),
        default=default,
        unique=flags.get("unique", False),
        references=_read_reference(place, document.get("references")),
        generated=document.get("generated"),
        on_update=document.get("onUpdate"),
        enum=_read_enum(place, kind, document.get("enum")),
    )
    if column.generated is not None:
        _check_generated(place, column)
    if (column.primary_key or column.unique) and not (kind.is_ordered or kind.name in ("bytea", "interval", "timetz")):
        raise InvalidSchema(f"`{place}`: a column of the type {kind} cannot be a key or unique.")
    if column.on_update is not None:
        _check_on_update(place, column)
    for text in (default, column.on_update):
        _check_value(place, column, text)
    return column


def _check_value(place: str, column: Column, text: str | None) -> None:
    """Checks a default, or what an update sets."""
    try:
        value = None if text is None else evaluate(column, text, SERVICE, _SAMPLE_MOMENT)
    except BadRequest as exc:
        raise InvalidSchema(exc.message, remediation=exc.remedy) from exc
    if column.enum is not None and value is not None and value not in column.enum:
        raise InvalidSchema(f"`{place}`: `{value}` is not in its enum.")


def _check_on_update(place: str, column: Column) -> None:
    if not isinstance(column.on_update, str) or len(column.on_update) > _LONGEST_DEFAULT:
        raise InvalidSchema(f"`{place}.onUpdate` must be an expression as `default` has it, such as `now()`.")
    if column.primary_key or column.generated is not None or column.type.serial or column.references is not None:
        raise InvalidSchema(f"`{place}` is a key, a reference, serial or generated, and takes no `onUpdate`.")


def _read_enum(place: str, kind: ColumnType, words: Any) -> tuple[str, ...] | None:
    if words is None:
        return None
    if not kind.is_text:
        raise InvalidSchema(f"`{place}.enum`: only a text has one, and this is {kind}.")
    is_list = isinstance(words, list) and 0 < len(words) <= _MOST_WORDS and len(set(map(str, words))) == len(words)
    if not is_list or not all(isinstance(word, str) and len(word) <= _LONGEST_WORD for word in words):
        raise InvalidSchema(f"`{place}.enum` must be a list of 1 to {_MOST_WORDS} different texts.")
    return tuple(kind.clean(word, place) for word in words)


def _check_generated(place: str, column: Column) -> None:
    _check_expression(column.generated, f"{place}.generated")
    if len(column.name) > _LONGEST_OWN_NAME:
        raise InvalidName(f"The generated column `{place}` has a name of more than {_LONGEST_OWN_NAME} characters.")
    is_given = column.default is not None or column.references is not None or column.type.serial
    if is_given or column.needs_value:
        raise InvalidSchema(
            f"`{place}` is generated: it is no key, has no default and no reference, is not serial, and may be null."
        )


def _read_reference(place: str, document: Any) -> Reference | None:
    if document is None:
        return None
    if isinstance(document, str):
        table, dot, column = document.partition(".")
        document = {"table": table, "column": column if dot else "id"}
    if not isinstance(document, dict) or not {"table", "column"} <= document.keys() <= {
        "table",
        "column",
        "onDelete",
        "onUpdate",
    }:
        raise InvalidSchema(
            f"`{place}.references` must be `table.column`, or an object with table, column, onDelete, onUpdate."
        )
    for name in ("table", "column"):
        if not isinstance(document[name], str):
            raise InvalidSchema(f"`{place}.references.{name}` must be a name.")
    actions = [str(document.get(name, "NO ACTION")).upper() for name in ("onDelete", "onUpdate")]
    if any(action not in _ACTIONS for action in actions):
        raise InvalidSchema(f"`{place}.references`: the actions are {', '.join(_ACTIONS)}.")
    return Reference(document["table"], document["column"], *actions)


def _read_index(table: str, name: str, document: Any, columns: Mapping[str, Column]) -> Index:
    _check_name(name, f"index `{name}`")
    if not isinstance(document, dict):
        raise InvalidSchema(f"The index `{name}` must be an object with `columns`.")
    _check_fields(document, _INDEX_FIELDS, f"index `{name}`")
    column_names = tuple(_names(document.get("columns"), f"{name}.columns"))
    missing = [column for column in column_names if column not in columns]
    if missing or not column_names:
        raise InvalidSchema(
            f"The index `{name}` needs columns of `{table}`{f': `{missing[0]}` is none' if missing else ''}."
        )
    unique, method, opclass = document.get("unique", False), document.get("method", "btree"), document.get("opclass")
    if not isinstance(unique, bool) or method not in _METHODS:
        raise InvalidSchema(
            f"The index `{name}`: unique must be true or false, and the method one of {', '.join(_METHODS)}."
        )
    if opclass is not None and not (isinstance(opclass, str) and _OPCLASS.fullmatch(opclass)):
        raise InvalidSchema(f"The index `{name}`: `opclass` is the name of an operator class.")
    if unique and method != "btree":
        raise InvalidSchema(f"The index `{name}`: only a btree is unique.")
    is_of_text = len(column_names) == 1 and columns[column_names[0]].type.is_text
    if method == "fts" and (not is_of_text or opclass is not None):
        raise InvalidSchema(f"The index `{name}`: `fts` is for one column of text, and has no `opclass`.")
    return Index(name, column_names, unique, method, opclass)


def check_references(tables: Mapping[str, TableInfo]) -> None:
    for table in tables.values():
        for column in table.columns.values():
            to = column.references
            if to is None:
                continue
            target = tables.get(to.table)
            if target is None:
                raise UnknownTable(
                    f"`{table.name}.{column.name}` refers to the table `{to.table}`, which does not exist."
                )
            referred_column = target.columns.get(to.column)
            if (
                referred_column is None
                or referred_column.generated is not None
                or not (referred_column.unique or target.key == (to.column,))
            ):
                raise InvalidSchema(
                    f"`{table.name}.{column.name}` refers to `{to.table}.{to.column}`, which is neither a key "
                    "nor unique."
                )
            if referred_column.type.declare("postgresql") != column.type.declare("postgresql"):
                raise InvalidSchema(
                    f"`{table.name}.{column.name}` is {column.type}, and what it refers to {referred_column.type}."
                )
            if column.needs_value and "SET NULL" in (to.on_delete, to.on_update):
                raise InvalidSchema(f"`{table.name}.{column.name}` cannot be null, so SET NULL is not possible.")


def _names(value: Any, place: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InvalidSchema(f"`{place}` must be a list of names.")
    return value


def _check_name(name: str, place: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidName(
            f"The {place[:100]}: names match ^[a-z_][a-z0-9_]*$ and have at most 63 characters.",
            remediation=_suggest_name(name, place),
        )


def _suggest_name(name: str, place: str) -> str | None:
    """Returns the remedy for a name such as `createdAt`, which other tools write. SQLite does not tell `createdat` and
    `createdAt` apart, and Postgres does.
    """
    snake_case = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    snake_case = re.sub(r"[^a-z0-9]+", "_", snake_case.lower()).strip("_")[:63]
    if not NAME.fullmatch(snake_case):
        return None
    if not place.startswith("column"):
        return f"Call it `{snake_case}`."
    reason = "capital letters mean the same as small ones in one database, and not in the other."
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        return f"Call it `{snake_case}`."
    return f"Call it `{snake_case}`: {reason} `select={name}:{snake_case}` reads it under the other name."


def _check_fields(document: Mapping[str, Any], fields: set[str], place: str) -> None:
    unknown = sorted(set(document) - fields)
    if unknown:
        raise InvalidSchema(f"The {place} has no field `{unknown[0][:60]}`; there are {', '.join(sorted(fields))}.")


def keep_policies(table: TableInfo, older: TableInfo | None) -> TableInfo:
    """Returns a table of a document with the policies of the present table, which a document does not contain."""
    if older is None:
        return table
    return replace(
        table,
        columns={**table.columns},
        secured=older.secured,
        policies=older.policies,
        fill_user=older.fill_user if older.fill_user in table.columns else None,
        live_since=older.live_since,
        # Which of its rows come from outside is kept by the name of the table.
        own_text=older.own_text and older.name == table.name,
    )
