"""The numbers from which an app's rows and logs go on: serial columns, the change log, messages, and byte totals."""

import json
from collections.abc import Callable
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements


class Sequences:
    """The last number of each sequence of one app, in a transaction that holds the app's lock.

    Nobody else changes them meanwhile, so they are counted here, and written together before the transaction ends.
    """

    def __init__(self, statements: Statements, store: DataStore, app_id: str, last_numbers: str | None = None) -> None:
        """last_numbers: what `select_last_numbers` has answered in this transaction."""
        self._statements = statements
        self._table = store.name_table(app_id, "_sequences")
        self._numbers: dict[str, int] = json.loads(last_numbers) if last_numbers else {}
        self._changed_names: set[str] = set()

    def add(self, name: str, amount: int, find_first: Callable[[], int] = lambda: 0) -> int:
        """Adds to a sequence and returns its last number.

        find_first: returns the last number so far of a sequence that has never been used.
        """
        last = self._find_last(name)
        self._set(name, (find_first() if last is None else last) + amount)
        return self._numbers[name]

    def pass_number(self, name: str, number: int) -> None:
        """Makes a sequence that is in use continue after a number."""
        last = self._find_last(name)
        if last is not None and last < number:
            self._set(name, number)

    def write(self) -> None:
        """Writes what was counted. Call it once the transaction has counted everything."""
        changed_names, self._changed_names = self._changed_names, set()
        text = f"INSERT INTO {self._table} (name, last) VALUES (?, ?)"
        text += " ON CONFLICT (name) DO UPDATE SET last = excluded.last"
        self._statements.insert_many(text, [(name, self._numbers[name]) for name in sorted(changed_names)])

    def _set(self, name: str, last: int) -> None:
        self._numbers[name] = last
        self._changed_names.add(name)

    def _find_last(self, name: str) -> int | None:
        if name not in self._numbers:
            rows = self._statements.rows(f"SELECT last FROM {self._table} WHERE name = ?", name)
            self._numbers.update((name, int(last)) for (last,) in rows)
        return self._numbers.get(name)


def select_last_numbers(store: DataStore, app_id: str, names: list[str]) -> tuple[str, list[Any]]:
    """Returns a query, with its values, that answers the last numbers of sequences as one text for `Sequences`."""
    build = "json_group_object(name, last)" if store.dialect == "sqlite" else "json_object_agg(name, last)::text"
    return f"SELECT {build} FROM {store.name_table(app_id, '_sequences')} WHERE name IN ?", [names]
