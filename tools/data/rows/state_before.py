"""Checks of written rows on SQLite, whose `RETURNING` shows subqueries the tables as they are after the write.

Postgres evaluates a check on the state before the statement. Otherwise a row could fulfil the policy that is to refuse
it: "only owners add owners" is true as soon as the first owner has added themselves.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from sqlite3 import OperationalError

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.actor import Actor
from baobab.tools.data.expressions.expressions import SqlWriter, allowed_rows, quote
from baobab.tools.data.expressions.trees import list_names
from baobab.tools.data.rows.visibility import Visibility
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.schemas import Row

_PASSIVE = ("NO ACTION", "RESTRICT")
_AT_ONCE = 200
"""How many rows are checked by one statement. SQLite joins at most 500 by `UNION ALL`."""


class StateBefore:
    def __init__(
        self, statements: Statements, store: DataStore, app_id: str, catalogue: Catalogue, actor: Actor, now: str
    ) -> None:
        self._statements = statements
        self._store = store
        self._app_id = app_id
        self._catalogue = catalogue
        self._actor = actor
        self._now = now

    def differs(self, table: TableInfo, condition: Expression) -> bool:
        """Returns whether a condition may have another value once rows of the table are written, because it asks a
        table that the write changes.
        """
        return self._store.dialect == "sqlite" and bool(
            self._list_asked(condition, set()) & self._list_changed(table.name, set())
        )

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Undoes what is written within the context."""
        self._statements.rows("SAVEPOINT tried")
        try:
            yield
        except BaseException:
            # Some errors have rolled back the whole transaction.
            with suppress(OperationalError):
                self._leave()
            raise
        self._leave()

    def _leave(self) -> None:
        self._statements.rows("ROLLBACK TO tried")
        self._statements.rows("RELEASE tried")

    def fulfils(self, table: TableInfo, check: Expression, rows: Sequence[Row]) -> bool:
        """Returns whether all rows, as they would be written, meet a check."""
        visibility = Visibility(self._statements, self._store, self._app_id, self._catalogue, self._now)
        return all(
            visibility.fulfils(table, check, rows[start : start + _AT_ONCE], self._actor)
            for start in range(0, len(rows), _AT_ONCE)
        )

    def holds_for_all(self, table: TableInfo, condition: Expression, among: Expression) -> bool:
        """Returns whether a condition is true for all present rows among some."""
        writer = SqlWriter(self._store, self._app_id, self._catalogue, self._actor, self._now)
        scope = {"": quote(table.name)}
        is_chosen = writer.write(among, scope)
        text = (
            f"SELECT 1 FROM {writer.name_table(table.name)} AS {quote(table.name)} "
            f"WHERE {is_chosen} AND ({writer.write(condition, scope)}) IS NOT TRUE LIMIT 1"
        )
        return not self._statements.rows(text, *writer.values)

    def _list_asked(self, condition: Expression, seen: set[str]) -> set[str]:
        """Returns the tables that a condition asks, and those that the policies of these ask."""
        for name, column in list_names(condition):
            if not column and name not in seen:
                seen.add(name)
                self._list_asked(allowed_rows(self._catalogue.table(name), "SELECT", self._actor), seen)
        return seen

    def _list_changed(self, name: str, seen: set[str]) -> set[str]:
        """Returns a table and those whose rows change along with its own, through references."""
        if name not in seen:
            seen.add(name)
            for child, _, reference in self._catalogue.references_to(name):
                if reference.on_update not in _PASSIVE:
                    self._list_changed(child.name, seen)
        return seen
