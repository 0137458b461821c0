"""Serial columns: the numbers that rows get, which follow the numbers that rows bring with them.

A number that a row brings moves the counter on, unless it is beyond the middle of what the type can store: otherwise
one row with the largest number would leave none for all others. Beyond the middle, the counter steps over the numbers
that are taken.
"""

from collections.abc import Collection
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.expressions.expressions import quote
from baobab.tools.data.history.sequences import Sequences
from baobab.tools.data.schema.catalogue import Column, TableInfo


def list_sequences(table: TableInfo) -> list[str]:
    """Returns the names of the sequences of a table's serial columns."""
    return [name_sequence(table, column) for column in table.columns.values() if column.type.serial]


def name_sequence(table: TableInfo, column: Column) -> str:
    return f"{table.name}.{column.name}"


class SerialColumns:
    """The counters of one app, in a transaction that holds the app's lock."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str, sequences: Sequences) -> None:
        self._statements = statements
        self._store = store
        self._app_id = app_id
        self._sequences = sequences

    def pass_numbers(self, table: TableInfo, column: Column, numbers: Collection[int]) -> None:
        """Makes a column continue after the largest number that rows bring with them."""
        largest = max((number for number in numbers if number <= _middle(column)), default=0)
        if largest > 0:
            self._sequences.pass_number(name_sequence(table, column), largest)

    def take(self, table: TableInfo, column: Column, count: int, given_numbers: Collection[int]) -> list[int]:
        """Returns the next numbers of a column.

        given_numbers: those that other rows of the same insert bring with them.
        Raises BadRequest if the type has no numbers left.
        """
        numbers: list[int] = []

        def find_largest() -> int:
            [(largest,)] = self._ask(f"SELECT max({{}}) FROM {{}} WHERE {{}} <= {_middle(column)}", table, column)
            return max([int(largest or 0), 0, *(number for number in given_numbers if number <= _middle(column))])

        while len(numbers) < count:
            missing = count - len(numbers)
            last = self._sequences.add(name_sequence(table, column), missing, find_largest)
            column.type.clean(last, column.name)
            taken_numbers: Collection[int] = ()
            if last > _middle(column):
                between = f"SELECT {{}} FROM {{}} WHERE {{}} BETWEEN {last - missing + 1} AND {last}"
                taken_numbers = {*given_numbers, *(int(row[0]) for row in self._ask(between, table, column))}
            numbers += [number for number in range(last - missing + 1, last + 1) if number not in taken_numbers]
        return numbers

    def _ask(self, text: str, table: TableInfo, column: Column) -> list[tuple[Any, ...]]:
        name = quote(column.name)
        return self._statements.rows(text.format(name, self._store.name_table(self._app_id, table.name), name))


def _middle(column: Column) -> int:
    assert column.type.bounds is not None
    return int(column.type.bounds[1]) // 2
