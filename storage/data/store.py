"""The interface of stores of apps' tables."""

from collections.abc import Callable, Hashable
from typing import Literal, Protocol, TypeVar

from baobab.storage.data.row_security import RowSecurity
from baobab.storage.sql.database import Unit
from baobab.storage.sql.statements import Statements

T = TypeVar("T")


class DataStore(Protocol):
    """Runs functions in transactions of one app's own database, whichever kind of database that is.

    A function gets the statements of the transaction, in the database's own SQL with `?` for a value. What it raises
    rolls the transaction back. It waits for nothing else, and a function that only reads may be called twice.

    unit: the unit of work of the call. The transaction is a part of it where both are in one database, and else has its
    own commit.
    """

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]: ...

    def name_table(self, app_id: str, table: str) -> str:
        """Returns the quoted name of an app's table. `table` has been checked to be a plain identifier."""
        ...

    @property
    def row_security(self) -> RowSecurity | None:
        """The roles under which statements for users and visitors run; None if the database has no roles."""
        ...

    async def open_row_security(self) -> None:
        """Creates these roles, if the database has roles and its user may create them."""
        ...

    async def exists(self, app_id: str) -> bool:
        """Returns whether the app has a database, which is created with its first table."""
        ...

    async def read(
        self,
        app_id: str,
        work: Callable[[Statements], T],
        unit: Unit | None = None,
        *,
        quick: bool = False,
        single: bool = False,
        caller: Hashable | None = None,
    ) -> T:
        """Calls a function that reads, and returns its result. The app's database must exist. Raises StatementTimeout.

        quick: whether the function looks at a row or two, whatever strangers ask for. single: whether it runs one
        statement, which is a transaction by itself; a second one may see what was committed in between. caller: for
        whom it reads, if not for the app itself: where reads wait for their turn, no caller takes all of an app's.
        """
        ...

    async def write(self, app_id: str, work: Callable[[Statements], T], unit: Unit | None = None) -> T:
        """Calls a function that changes rows, in a durable transaction that excludes other writers of the app, and
        returns its result.

        work: may be called more than once, as `Database.transact` says.
        """
        ...

    async def alter(self, app_id: str, work: Callable[[Statements], T], unit: Unit | None = None) -> T:
        """Calls a function that changes tables, as `write` does. Creates the app's database if there is none."""
        ...

    async def list_apps(self, *, without: tuple[str, str] | None = None) -> list[str]:
        """Returns the ids of the apps that have a database here. without: only those whose database lacks this table or
        column.
        """
        ...

    async def erase(self, app_id: str, unit: Unit | None = None) -> None:
        """Removes the app's database, if there is one."""
        ...

    async def close(self) -> None: ...
