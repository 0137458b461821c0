"""Baobab's own tables in each app's database, beside the tables of the app."""

from functools import partial

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.advice import slow_statements
from baobab.tools.data.history import change_log
from baobab.tools.data.history.usage import Counter
from baobab.tools.data.rows import attempts
from baobab.tools.data.schema.catalogue import read_catalogue

OWN_TABLES = {
    "_catalogue": (
        "document text NOT NULL, version integer NOT NULL, frozen integer NOT NULL, guard text, channels text"
    ),
    "_migrations": (
        "id text PRIMARY KEY, position integer NOT NULL, name text, statements text NOT NULL, applied_at text NOT NULL"
    ),
    "_sequences": "name text PRIMARY KEY, last bigint NOT NULL",
    "_idempotency_keys": attempts.COLUMNS,
    "_usage": "name text PRIMARY KEY, bytes bigint NOT NULL",
    "_changes": change_log.COLUMNS,
    "_presence": (
        "client_id text PRIMARY KEY, process text NOT NULL, user_id text, metadata text NOT NULL, "
        "seen_at text NOT NULL, channel text"
    ),
    "_slow_statements": slow_statements.COLUMNS,
    "_outside_rows": "id text PRIMARY KEY, name text NOT NULL, key text NOT NULL",
    "_messages": "id bigint PRIMARY KEY, kind text NOT NULL, fields text NOT NULL, at text NOT NULL",
}
"""The columns of each table, by the name of the table."""
_NEWEST = ("_outside_rows", "key")
"""The newest table and column of Baobab's own. A database that has it has all of them."""


def create_own_tables(statements: Statements, store: DataStore, app_id: str) -> None:
    """Creates Baobab's own tables in an app's database, if they do not exist yet."""
    for name, columns in OWN_TABLES.items():
        statements.rows(f"CREATE TABLE IF NOT EXISTS {store.name_table(app_id, name)} ({columns})")
    for column in attempts.LATER_COLUMNS:
        _add_column(statements, store, app_id, "_idempotency_keys", column)
    _add_column(statements, store, app_id, "_catalogue", "guard text")
    # Before `channels` of the catalogue, which is the newest.
    _add_column(statements, store, app_id, "_presence", "channel text")
    _add_column(statements, store, app_id, "_catalogue", "channels text")
    statements.rows(
        f'CREATE INDEX IF NOT EXISTS "_changes_run" ON {store.name_table(app_id, "_changes")} {change_log.INDEX}'
    )
    if store.dialect == "postgresql":
        _create_fold(statements, store.name_table(app_id, "_fold"))
    table = store.name_table(app_id, "_catalogue")
    statements.rows(
        f"INSERT INTO {table} (document, version, frozen) SELECT '{{}}', 0, 0 WHERE NOT EXISTS (SELECT 1 FROM {table})"
    )


async def upgrade_databases(store: DataStore) -> None:
    """Upgrades the databases of all apps of a store. Two servers may do so at once. A killed upgrade leaves each app
    either as it was or upgraded.
    """
    for app_id in await store.list_apps(without=_NEWEST):
        await store.alter(app_id, partial(_upgrade_database, store=store, app_id=app_id))


def _upgrade_database(statements: Statements, store: DataStore, app_id: str) -> None:
    create_own_tables(statements, store, app_id)
    counter = Counter(statements, store, app_id)
    for table in read_catalogue(statements, store, app_id).tables.values():
        if not counter.is_counting(table):
            counter.stop(table)
            counter.start(table)


def _add_column(statements: Statements, store: DataStore, app_id: str, table: str, column: str) -> None:
    """Adds a column to an own table that an earlier version made without it."""
    name = store.name_table(app_id, table)
    if store.dialect == "postgresql":
        statements.rows(f"ALTER TABLE {name} ADD COLUMN IF NOT EXISTS {column}")
    elif not statements.rows("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", table, column.split(maxsplit=1)[0]):
        statements.rows(f"ALTER TABLE {name} ADD COLUMN {column}")


def _create_fold(statements: Statements, name: str) -> None:
    """Creates the function that makes letters small. In the order of codes, `lower` knows English letters only."""
    collations = {row[0] for row in statements.rows("SELECT collname FROM pg_collation")}
    collation = next((each for each in ("pg_c_utf8", "und-x-icu") if each in collations), "default")
    statements.rows(
        f"CREATE OR REPLACE FUNCTION {name}(text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE "
        f"""AS 'SELECT lower($1 COLLATE "{collation}")'"""
    )
