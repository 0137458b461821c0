"""The Postgres roles under which statements for users and visitors run, so that row-level security applies to them."""

import logging
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import text

from baobab.storage.sql.database import Database

Job = Literal["user_reads", "user_writes", "visitor_reads", "visitor_writes"]
JOBS: tuple[Job, ...] = ("user_reads", "user_writes", "visitor_reads", "visitor_writes")

_log = logging.getLogger(__name__)
_NAMES = text("SELECT " + ", ".join(f"left(current_user, 48) || '_{job}'" for job in JOBS))
_MAY_CREATE = text("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user")
_LOOK = text(
    "SELECT oid, rolsuper OR rolbypassrls OR rolcanlogin, pg_has_role(oid, 'MEMBER') "
    "FROM pg_roles WHERE rolname = :name"
)
_DATABASE = text("SELECT oid FROM pg_database WHERE datname = current_database()")
SqlRole = Literal["sql", "sql_user", "sql_anon"]
SQL_ROLES: tuple[SqlRole, ...] = ("sql", "sql_user", "sql_anon")
"""The roles of one app under which the SQL of its own code runs: for the app itself, for its users, for visitors."""

_SETTINGS = ("role", "baobab.user_id", "baobab.user_role", "baobab.user_claims", "baobab.now", "baobab.upserts")
# It finds no row. libpq would cut the answer to the first statement of a pipeline into pieces, if the rows of the
# statement before it were read piece by piece.
_BECOME = "SELECT 1 WHERE concat(" + ", ".join(f"set_config('{name}', ?, true)" for name in _SETTINGS) + ") IS NULL"
_SQL_SETTINGS = (*_SETTINGS[:-1], "statement_timeout", "search_path")
_BECOME_SQL = (
    "SELECT 1 WHERE concat(" + ", ".join(f"set_config('{name}', ?, true)" for name in _SQL_SETTINGS) + ") IS NULL"
)


@dataclass(frozen=True, slots=True)
class RowSecurity:
    """The roles of one database.

    mark: distinguishes them from the roles of another server or database, whose names may be equal.
    """

    names: dict[Job, str]
    mark: str

    def become(
        self, job: Job, user_id: str | None, user_role: str | None, now: str, *, upserts: bool, claims: str = ""
    ) -> tuple[str, tuple[Any, ...]]:
        """Returns the statement, with its values, that makes the rest of a transaction run as a user or a visitor."""
        return _BECOME, (self.names[job], user_id or "", user_role or "", claims, now, "yes" if upserts else "")

    def name_sql_role(self, app_id: str, role: SqlRole) -> str:
        """Returns the name of a role of one app. Postgres allows 63 bytes."""
        owner = self.names["user_reads"].removesuffix("_user_reads").encode("ascii", "ignore").decode()
        return f"{owner[:16]}_{app_id[:36]}_{role}"

    def become_sql(
        self,
        app_id: str,
        role: SqlRole,
        user_id: str | None,
        user_role: str | None,
        now: str,
        *,
        seconds: float,
        claims: str = "",
    ) -> tuple[str, tuple[Any, ...]]:
        """Returns the statement, with its values, that makes the rest of a transaction run as a role of one app, each
        statement for so many seconds at most.
        """
        name, milliseconds = self.name_sql_role(app_id, role), f"{max(1, int(seconds * 1000))}ms"
        return _BECOME_SQL, (name, user_id or "", user_role or "", claims, now, milliseconds, "pg_catalog")


async def prepare_roles(database: Database) -> RowSecurity | None:
    """Returns the roles, and creates them if they are missing. Returns None, and logs why, if the database's user may
    not create them.
    """
    roles = await _find_roles(database) or await _create_roles(database)
    if roles is None:
        _log.warning(
            "Postgres's own row-level security does not guard the rows of apps: the database's user may not create "
            "roles. The policies still hold, as conditions of each statement. Create the four roles as docs/data.md "
            "shows (`Row-level security of Postgres`), or set BAOBAB_ROW_SECURITY=false to go without them."
        )
    return roles


async def _find_roles(database: Database) -> RowSecurity | None:
    async with database.reading() as connection:
        names = (await connection.execute(_NAMES)).one()
        rows = [(await connection.execute(_LOOK, {"name": name})).first() for name in names]
        if any(row is None or row[1] or not row[2] for row in rows):
            return None
        numbers = [(await connection.execute(_DATABASE)).scalar(), *(row[0] for row in rows if row is not None)]
        return RowSecurity(dict(zip(JOBS, names, strict=True)), ",".join(map(str, numbers)))


async def _create_roles(database: Database) -> RowSecurity | None:
    async with database.writing_unit(lock=None) as unit:
        if not (await unit.execute(_MAY_CREATE)).scalar():
            return None
        names = (await unit.execute(_NAMES)).one()
        for name in names:
            quoted_name = name.replace('"', '""')
            create = f'CREATE ROLE "{quoted_name}" NOLOGIN NOINHERIT'
            # Another server may create them at the same time.
            await unit.execute(
                text(f"DO $$ BEGIN {create}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$")
            )
            await unit.execute(text(f'GRANT "{quoted_name}" TO CURRENT_USER'))
    return await _find_roles(database)
