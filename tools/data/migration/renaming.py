"""Renames tables and columns without loss. What names them follows: references, indexes, policies, views, the log.

A condition follows as its tree. Its text, which its author sees, follows word by word, and is compiled again: if that
does not give the same tree, the rename is refused with the name of the policy or view.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import BaobabError
from baobab.tools.data.errors import InvalidSchema
from baobab.tools.data.expressions.compiler import compile_condition, compile_value
from baobab.tools.data.queries.views import compile_view
from baobab.tools.data.rows.serial_columns import name_sequence
from baobab.tools.data.schema.catalogue import Catalogue, Column, Expression, Policy, Reference, TableInfo, View

_WORDS = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|[A-Za-z_][A-Za-z0-9_]*")
_PAGE = 200


@dataclass(frozen=True)
class Renames:
    """tables: the new names of tables. columns: the new names of columns, by the present names of their tables."""

    tables: Mapping[str, str]
    columns: Mapping[str, Mapping[str, str]]

    def __bool__(self) -> bool:
        return bool(self.tables or any(self.columns.values()))

    def table(self, name: str) -> str:
        return self.tables.get(name, name)

    def column(self, table: str, name: str) -> str:
        return self.columns.get(table, {}).get(name, name)

    def affects(self, table: str) -> bool:
        return table in self.tables or bool(self.columns.get(table))


def find_renames(current: Catalogue, tables: Mapping[str, str], columns: Mapping[str, Mapping[str, str]]) -> Renames:
    """Returns what is still to be renamed, so that the same document can be applied again. Raises InvalidSchema.

    tables: new names by present ones. columns: the same for columns, by the new names of their tables.
    """
    for old, new in tables.items():
        if old in current.tables and (new in current.tables or new in current.views):
            raise InvalidSchema(f"`{old}` cannot be renamed: there is a `{new}` already.")
        if old not in current.tables and new not in current.tables:
            raise InvalidSchema(f"`_renameTables`: there is no table `{old[:63]}`.")
    pending_tables = {old: new for old, new in tables.items() if old in current.tables}
    older_names = {new: old for old, new in pending_tables.items()}
    pending_columns: dict[str, dict[str, str]] = {}
    for name, columns_of_table in columns.items():
        table = current.tables.get(older_names.get(name, name))
        if table is None and columns_of_table:
            raise InvalidSchema(f"`{name}._renameColumns`: the table does not exist yet.")
        for old, new in columns_of_table.items():
            assert table is not None
            if old in table.columns and new in table.columns:
                raise InvalidSchema(f"`{name}.{old}` cannot be renamed: there is a `{new}` already.")
            if old not in table.columns and new not in table.columns:
                raise InvalidSchema(f"`{name}._renameColumns`: there is no column `{old[:63]}`.")
            if old in table.columns:
                pending_columns.setdefault(table.name, {})[old] = new
    return Renames(pending_tables, pending_columns)


def rename_catalogue(parser: Any, current: Catalogue, renames: Renames, *, keeps_views: bool) -> Catalogue:
    """Returns the present catalogue under the new names. Raises InvalidSchema for what cannot follow.

    keeps_views: whether the views stay as they are; otherwise their new texts are given.
    """
    tables = {renames.table(name): _rename_table(table, renames) for name, table in current.tables.items()}
    renamed_catalogue = replace(current, tables=tables)
    for table in current.tables.values():
        new_table = tables[renames.table(table.name)]
        policies = {
            policy.name: _rename_policy(parser, renamed_catalogue, table, new_table, policy, renames)
            for policy in table.policies.values()
        }
        tables[new_table.name] = replace(new_table, policies=policies)
    if keeps_views:
        views = {view.name: _rename_view(parser, renamed_catalogue, view, renames) for view in current.views.values()}
        renamed_catalogue = replace(renamed_catalogue, views=views)
    return renamed_catalogue


def _rename_table(table: TableInfo, renames: Renames) -> TableInfo:
    def rename(name: str) -> str:
        return renames.column(table.name, name)

    def rename_tree(tree: Expression | None) -> Any:
        return _rename_tree(tree, {"": table.name}, renames)

    columns: dict[str, Column] = {}
    for column in table.columns.values():
        to = column.references
        references = to and Reference(renames.table(to.table), renames.column(to.table, to.column), *_list_actions(to))
        generated_tree = rename_tree(column.generated_tree)
        new_column = replace(column, name=rename(column.name), references=references, generated_tree=generated_tree)
        columns[new_column.name] = new_column
    indexes = {
        index.name: replace(index, columns=tuple(map(rename, index.columns))) for index in table.indexes.values()
    }
    checks = {check.name: replace(check, tree=rename_tree(check.tree)) for check in table.checks.values()}
    return replace(
        table,
        name=renames.table(table.name),
        columns=columns,
        indexes=indexes,
        checks=checks,
        fill_user=None if table.fill_user is None else rename(table.fill_user),
    )


def _list_actions(reference: Reference) -> tuple[str, str]:
    return reference.on_delete, reference.on_update


def _rename_policy(
    parser: Any, catalogue: Catalogue, table: TableInfo, new_table: TableInfo, policy: Policy, renames: Renames
) -> Policy:
    def follow(text: str | None, tree: Expression | None) -> tuple[str | None, Expression | None]:
        new_tree: Expression | None = _rename_tree(tree, {"": table.name}, renames)
        if text is None or new_tree is None or new_tree == tree:
            return text, new_tree
        for candidate in _rename_words(text, renames):
            try:
                if compile_condition(parser, candidate, catalogue, new_table) == new_tree:
                    return candidate, new_tree
            except BaobabError:
                continue
        raise InvalidSchema(
            f"The policy `{policy.name}` of `{table.name}` does not follow a rename by itself: {text[:200]}",
            remediation="Note the policy as op:rls_list shows it. Then drop it with op:rls_drop_policy, which closes "
            "the rows that it opens, rename, and create it again with the new names.",
        )

    using, using_tree = follow(policy.using, policy.using_tree)
    check, check_tree = follow(policy.check, policy.check_tree)
    return replace(policy, using=using, using_tree=using_tree, check=check, check_tree=check_tree)


def follow_texts(parser: Any, catalogue: Catalogue, renames: Renames) -> Catalogue:
    """Returns a renamed catalogue whose checks and generated columns are written with the new names. Raises
    InvalidSchema for one that does not follow by itself.
    """

    def follow(text: str, tree: Expression | None, table: TableInfo, place: str) -> str:
        for candidate in (text, *_rename_words(text, renames)):
            try:
                if compile_value(parser, candidate, Catalogue(), table)[0] == tree:
                    return candidate
            except BaobabError:
                continue
        raise InvalidSchema(
            f"{place} does not follow a rename by itself: {text[:200]}",
            remediation="Give it in the same document, with the new names.",
        )

    tables: dict[str, TableInfo] = {}
    for name, table in catalogue.tables.items():
        writable_table = replace(table, columns={column.name: column for column in table.writable_columns})
        columns = {
            column.name: column
            if column.generated is None
            else replace(
                column,
                generated=follow(
                    column.generated, column.generated_tree, writable_table, f"The column `{name}.{column.name}`"
                ),
            )
            for column in table.columns.values()
        }
        checks = {
            check.name: replace(check, text=follow(check.text, check.tree, table, f"The check `{check.name}`"))
            for check in table.checks.values()
        }
        tables[name] = replace(table, columns=columns, checks=checks)
    return replace(catalogue, tables=tables)


def _rename_view(parser: Any, catalogue: Catalogue, view: View, renames: Renames) -> View:
    aliases = {source["alias"]: source["table"] for source in view.query["tables"]}
    query = {name: _rename_tree(part, aliases, renames) for name, part in view.query.items()}
    query["tables"] = [
        {
            **source,
            "table": renames.table(source["table"]),
            "alias": _rename_alias(source["alias"], aliases, renames),
            "on": _rename_tree(source["on"], aliases, renames),
        }
        for source in view.query["tables"]
    ]
    for candidate in (view.text, *_rename_words(view.text, renames)):
        try:
            new_view = compile_view(parser, view.name, candidate, catalogue)
        except BaobabError:
            continue
        if new_view.columns == view.columns and new_view.query == query:
            return new_view
    raise InvalidSchema(
        f"The view `{view.name}` does not follow a rename by itself: {view.text[:200]}",
        remediation="Give `views` in the same document, with the new names. A column keeps its name with `new as old`.",
    )


def _rename_tree(tree: Any, aliases: Mapping[str, str], renames: Renames) -> Any:
    """Renames the tables and columns of a tree.

    aliases: the present names of the tables by their aliases.
    """
    match tree:
        case ["column", str(alias), str(name)] if alias in aliases:
            return ["column", _rename_alias(alias, aliases, renames), renames.column(aliases[alias], name)]
        case ["value", *_]:
            return tree
        case ["json", inner, steps, as_text]:
            return ["json", _rename_tree(inner, aliases, renames), steps, as_text]
        case {"table": str(), "alias": str()}:
            return _rename_rows(tree, aliases, renames)
        case list():
            return [_rename_tree(part, aliases, renames) for part in tree]
    return tree


def _rename_rows(rows: Mapping[str, Any], aliases: Mapping[str, str], renames: Renames) -> dict[str, Any]:
    inner = {**aliases, **{source["alias"]: source["table"] for source in (rows, *rows.get("joins", ()))}}
    alias = _rename_alias(rows["alias"], inner, renames)
    renamed_rows = {**rows, "table": renames.table(rows["table"]), "alias": alias}
    if "own" in rows:
        renamed_rows["own"] = renames.column(rows["table"], rows["own"])
    for part in ("column", "where", "on"):
        if part in rows:
            renamed_rows[part] = _rename_tree(rows[part], inner, renames)
    if "joins" in rows:
        renamed_rows["joins"] = [_rename_rows(join, inner, renames) for join in rows["joins"]]
    return renamed_rows


def _rename_alias(alias: str, aliases: Mapping[str, str], renames: Renames) -> str:
    """Returns an alias under the new names: one that nobody has given is the name of the table."""
    return renames.table(alias) if aliases.get(alias) == alias else alias


def _rename_words(text: str, renames: Renames) -> Iterator[str]:
    """Yields a text with the new names: first only as names, then also where a text is the name of a table."""
    names = {**renames.tables}
    for columns in renames.columns.values():
        names.update(columns)
    for renames_texts in (False, True):

        def rename(match: re.Match[str], renames_texts: bool = renames_texts) -> str:
            word = match[0]
            if word[0] == '"' or (renames_texts and word[0] == "'"):
                return f"{word[0]}{names.get(word[1:-1], word[1:-1])}{word[0]}"
            return names.get(word, word)

        yield _WORDS.sub(rename, text)


def set_records_aside(statements: Statements, store: DataStore, app_id: str, names: Collection[str]) -> None:
    """Takes what is logged of dropped tables out of the way of tables that get their names now: readers of the new ones
    must not be told rows of the old ones, and undoing a write of before must not change the new ones.
    """
    if names:
        changes, marks = store.name_table(app_id, "_changes"), ", ".join("?" * len(names))
        statements.rows(f"UPDATE {changes} SET name = name || ' (dropped)' WHERE name IN ({marks})", *names)


def rename_records(statements: Statements, store: DataStore, app_id: str, current: Catalogue, renames: Renames) -> None:
    """Renames what is kept about tables beside them: the counters of serial columns, and the log of changes."""
    sequences, changes = store.name_table(app_id, "_sequences"), store.name_table(app_id, "_changes")
    for table in current.tables.values():
        if not renames.affects(table.name):
            continue
        new_table = _rename_table(table, renames)
        for column in table.columns.values():
            if column.type.serial:
                new_column = new_table.columns[renames.column(table.name, column.name)]
                names = (name_sequence(new_table, new_column), name_sequence(table, column))
                statements.rows(f"DELETE FROM {sequences} WHERE name = ?", names[0])
                statements.rows(f"UPDATE {sequences} SET name = ? WHERE name = ?", *names)
        if renames.columns.get(table.name):
            _rename_logged(statements, changes, table.name, renames)
        statements.rows(f"UPDATE {changes} SET name = ? WHERE name = ?", new_table.name, table.name)


def _rename_logged(statements: Statements, changes: str, table: str, renames: Renames) -> None:
    """Renames the columns of logged rows, so that a write of before can still be undone."""

    def rename(text: str | None) -> str | None:
        if text is None:
            return None
        row = {renames.column(table, name): value for name, value in json.loads(text).items()}
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"))

    after = 0
    page = f"SELECT id, old_row, new_row FROM {changes} WHERE name = ? AND id > ? ORDER BY id LIMIT {_PAGE}"
    while rows := statements.rows(page, table, after):
        for number, old_row, new_row in rows:
            statements.rows(
                f"UPDATE {changes} SET old_row = ?, new_row = ? WHERE id = ?", rename(old_row), rename(new_row), number
            )
        after = rows[-1][0]
