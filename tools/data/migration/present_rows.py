"""What a migration asks of the rows that a table has already, and gives them."""

from functools import partial

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.actor import SERVICE
from baobab.tools.data.errors import MigrationFailed
from baobab.tools.data.expressions.constraints import find_check, list_checks, see_today
from baobab.tools.data.expressions.expressions import SqlWriter, quote
from baobab.tools.data.schema.catalogue import Catalogue, Column, Expression, TableInfo
from baobab.tools.data.schema.defaults import evaluate
from baobab.tools.data.schemas import BrokenCheck

_MOST_EXAMPLES = 10


class PresentRows:
    """The rows of one app's tables, in a transaction that changes the tables. now: for defaults that tell the time."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str, now: str) -> None:
        self._statements = statements
        self._store = store
        self._app_id = app_id
        self._name = partial(store.name_table, app_id)
        self._now = now

    def find_broken(self, table: TableInfo, today: TableInfo | None) -> list[BrokenCheck]:
        """Finds the checks of a table that its rows break, with the number of rows and some of their keys.

        today: the present table, if its new columns do not exist yet.
        """
        defaults: dict[str, Expression] = {}
        for column in table.writable_columns:
            value = None if column.default is None else evaluate(column, column.default, SERVICE, self._now)
            defaults[column.name] = ["value", str(column.type) if not column.type.serial else column.type.name, value]
        broken_checks: list[BrokenCheck] = []
        for constraint, tree in list_checks(table):
            writer = SqlWriter(self._store, self._app_id, Catalogue(), SERVICE, self._now)
            name = quote(table.name)
            keys = [table.columns[key].type.show(f"{name}.{quote(key)}", writer.dialect) for key in table.key] or ["1"]
            where = writer.write(["not", see_today(tree, table, today, defaults)], {"": name})
            text = (
                f"SELECT count(*) OVER (), {', '.join(keys)} FROM {self._name(table.name)} AS {name} WHERE {where} "
                f"LIMIT {_MOST_EXAMPLES}"
            )
            rows = self._statements.rows(text, *writer.values)
            if rows:
                examples = [dict(zip(table.key, row[1:], strict=False)) for row in rows]
                check, computed_column = find_check(table, constraint)
                broken_check: BrokenCheck = {"table": table.name, "rows": rows[0][0], "examples": examples}
                if check is not None:
                    broken_check["check"] = check.name
                else:
                    broken_check["column"] = computed_column.name if computed_column else ""
                broken_checks.append(broken_check)
        return broken_checks

    def require_checks(self, table: TableInfo) -> None:
        broken_checks = self.find_broken(table, None)
        if broken_checks:
            first = broken_checks[0]
            place = f"the check `{first['check']}`" if "check" in first else f"the type of `{first['column']}`"
            raise MigrationFailed(
                f"{first['rows']} rows of `{table.name}` do not fit {place}, such as {first['examples'][0]}.",
                details={"broken_checks": broken_checks},
            )

    def fill(self, table: TableInfo, column: Column) -> None:
        if column.default is None:
            return
        name, place = self._name(table.name), quote(column.name)
        value = column.type.encode(evaluate(column, column.default, SERVICE, self._now), self._store.dialect)
        if column.default.strip().lower() in ("gen_random_uuid()", "uuid_generate_v4()"):
            # Each row gets a value of its own. Both databases have this function.
            cast = "CAST(gen_random_uuid() AS text)" if column.type.is_text else "gen_random_uuid()"
            self._statements.rows(f"UPDATE {name} SET {place} = {cast}")
        elif value is not None:
            self._statements.rows(f"UPDATE {name} SET {place} = {column.type.bind(self._store.dialect)}", value)

    def require_no_nulls(self, table: TableInfo, column: Column) -> None:
        [(nulls, rows)] = self._statements.rows(
            f"SELECT count(*) - count({quote(column.name)}), count(*) FROM {self._name(table.name)}"
        )
        if nulls:
            raise MigrationFailed(
                f"`{table.name}.{column.name}` must have a value, and {nulls} rows have none.",
                details={"table": table.name, "column": column.name, "existing_row_count": rows},
            )
