"""How many bytes the rows of an app take: counted by triggers, in the transaction that writes them.

Each table has a row in `_usage`. Its triggers also see what a reference deletes or changes in other rows. A value of a
column counts once, and once more for each index of it.
"""

from collections.abc import Callable
from typing import TypeVar

from baobab.storage.data.store import DataStore
from baobab.storage.statements import Statements
from baobab.tools.core.call import Call
from baobab.tools.data.catalogue import Column, TableInfo
from baobab.tools.data.errors import TablesFull
from baobab.tools.data.expressions import quote

T = TypeVar("T")

_ROW_BYTES = 40
"""What a database needs for a row beside its values."""
_INDEX_BYTES = 16
_EVENTS = ("INSERT", "UPDATE", "DELETE")


def write_within_plan(call: Call, statements: Statements, work: Callable[[], T]) -> T:
    """Returns the function's result. Raises TablesFull if the app's rows have become more than its plan gives."""
    app = call.require_app()
    limit = app.plan.table_bytes
    if limit is None:
        return work()
    before = measure_tables(statements, call.stores.data, app.id)
    result = work()
    after = measure_tables(statements, call.stores.data, app.id)
    # Whoever has too much, after a change of the plan, can still make it less.
    if after > limit and after > before:
        raise TablesFull(
            f"The rows of the app's tables would take {after} bytes, and its plan gives {limit}.",
            details={"current_usage_bytes": before, "limit_bytes": limit},
        )
    return result


def measure_tables(statements: Statements, store: DataStore, app_id: str) -> int:
    """How many bytes the rows of an app take."""
    usage = store.name_table(app_id, "_usage")
    return int(statements.rows(f"SELECT coalesce(sum(bytes), 0) FROM {usage}")[0][0])


class Counter:
    """Counts the bytes of one app's tables from one schema to the next."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str) -> None:
        self._statements = statements
        self._dialect = store.dialect
        self._usage = store.name_table(app_id, "_usage")
        self._name: Callable[[str], str] = lambda name: store.name_table(app_id, name)

    def create_function(self) -> None:
        """Postgres needs a function for its triggers, which is the same for all tables."""
        if self._dialect == "postgresql":
            name = self._name("_count_bytes")
            self._statements.rows(
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql "
                f"SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $${_COUNT}$$"
            )

    def stop(self, table: TableInfo) -> None:
        """Before a table is changed: a trigger must not name a column that goes."""
        for event in _EVENTS:
            name = f"_count_{event.lower()}"
            if self._dialect == "sqlite":
                self._statements.rows(f"DROP TRIGGER IF EXISTS {quote(f'{name}.{table.name}')}")
            else:
                self._statements.rows(f"DROP TRIGGER IF EXISTS {name} ON {self._name(table.name)}")

    def forget(self, table: TableInfo) -> None:
        """After a table was dropped, with its triggers."""
        self._statements.rows(f"DELETE FROM {self._usage} WHERE name = ?", table.name)

    def is_counting(self, table: TableInfo) -> bool:
        return bool(self._statements.rows(f"SELECT 1 FROM {self._usage} WHERE name = ?", table.name))

    def start(self, table: TableInfo) -> None:
        """Counts the rows that are there, and those that come and go from now on."""
        self.forget(table)
        self._statements.rows(
            f"INSERT INTO {self._usage} (name, bytes) "
            f"SELECT '{table.name}', coalesce(sum({self.size(table)}), 0) FROM {self._name(table.name)}"
        )
        for event in _EVENTS:
            self._statements.rows(self._trigger(table, event))

    def size(self, table: TableInfo, row: str = "") -> str:
        """The bytes of a row as an expression. row: what stands before the columns, such as `new.`."""
        indexes = [index.columns for index in table.indexes.values()] + ([table.key] if table.key else [])
        indexes += [(column.name,) for column in table.columns.values() if column.unique]
        fixed = _ROW_BYTES + _INDEX_BYTES * len(indexes)
        parts: list[str] = []
        for column in table.columns.values():
            times = 1 + sum(column.name in index for index in indexes)
            if column.type.is_small and not (column.type.is_text or column.type.name == "numeric"):
                fixed += 8 * times
            else:
                parts.append(f"coalesce({self._measure(column, row)}, 0) * {times}")
        return " + ".join([str(fixed), *parts])

    def _measure(self, column: Column, row: str) -> str:
        value = f"{row}{quote(column.name)}"
        if column.type.name == "bytea" and not column.type.array:
            return f"length({value})"
        return f"length(CAST({value} AS BLOB))" if self._dialect == "sqlite" else f"octet_length({value}::text)"

    def _trigger(self, table: TableInfo, event: str) -> str:
        name = f"_count_{event.lower()}"
        if self._dialect == "sqlite":
            added = "0" if event == "DELETE" else self.size(table, "new.")
            gone = "0" if event == "INSERT" else self.size(table, "old.")
            count = f"UPDATE _usage SET bytes = bytes + ({added}) - ({gone}) WHERE name = '{table.name}'"
            head = f"CREATE TRIGGER {quote(f'{name}.{table.name}')} AFTER {event} ON {quote(table.name)}"
            return f"{head} BEGIN {count}; END"
        seen = {"INSERT": ["NEW"], "UPDATE": ["NEW", "OLD"], "DELETE": ["OLD"]}[event]
        referencing = " ".join(f"{rows} TABLE AS {rows.lower()}_rows" for rows in seen)
        return (
            f"CREATE TRIGGER {name} AFTER {event} ON {self._name(table.name)} REFERENCING {referencing} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {self._name('_count_bytes')}('{self.size(table)}')"
        )


_COUNT = """
DECLARE
    added bigint := 0;
    gone bigint := 0;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        EXECUTE 'SELECT coalesce(sum(' || TG_ARGV[0] || '), 0) FROM new_rows' INTO added;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        EXECUTE 'SELECT coalesce(sum(' || TG_ARGV[0] || '), 0) FROM old_rows' INTO gone;
    END IF;
    IF added <> gone THEN
        EXECUTE 'UPDATE ' || quote_ident(TG_TABLE_SCHEMA) || '._usage SET bytes = bytes + $1 WHERE name = $2'
            USING added - gone, TG_TABLE_NAME::text;
    END IF;
    RETURN NULL;
END
"""
