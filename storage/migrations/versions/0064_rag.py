"""Apps keep collections of documents and search them."""

import sqlalchemy as sa
from alembic import op

from baobab.storage.sql.tables import Instant, Json
from baobab.storage.vectors.extension import create_extension
from baobab.storage.vectors.halves import HalfVector

revision = "0064"
down_revision = "0063"

_SQLITE = (
    # It keeps the index and no copy of the words.
    "CREATE VIRTUAL TABLE rag_chunks_fts USING fts5(words, content='rag_chunks',"
    " content_rowid='number', tokenize='unicode61 remove_diacritics 0')",
    "CREATE TRIGGER rag_chunks_inserted AFTER INSERT ON rag_chunks BEGIN"
    " INSERT INTO rag_chunks_fts(rowid, words) VALUES (new.number, new.words); END",
    "CREATE TRIGGER rag_chunks_deleted AFTER DELETE ON rag_chunks BEGIN"
    " INSERT INTO rag_chunks_fts(rag_chunks_fts, rowid, words) VALUES ('delete', old.number, old.words); END",
)
_POSTGRES = (
    "ALTER TABLE rag_chunks ADD COLUMN words_vector tsvector GENERATED ALWAYS AS (to_tsvector('simple', words)) STORED",
    "CREATE INDEX ix_rag_chunks_words_vector ON rag_chunks USING gin (words_vector)",
)


def upgrade() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    has_vectors = not is_postgres or create_extension(op.get_bind())
    _create_collections()
    _create_documents()
    _create_parts(HalfVector() if has_vectors else sa.LargeBinary())
    for statement in _POSTGRES if is_postgres else _SQLITE:
        op.execute(statement)


def _create_collections() -> None:
    op.create_table(
        "rag_collections",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("description", sa.String(500)),
        sa.Column("access_mode", sa.String(20), nullable=False),
        sa.Column("chunk_size", sa.Integer(), nullable=False),
        sa.Column("chunk_overlap", sa.Integer(), nullable=False),
        sa.Column("embedding_model", sa.String(200)),
        sa.Column("dimensions", sa.Integer()),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_rag_collections")),
    )
    op.create_index("uq_rag_collections_name", "rag_collections", ["app_id", "name"], unique=True)


def _create_documents() -> None:
    op.create_table(
        "rag_documents",
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("collection_id", sa.String(36), nullable=False),
        sa.Column("user_id", sa.String(36)),
        sa.Column("filename", sa.String(255)),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("error_message", sa.String(500)),
        sa.Column("version", sa.Integer()),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("embedding_model", sa.String(200)),
        sa.Column("dimensions", sa.Integer()),
        sa.Column("next_version", sa.Integer()),
        sa.Column("ingest_id", sa.String(60)),
        sa.Column("chunks_done", sa.Integer(), nullable=False),
        sa.Column("chunks_total", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("object_id", sa.String(36)),
        sa.Column("media_type", sa.String(255)),
        sa.Column("title", sa.String(500)),
        sa.Column("pages", sa.Integer()),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(60)),
        sa.Column("created_at", Instant, nullable=False),
        sa.Column("updated_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "id", name=op.f("pk_rag_documents")),
    )
    op.create_index("ix_rag_documents_collection_id", "rag_documents", ["app_id", "collection_id", "id"])
    op.create_index("ix_rag_documents_sha256", "rag_documents", ["app_id", "collection_id", "sha256"])
    op.create_index("ix_rag_documents_status", "rag_documents", ["status", "updated_at"])


def _version_columns() -> tuple[sa.Column[object], ...]:
    return (
        sa.Column("app_id", sa.String(36), nullable=False),
        sa.Column("document_id", sa.String(36), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
    )


def _create_parts(vector: sa.types.TypeEngine[bytes]) -> None:
    op.create_table(
        "rag_texts",
        *_version_columns(),
        sa.Column("part", sa.Integer(), nullable=False),
        sa.Column("collection_id", sa.String(36), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("blocks", Json, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "document_id", "version", "part", name=op.f("pk_rag_texts")),
    )
    op.create_index("ix_rag_texts_collection_id", "rag_texts", ["app_id", "collection_id"])
    op.create_table(
        "rag_chunks",
        *_version_columns(),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("collection_id", sa.String(36), nullable=False),
        sa.Column("start_char", sa.Integer(), nullable=False),
        sa.Column("end_char", sa.Integer(), nullable=False),
        sa.Column("page", sa.Integer()),
        sa.Column("headings", Json, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("words", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("app_id", "document_id", "version", "position", name=op.f("pk_rag_chunks")),
    )
    op.create_index("uq_rag_chunks_number", "rag_chunks", ["number"], unique=True)
    op.create_index("ix_rag_chunks_collection_id", "rag_chunks", ["app_id", "collection_id"])
    op.create_table(
        "rag_vectors",
        *_version_columns(),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("collection_id", sa.String(36), nullable=False),
        sa.Column("dimensions", sa.Integer(), nullable=False),
        sa.Column("vector", vector, nullable=False),
        sa.PrimaryKeyConstraint("app_id", "document_id", "version", "position", name=op.f("pk_rag_vectors")),
    )
    op.create_index("ix_rag_vectors_collection_id", "rag_vectors", ["app_id", "collection_id"])
