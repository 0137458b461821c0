"""The extension pgvector (0.7 or later), without which Postgres has no type for vectors.

Everything else works without it. The column for vectors then has the type `bytea` and stays empty, until a start finds
the extension.
"""

from sqlalchemy import Connection, text

from baobab.storage.sql.database import INSTALLATION, Database, Execute

INDEXED_DIMENSIONS = (256, 384, 512, 768, 1024, 1536, 3072)
"""The dimensions of common models. Vectors of other dimensions are compared one by one."""

_CREATE = text(
    "DO $$ BEGIN CREATE EXTENSION IF NOT EXISTS vector; "
    "EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_file THEN NULL; END $$"
)
_IS_OFFERED = text(
    "SELECT to_regtype('halfvec') IS NOT NULL OR EXISTS (SELECT FROM pg_available_extensions "
    r"WHERE name = 'vector' AND default_version ~ '^(0\.([7-9]|\d\d)|[1-9])')"
)
_HAS_TYPE = text("SELECT to_regtype('halfvec') IS NOT NULL")
_IS_BYTES = text(
    "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('rag_vectors') AND attname = 'vector' "
    "AND atttypid = 'bytea'::regtype"
)


def create_extension(connection: Connection) -> bool:
    """Creates the extension if possible, and returns whether it exists."""
    connection.execute(_CREATE)
    return bool(connection.scalar(_HAS_TYPE))


def create_near_indexes(connection: Connection) -> None:
    for dimensions in INDEXED_DIMENSIONS:
        connection.execute(
            text(
                f"CREATE INDEX ix_rag_vectors_near_{dimensions} ON rag_vectors "
                f"USING hnsw ((vector::halfvec({dimensions})) halfvec_cosine_ops) WHERE dimensions = {dimensions}"
            )
        )


async def offers_vectors(database: Database) -> bool:
    """Returns whether a database has the extension or can create it. SQLite needs none."""
    if database.dialect != "postgresql":
        return True
    async with database.reading() as connection:
        return bool(await connection.scalar(_IS_OFFERED))


async def lacks_vectors(execute: Execute) -> bool:
    """Returns whether this Postgres was migrated without the extension."""
    return bool((await execute(_IS_BYTES)).scalar())


async def complete_vectors(database: Database) -> None:
    """Changes the column's type if the extension was missing during the migration and is there, or can be created,
    now.
    """
    if database.dialect != "postgresql":
        return
    async with database.reading() as connection:
        if not await lacks_vectors(connection.execute):
            return
    async with database.writing(lock=INSTALLATION, bulk=True) as connection:
        if await lacks_vectors(connection.execute):
            await connection.run_sync(_complete)


def _complete(connection: Connection) -> None:
    if create_extension(connection):
        # Nothing could be stored in it.
        connection.execute(text("ALTER TABLE rag_vectors ALTER COLUMN vector TYPE halfvec USING NULL::halfvec"))
        create_near_indexes(connection)
