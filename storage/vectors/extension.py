"""The extension pgvector (0.7 or later), without which a Postgres has no type for vectors.

A Postgres that lacks it keeps everything else. Its column of vectors is of bytes then, and empty, until a start finds
that the extension has come.
"""

from sqlalchemy import Connection, text

from baobab.storage.database import INSTALLATION, Database, Execute

INDEXED_DIMENSIONS = (256, 384, 512, 768, 1024, 1536, 3072)
"""Those of usual models. Vectors of others are compared one by one."""

_CREATE = text(
    "DO $$ BEGIN CREATE EXTENSION IF NOT EXISTS vector; "
    "EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_file THEN NULL; END $$"
)
_HAS_TYPE = text("SELECT to_regtype('halfvec') IS NOT NULL")
_IS_BYTES = text(
    "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('rag_vectors') AND attname = 'vector' "
    "AND atttypid = 'bytea'::regtype"
)


def create_extension(connection: Connection) -> bool:
    """Creates the extension where that is possible, and returns whether it is there."""
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


async def lacks_vectors(execute: Execute) -> bool:
    """Returns whether a Postgres was migrated without the extension."""
    return bool((await execute(_IS_BYTES)).scalar())


async def complete_vectors(database: Database) -> None:
    """Makes up for an extension that was not there when the database was migrated, if it is there now."""
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
