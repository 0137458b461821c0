"""Measures how many bytes the rows of an app take, with triggers in the transaction that writes them.

Each table has a row in `_usage`. The triggers also see rows that a reference deletes or changes. A value counts once
for its column, and once more for each index on it.
"""

from collections.abc import Callable

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import Call
from baobab.tools.data.errors import TablesFull
from baobab.tools.data.expressions.expressions import quote
from baobab.tools.data.schema.catalogue import Column, TableInfo

_ROW_BYTES = 40
"""The bytes that a database needs for a row beside its values."""
_INDEX_BYTES = 16
_EVENTS = ("INSERT", "UPDATE", "DELETE")


def require_within_plan(call: Call, statements: Statements, bytes_before: int) -> None:
    """Raises TablesFull if the rows, after what this transaction wrote, take more than the app's plan allows.

    bytes_before: how many bytes they took before.
    """
    app = call.require_app()
    limit = app.plan.table_bytes
    if limit is None:
        return
    bytes_after = measure_tables(statements, call.stores.data, app.id)
    # An app that is over its limit after a change of plan can still delete rows.
    if bytes_after > limit and bytes_after > bytes_before:
        raise TablesFull(
            f"The rows of the app's tables would take {bytes_after} bytes, and its plan gives {limit}.",
            details={"current_usage_bytes": bytes_before, "limit_bytes": limit},
        )


def measure_tables(statements: Statements, store: DataStore, app_id: str) -> int:
    """Returns how many bytes the rows of an app take."""
    return int(statements.rows(select_bytes(store, app_id))[0][0])


def select_bytes(store: DataStore, app_id: str) -> str:
    """Returns the query that answers how many bytes the rows of an app take."""
    return f"SELECT coalesce(sum(bytes), 0) FROM {store.name_table(app_id, '_usage')}"


class Counter:
    """Counts the bytes of one app's tables across a change of their schema."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str) -> None:
        self._statements = statements
        self._dialect = store.dialect
        self._usage = store.name_table(app_id, "_usage")
        self._name: Callable[[str], str] = lambda name: store.name_table(app_id, name)

    def stop(self, table: TableInfo) -> None:
        """Drops a table's triggers before the table changes, because they name its columns."""
        for event in _EVENTS:
            name = f"_count_{event.lower()}"
            if self._dialect == "sqlite":
                self._statements.rows(f"DROP TRIGGER IF EXISTS {quote(f'{name}.{table.name}')}")
            else:
                self._statements.rows(f"DROP TRIGGER IF EXISTS {name} ON {self._name(table.name)}")

    def forget(self, table: TableInfo) -> None:
        """Removes the count of a table after it was dropped with its triggers."""
        self._statements.rows(f"DELETE FROM {self._usage} WHERE name = ?", table.name)
        if self._dialect == "postgresql":
            self._statements.rows(f"DROP FUNCTION IF EXISTS {self._name(table.name)}()")

    def is_counting(self, table: TableInfo) -> bool:
        return bool(self._statements.rows(f"SELECT 1 FROM {self._usage} WHERE name = ?", table.name))

    def start(self, table: TableInfo) -> None:
        """Counts the present rows, and creates the triggers that keep the count."""
        self.forget(table)
        self._statements.rows(
            f"INSERT INTO {self._usage} (name, bytes) "
            f"SELECT '{table.name}', coalesce(sum({self.size(table)}), 0) FROM {self._name(table.name)}"
        )
        if self._dialect == "postgresql":
            self._statements.rows(self._function(table))
        for event in _EVENTS:
            self._statements.rows(self._trigger(table, event))

    def size(self, table: TableInfo, row: str = "") -> str:
        """Returns the SQL expression for the bytes of a row.

        row: the prefix of its columns, such as `new.`.
        """
        indexes = [index.columns for index in table.indexes.values()] + ([table.key] if table.key else [])
        indexes += [(column.name,) for column in table.columns.values() if column.unique]
        fixed_bytes = _ROW_BYTES + _INDEX_BYTES * len(indexes)
        parts: list[str] = []
        for column in table.columns.values():
            times = 1 + sum(column.name in index for index in indexes)
            if column.type.is_small and not (column.type.is_text or column.type.name == "numeric"):
                fixed_bytes += 8 * times
            else:
                parts.append(f"coalesce({self._measure(column, row)}, 0) * {times}")
        return " + ".join([str(fixed_bytes), *parts])

    def _measure(self, column: Column, row: str) -> str:
        value = f"{row}{quote(column.name)}"
        if column.type.name == "bytea" and not column.type.array:
            return f"length({value})"
        return f"length(CAST({value} AS BLOB))" if self._dialect == "sqlite" else f"octet_length({value}::text)"

    def _function(self, table: TableInfo) -> str:
        """Returns the statement that creates the function of a table's triggers in Postgres. It has the table's name.

        A function that all tables share would have its statements parsed anew for each write, which costs the server
        more than the insert of a row.
        """
        body = f"""
DECLARE
    added bigint := 0;
    gone bigint := 0;
BEGIN
    IF TG_OP <> 'DELETE' THEN
        SELECT coalesce(sum({self.size(table, "new_rows.")}), 0) INTO added FROM new_rows;
    END IF;
    IF TG_OP <> 'INSERT' THEN
        SELECT coalesce(sum({self.size(table, "old_rows.")}), 0) INTO gone FROM old_rows;
    END IF;
    IF added <> gone THEN
        UPDATE {self._usage} AS usage SET bytes = usage.bytes + added - gone WHERE usage.name = '{table.name}';
    END IF;
    RETURN NULL;
END
"""
        return (
            f"CREATE OR REPLACE FUNCTION {self._name(table.name)}() RETURNS trigger LANGUAGE plpgsql "
            f"SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $${body}$$"
        )

    def _trigger(self, table: TableInfo, event: str) -> str:
        name = f"_count_{event.lower()}"
        if self._dialect == "sqlite":
            added_bytes = "0" if event == "DELETE" else self.size(table, "new.")
            removed_bytes = "0" if event == "INSERT" else self.size(table, "old.")
            count = f"UPDATE _usage SET bytes = bytes + ({added_bytes}) - ({removed_bytes}) WHERE name = '{table.name}'"
            head = f"CREATE TRIGGER {quote(f'{name}.{table.name}')} AFTER {event} ON {quote(table.name)}"
            return f"{head} BEGIN {count}; END"
        transition_tables = {"INSERT": ["NEW"], "UPDATE": ["NEW", "OLD"], "DELETE": ["OLD"]}[event]
        referencing = " ".join(f"{rows} TABLE AS {rows.lower()}_rows" for rows in transition_tables)
        return (
            f"CREATE TRIGGER {name} AFTER {event} ON {self._name(table.name)} REFERENCING {referencing} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {self._name(table.name)}()"
        )
