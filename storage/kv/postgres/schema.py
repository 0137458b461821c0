"""The tables of the Postgres engine, in their own schema."""

from __future__ import annotations

from psycopg import AsyncConnection

from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.postgres.statements import lock_id

VERSION = 2

# Keys are compared bytewise. `keys` and `bytes` of usage count every stored entry, also expired ones. Readers of live
# totals subtract those, which is why the index begins with the space. Free room in the pages lets a counter's next
# value go beside its last one, without a change of any index.
_TABLES = b"""
CREATE SCHEMA IF NOT EXISTS kv;
CREATE TABLE IF NOT EXISTS kv.version (version integer NOT NULL);
CREATE TABLE IF NOT EXISTS kv.entries (
    space text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value bytea NOT NULL,
    expires bigint,
    "window" bigint,
    tier smallint NOT NULL,
    PRIMARY KEY (space, key)
) WITH (fillfactor = 80);
CREATE INDEX IF NOT EXISTS entries_expiry ON kv.entries (space, expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS kv.usage (
    space text COLLATE "C" PRIMARY KEY,
    keys bigint NOT NULL,
    bytes bigint NOT NULL
) WITH (fillfactor = 50);
INSERT INTO kv.version SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM kv.version);
"""

# The index holds only frozen spaces, so that checking for any costs next to nothing.
_FROM_1_TO_2 = b"""
ALTER TABLE kv.usage ADD COLUMN frozen boolean NOT NULL DEFAULT false;
CREATE INDEX usage_frozen ON kv.usage (space) WHERE frozen;
UPDATE kv.version SET version = 2;
"""


async def prepare(connection: AsyncConnection[tuple[int]]) -> None:
    """Creates missing tables. Raises StoreUnavailable for tables of a later release.

    Running processes of the previous release keep working with the new tables, but cannot start on them.
    """
    async with connection.transaction():
        # IF NOT EXISTS does not keep two processes from creating a table at the same time.
        await connection.execute(b"SELECT pg_advisory_xact_lock(%s)", (lock_id("the schema"),))
        cursor = await connection.execute(b"SELECT 1 WHERE to_regclass('kv.version') IS NOT NULL")
        if await cursor.fetchone() is None:
            await connection.execute(_TABLES)
        version = await _read_version(connection)
        if version == 1:
            await connection.execute(_FROM_1_TO_2)
            version = await _read_version(connection)
        if version != VERSION:
            raise StoreUnavailable(f"the tables have version {version}, but this release needs {VERSION}")


async def _read_version(connection: AsyncConnection[tuple[int]]) -> int:
    cursor = await connection.execute(b"SELECT max(version) FROM kv.version")
    [[version]] = await cursor.fetchall()
    return version
