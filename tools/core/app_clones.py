"""What a clone of an app has of it: each toolset declares of everything that it stores for an app whether it is copied.

A copy is made by steps that may be made twice: what one of them writes has ids that follow from the job and from what
is copied, and what is there already stays.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args
from uuid import UUID, uuid5

from sqlalchemy import ColumnElement, Table, select, tuple_

from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Execute
from baobab.storage.sql.tables import Sealed, build_upsert
from baobab.tools.core.services import Services
from baobab.tools.core.stores import Stores

Step = Literal[
    "processing",
    "replaying_schema",
    "replaying_rls",
    "replaying_durable_objects",
    "replaying_functions",
    "replaying_config",
    "copying_repo",
    "seeding_data",
]
STEPS: tuple[Step, ...] = get_args(Step)
"""What a job does with a clone, in this order; then the app appears."""
_IDS = UUID("6c1ac1f0-55a7-4b5e-9d39-2f1f6f5f0f9e")
_ROWS_AT_ONCE = 200


class CloneRefused(Exception):
    """Raised by a step where the clone cannot be made, however often it is tried. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """An app with the stores of its region, and what opens the secrets of its rows."""

    app_id: str
    stores: Stores
    vault: Vault


@dataclass(frozen=True, slots=True)
class Cloning:
    """One clone in the making, as the steps see it."""

    services: Services
    job_id: str
    source: Place
    dest: Place
    account_id: str
    """The account that makes the clone."""
    maker: Mapping[str, Any]
    """The same as a caller, in the form of tools/core/auth/proposers.py."""
    started_at: datetime
    """When the copy was asked for: the time at which everything in it was made."""
    env_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    """The values of environment variables, by function and name, that came with the request."""
    warnings: list[str] = field(default_factory=list)
    """What the owner of the copy should know."""

    def derive_id(self, kind: str, id_: str) -> str:
        """Returns the id in the copy of something in the source: the same in every attempt."""
        return str(uuid5(_IDS, f"{self.job_id}:{self.dest.app_id}:{kind}:{id_}"))

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)


@dataclass(frozen=True, slots=True)
class Ability:
    """Something that an app can do beyond keeping rows, which whoever clones it should know."""

    kind: str
    """Such as `trigger`, `public_agent` or `host`."""
    name: str
    says: str
    """A sentence about it."""
    is_on: bool = True
    tool: str | None = None
    """The tool that switches it on."""


APP_VARIABLE = "app_variable"
"""The kind of ability that is an environment variable of all functions; its name is the variable's."""
Row = Mapping[str, Any]
Change = Callable[[Cloning, dict[str, Any]], dict[str, Any] | None]
"""Makes the row of the copy from the row of the source; None leaves it out."""


@dataclass(frozen=True, slots=True)
class NeverCloned:
    """What a clone never has. `name` is that of the table, or what people call a store that is none."""

    name: str
    because: str
    list_abilities: Callable[[Services, Place], Awaitable[Iterable[Ability]]] | None = None
    """What the app can do with it. A clone without that says so, and which tool sets it anew."""


@dataclass(frozen=True, slots=True)
class ClonedRows:
    """A table of which a clone has rows."""

    table: Table
    step: Step
    what: str
    """What is copied, in words for docs/templates.md."""
    change: Change
    """Sets whatever must be another value in the copy. The app's id is set already."""
    where: Callable[[str], ColumnElement[bool]] | None = None
    """The condition for the rows that are copied; None for all of the app."""
    list_abilities: Callable[[Row], Iterable[Ability]] | None = None
    app_column: str = "app_id"
    is_code: bool = True
    is_home: bool = False
    """Whether the table is in the installation's own database: it is written together with the app's own row."""

    @property
    def name(self) -> str:
        return self.table.name

    async def read(self, execute: Execute, app_id: str) -> AsyncIterator[list[dict[str, Any]]]:
        """Yields the rows that are copied, some hundred at a time."""
        key_columns = list(self.table.primary_key.columns)
        columns = [column for column in key_columns if column.name != self.app_column] or key_columns
        query = select(self.table).where(self.table.c[self.app_column] == app_id)
        if self.where is not None:
            query = query.where(self.where(app_id))
        query = query.order_by(*columns).limit(_ROWS_AT_ONCE)
        page_query = query
        while True:
            rows = [dict(row) for row in (await execute(page_query)).mappings()]
            if rows:
                yield rows
            if len(rows) < _ROWS_AT_ONCE:
                return
            page_query = query.where(tuple_(*columns) > tuple_(*(rows[-1][column.name] for column in columns)))

    async def copy(self, cloning: Cloning, execute: Execute | None = None) -> None:
        """Copies the rows; those that are there already stay.

        execute: of the transaction that makes the app's own row, for a table of the installation's own database.
        """
        services, dest = cloning.services, cloning.dest
        async for rows in self.read(execute or cloning.source.stores.database.execute, cloning.source.app_id):
            copies = [self.change(cloning, {**row, self.app_column: dest.app_id}) for row in rows]
            values = [copy for copy in copies if copy is not None]
            if not values:
                continue
            if execute is not None:
                for value in values:
                    await execute(self._insert(services.database.dialect), value)
                continue
            async with dest.stores.database.writing(lock=dest.app_id, bulk=True) as connection:
                await connection.execute(self._insert(dest.stores.database.dialect), values)

    def read_texts(self, row: Row) -> Iterable[tuple[str, str]]:
        """Yields the texts of a row by where they stand, for the search for secrets. What is sealed is not read."""
        for column in self.table.columns:
            if not isinstance(column.type, Sealed):
                for text in _list_texts(row[column.name]):
                    yield f"{self.name}.{column.name}", text

    def _insert(self, dialect: str) -> Any:
        return build_upsert(dialect, self.table).on_conflict_do_nothing()


@dataclass(frozen=True, slots=True)
class ClonedStore:
    """Something that a toolset copies by itself: tables of the app, or contents in the object store.

    copies: makes the copy, by the step. Each function may be called twice.
    tables: the names of the tables of Baobab's own that it takes care of.
    outline: what a template's page shows of it, by field, such as `tables`.
    read_texts: yields texts by where they stand, for the search for secrets.
    list_env: the names of the environment variables that each function needs.
    """

    name: str
    what: str
    copies: Mapping[Step, Callable[[Cloning], Awaitable[None]]]
    tables: Sequence[str] = ()
    outline: Callable[[Place], Awaitable[Mapping[str, list[Any]]]] | None = None
    list_abilities: Callable[[Place], Awaitable[Iterable[Ability]]] | None = None
    read_texts: Callable[[Place], AsyncIterator[tuple[str, str]]] | None = None
    list_env: Callable[[Place], Awaitable[Mapping[str, Sequence[str]]]] | None = None
    is_code: bool = False
    """Whether its texts are code, so that the hosts which they name are listed."""


CloneRule = NeverCloned | ClonedRows | ClonedStore


def never_clone(
    because: str,
    *names: str,
    list_abilities: Callable[[Services, Place], Awaitable[Iterable[Ability]]] | None = None,
) -> tuple[NeverCloned, ...]:
    """Declares what a clone never has, for one reason: tables, or stores that are none.

    list_abilities: of the first one, what the app can do with it.
    """
    return tuple(NeverCloned(name, because, None if number else list_abilities) for number, name in enumerate(names))


def _list_texts(value: Any) -> Iterable[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, item in value.items():
                yield from _list_texts(name)
                yield from _list_texts(item)
        case list():
            for item in value:
                yield from _list_texts(item)
