"""Changes of the schema that take something away, in the log of changes: dropped tables and columns with their values,
and older names. They are kept as long as the log keeps them, and data_undo brings them back.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.errors import UndoConflict, UndoImpossible
from baobab.tools.data.expressions.expressions import quote
from baobab.tools.data.expressions.trees import list_names
from baobab.tools.data.history.change_log import Change, ChangeLog
from baobab.tools.data.history.usage import Counter
from baobab.tools.data.migration.merging import merge_document
from baobab.tools.data.migration.migration import MigrationPlan
from baobab.tools.data.schema.catalogue import Catalogue, TableInfo, decode_catalogue
from baobab.tools.data.schema.document import order_by_reference, read_document, render_table


@dataclass(frozen=True, slots=True)
class Kept:
    """What a change of the schema has kept: the number of its action, and what it could not keep."""

    action: int | None
    warnings: tuple[str, ...] = ()


class SchemaLog:
    """Keeps and restores what changes of one app's schema take away, in the transaction that makes them.

    token: a part of the names of the tables in which dropped values are kept; another one for each transaction.
    """

    def __init__(
        self, statements: Statements, store: DataStore, app_id: str, log: ChangeLog, token: str, most_bytes: int
    ) -> None:
        self._statements = statements
        self._store = store
        self._app_id = app_id
        self._log = log
        self._token = token
        self._most_bytes = most_bytes

    def keep(self, plan: MigrationPlan) -> Kept:
        """Copies what a plan is about to drop, and writes down how to take the plan back. Call it before the plan is
        applied.
        """
        tables, columns = _list_dropped(plan)
        if not tables and not columns and not plan.renames:
            return Kept(None)
        what = _tell(plan)
        copies, warnings, size = self._plan_copies(tables, columns)
        # What could not be kept is not brought back empty.
        copied_tables = {table.name: names for table, names, _ in copies}
        tables = [table for table in tables if table.name in copied_tables]
        columns = [
            (table, names) for table, names in columns if table.name in copied_tables or not _is_written(table, names)
        ]
        if not tables and not columns and not plan.renames:
            self._log.add_schema(None, what, 0)
            return Kept(None, tuple(warnings))
        parts = [self._copy(f"_dropped_{self._token}_{number}", *copy) for number, copy in enumerate(copies)]
        inverse = {
            "schema": _invert(plan, tables, columns),
            "later": _render_later(plan, tables, columns),
            "tables": Catalogue({table.name: table for table in tables}).encode(),
            "columns": {table.name: names for table, names in columns},
            "fill_user": {table.name: table.fill_user for table, names in columns if table.fill_user in names},
            "before": {table.name: self._find_last(table.name) for table in tables},
            "parts": parts,
        }
        self._log.add_schema(json.dumps(inverse), what, size)
        return Kept(self._log.action, tuple(warnings))

    def find_unkept(self, plan: MigrationPlan) -> list[str]:
        """Returns warnings about what a plan drops that could not be brought back."""
        return self._plan_copies(*_list_dropped(plan))[1]

    def restore(
        self, current: Catalogue, change: Change, now: str, parser: Any
    ) -> tuple[Catalogue, list[str], list[str]]:
        """Takes a change of the schema back. Returns the new catalogue, what was done, and warnings."""
        inverse = change.old_row or {}
        saved_tables = decode_catalogue(inverse["tables"], 0, None).tables
        self._require_fit(current, inverse, saved_tables)
        kept_names = set(self._list_kept())
        if lost_parts := [part for part in inverse["parts"] if part["name"] not in kept_names]:
            raise UndoImpossible(f"What was dropped of `{lost_parts[0]['table']}` is not kept any more.")
        target = read_document(merge_document(parser, current, inverse["schema"]))
        plan = MigrationPlan(self._store, self._app_id, current, target, now, parser)
        if saved_tables or inverse["columns"]:
            # It is undone by dropping them again, which asks for its own word.
            self._log.add_schema(None, _tell(plan), 0)
        else:
            self.keep(plan)
        plan.apply(self._statements)
        in_order = {table.name: position for position, table in enumerate(order_by_reference(saved_tables))}
        for part in sorted(inverse["parts"], key=lambda each: in_order.get(each["table"], -1)):
            self._put_back(plan.result, part)
        catalogue, warnings = self._finish(plan.result, inverse["later"], now, parser)
        for name, saved_table in saved_tables.items():
            catalogue = catalogue.with_table(
                replace(
                    catalogue.table(name),
                    secured=saved_table.secured,
                    policies=saved_table.policies,
                    fill_user=saved_table.fill_user,
                    live_since=now if saved_table.live_since else None,
                )
            )
            self._claim_entries(name, inverse["before"].get(name, 0), change.id)
        for name, column in inverse["fill_user"].items():
            catalogue = catalogue.with_table(replace(catalogue.table(name), fill_user=column))
        self._log.note_undone([change])
        self._log.forget_kept(change)
        return catalogue, [each.description for each in plan.changes], warnings

    def _plan_copies(
        self, tables: list[TableInfo], columns: list[tuple[TableInfo, list[str]]]
    ) -> tuple[list[tuple[TableInfo, list[str] | None, list[str]]], list[str], int]:
        """Returns what to copy, as tables, their dropped columns (None for all) and the columns to copy; warnings about
        what cannot be kept; and about how many bytes the copies take.
        """
        dropped_parts: list[tuple[TableInfo, list[str] | None]] = [(table, None) for table in tables]
        for table, names in columns:
            if _is_written(table, names):
                dropped_parts.append((table, [name for name in names if table.columns[name].generated is None]))
        copies: list[tuple[TableInfo, list[str] | None, list[str]]] = []
        warnings: list[str] = []
        total = 0
        for table, names_or_all in dropped_parts:
            place = f"`{table.name}`" if names_or_all is None else f"`{table.name}` ({', '.join(names_or_all)})"
            if names_or_all is not None and not table.key:
                warnings.append(f"{place} cannot be brought back: the table has no key that tells its rows apart.")
                continue
            wanted_names = {*table.columns} if names_or_all is None else {*table.key, *names_or_all}
            names = [column.name for column in table.writable_columns if column.name in wanted_names]
            size = self._measure(table, names)
            if total + size > self._most_bytes:
                warnings.append(
                    f"{place} cannot be brought back: it has {size} bytes, and {self._most_bytes} are kept in all."
                )
                continue
            copies.append((table, names_or_all, names))
            total += size
        return copies, warnings, total

    def _measure(self, table: TableInfo, names: list[str]) -> int:
        columns = {name: table.columns[name] for name in names}
        size = Counter(self._statements, self._store, self._app_id).size(replace(table, columns=columns, indexes={}))
        source = self._store.name_table(self._app_id, table.name)
        return int(self._statements.rows(f"SELECT coalesce(sum({size}), 0) FROM {source}")[0][0])

    def _copy(self, name: str, table: TableInfo, columns: list[str] | None, names: list[str]) -> dict[str, Any]:
        self._statements.rows(
            f"CREATE TABLE {self._store.name_table(self._app_id, name)} AS "
            f"SELECT {', '.join(map(quote, names))} FROM {self._store.name_table(self._app_id, table.name)}"
        )
        return {"name": name, "table": table.name, "columns": columns, "copied": names}

    def _put_back(self, catalogue: Catalogue, part: Mapping[str, Any]) -> None:
        name, table = quote(part["table"]), catalogue.table(part["table"])
        place = self._store.name_table(self._app_id, part["table"])
        source = self._store.name_table(self._app_id, part["name"])
        if part["columns"] is None:
            columns = ", ".join(map(quote, part["copied"]))
            self._statements.rows(f"INSERT INTO {place} ({columns}) SELECT {columns} FROM {source}")
            return
        values = ", ".join(f"{quote(column)} = _kept.{quote(column)}" for column in part["columns"])
        keys = " AND ".join(f"_kept.{quote(column)} = {name}.{quote(column)}" for column in table.key)
        self._statements.rows(f"UPDATE {place} AS {name} SET {values} FROM {source} AS _kept WHERE {keys}")

    def _finish(
        self, catalogue: Catalogue, later: Mapping[str, Any], now: str, parser: Any
    ) -> tuple[Catalogue, list[str]]:
        """Gives restored columns their defaults, and requires their values again where all rows have one."""
        warnings: list[str] = []
        tables: dict[str, Any] = {}
        for name, columns in later.items():
            for column, document in columns.items():
                if name not in catalogue.tables or column not in catalogue.tables[name].columns:
                    warnings.append(f"`{name}.{column}` is not there any more, and refers to nothing.")
                    continue
                place = self._store.name_table(self._app_id, name)
                [(count,)] = self._statements.rows(f"SELECT count(*) FROM {place} WHERE {quote(column)} IS NULL")
                if count and document.get("nullable") is False:
                    warnings.append(
                        f"`{name}.{column}` needed a value and may be null now: {count} rows written since have none."
                    )
                    document["nullable"] = True
                tables.setdefault(name, {"columns": {}})["columns"][column] = document
        target = read_document(merge_document(parser, catalogue, {"tables": tables}))
        plan = MigrationPlan(self._store, self._app_id, catalogue, target, now, parser)
        plan.apply(self._statements)
        return plan.result, warnings

    def _require_fit(self, current: Catalogue, inverse: Mapping[str, Any], saved_tables: Collection[str]) -> None:
        """Raises UndoConflict where a later table or column has the name of a dropped one, or where a table is gone."""
        older_names = inverse["schema"].get("_renameTables", {})
        present_names = {old: new for new, old in older_names.items() if new in current.tables}
        taken_names = [f"table `{name}`" for name in saved_tables if name in current.tables or name in current.views]
        for name in inverse["schema"]["tables"]:
            table = current.tables.get(present_names.get(name, name))
            if table is None and name not in saved_tables:
                raise UndoConflict(
                    f"There is no table `{name}` any more.",
                    remediation="op:data_changes with `table: _schema` lists the later changes: undo the one that "
                    "dropped or renamed it first.",
                )
            if table is not None and name not in saved_tables:
                names = inverse["columns"].get(name, ())
                taken_names += [f"column `{table.name}.{column}`" for column in names if column in table.columns]
        if taken_names:
            raise UndoConflict(
                f"There is another {taken_names[0]} by now.",
                remediation="Rename the later one with `_renameTables` or `_renameColumns` of op:schema_apply, and "
                "then undo.",
            )

    def _find_last(self, table: str) -> int:
        """Returns the number of the last logged change of older tables of a name, which were dropped before."""
        changes = self._store.name_table(self._app_id, "_changes")
        text = f"SELECT coalesce(max(id), 0) FROM {changes} WHERE name = ?"
        return int(self._statements.rows(text, f"{table} (dropped)")[0][0])

    def _claim_entries(self, table: str, after: int, before: int) -> None:
        """Gives the logged changes of a restored table its name back, so that they can be undone again."""
        changes = self._store.name_table(self._app_id, "_changes")
        text = f"UPDATE {changes} SET name = ? WHERE name = ? AND id > ? AND id < ?"
        self._statements.rows(text, table, f"{table} (dropped)", after, before)

    def _list_kept(self) -> list[str]:
        if self._store.dialect == "sqlite":
            text = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '\\_dropped\\_%' ESCAPE '\\'"
            return [row[0] for row in self._statements.rows(text)]
        text = "SELECT tablename FROM pg_tables WHERE schemaname = ? AND tablename LIKE '\\_dropped\\_%'"
        return [row[0] for row in self._statements.rows(text, self._app_id)]


def _is_written(table: TableInfo, names: list[str]) -> bool:
    """Returns whether any of the columns holds values that are not computed from others."""
    return any(table.columns[name].generated is None for name in names)


def _render_later(
    plan: MigrationPlan, tables: list[TableInfo], columns: list[tuple[TableInfo, list[str]]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns by table and column what can be restored only once the rows are back: what restored columns require and
    are filled with, and references of others to what was dropped.
    """
    later: dict[str, dict[str, dict[str, Any]]] = {}
    for table, names in columns:
        for name in (name for name in names if table.columns[name].generated is None):
            document = render_table(table)["columns"][name]
            words = ("nullable", "default", "onUpdate")
            later.setdefault(table.name, {})[name] = {word: document[word] for word in words if word in document}
    for table, name in _list_lost_references(plan, tables, columns):
        references = render_table(table)["columns"][name]["references"]
        later.setdefault(table.name, {})[name] = {"references": references}
    return later


def _list_dropped(plan: MigrationPlan) -> tuple[list[TableInfo], list[tuple[TableInfo, list[str]]]]:
    """Returns the tables that a plan drops, and the columns that it drops of others, under their older names."""
    older_names = {new: old for old, new in plan.renames.tables.items()}
    tables = [table for name, table in sorted(plan.original.tables.items()) if name in plan.target.dropped_tables]
    columns: list[tuple[TableInfo, list[str]]] = []
    for name, dropped_columns in sorted(plan.target.dropped_columns.items()):
        table = plan.original.tables.get(older_names.get(name, name))
        if table is not None:
            older_columns = {new: old for old, new in plan.renames.columns.get(table.name, {}).items()}
            names = sorted({older_columns.get(column, column) for column in dropped_columns} & table.columns.keys())
            columns += [(table, names)] if names else []
    return tables, columns


def _list_lost_references(
    plan: MigrationPlan, tables: list[TableInfo], columns: list[tuple[TableInfo, list[str]]]
) -> Iterator[tuple[TableInfo, str]]:
    """Yields the columns that referred to what a plan drops, and stay without a reference."""
    lost_columns = {(table.name, column) for table in tables for column in table.columns}
    lost_columns |= {(table.name, name) for table, names in columns for name in names}
    for table in plan.original.tables.values():
        newer = plan.result.tables.get(plan.renames.table(table.name))
        for column in table.columns.values():
            newer_column = None if newer is None else newer.columns.get(plan.renames.column(table.name, column.name))
            to = column.references
            if to is not None and newer_column is not None and (to.table, to.column) in lost_columns:
                yield table, column.name


def _tell(plan: MigrationPlan) -> str:
    """Returns the changes of a plan that the log tells, as JSON."""
    words = ("drop the table ", "drop the column ", "rename the table ", "rename the column ", "create the table ")
    what = [change.description for change in plan.changes if change.description.startswith((*words, "add the column "))]
    return json.dumps({"changes": what}, ensure_ascii=False)


def _invert(plan: MigrationPlan, tables: list[TableInfo], columns: list[tuple[TableInfo, list[str]]]) -> dict[str, Any]:
    """Builds the part of a schema that takes a plan back in the mode `merge`: everything under its older name."""
    documents: dict[str, Any] = {table.name: render_table(table) for table in tables}
    for old_name, renamed_columns in plan.renames.columns.items():
        back = {new: old for old, new in renamed_columns.items()}
        documents.setdefault(old_name, {})["_renameColumns"] = back
    for table, names in columns:
        whole = render_table(table)
        document = documents.setdefault(table.name, {})
        # Values come before defaults and what requires them: rows of today must not collide with each other meanwhile.
        document["columns"] = {
            name: {**column, "nullable": True, "default": None, "onUpdate": None}
            for name, column in whole["columns"].items()
            if name in names
        }
        document["indexes"] = {
            name: index for name, index in whole.get("indexes", {}).items() if set(index["columns"]) & set(names)
        }
        document["checks"] = {
            check.name: check.text
            for check in table.checks.values()
            if any(name in names for _, name in list_names(check.tree))
        }
    schema: dict[str, Any] = {"tables": documents}
    if plan.renames.tables:
        schema["_renameTables"] = {new: old for old, new in plan.renames.tables.items()}
    return schema
