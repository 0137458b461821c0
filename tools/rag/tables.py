"""The rows of retrieval, in the database of the app's region.

A document has versions: the one that searches see, and perhaps the next, which a job prepares. Texts, chunks and
vectors belong to a version, so that a document is replaced in one transaction, and searches see the old one until then.
"""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, metadata
from baobab.storage.vectors.halves import HalfVector
from baobab.tools.core import AppTable, Freezes

FREEZES = Freezes("rag")

_ID = String(36)

collections = Table(
    "rag_collections",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("id", _ID, primary_key=True),
    Column("name", String(100), nullable=False),
    Column("description", String(500)),
    # `private`, `shared` or `custom`.
    Column("access_mode", String(20), nullable=False),
    # Whether an admin has marked its texts as the app's own; null is no.
    Column("own_text", Boolean),
    # In characters.
    Column("chunk_size", Integer, nullable=False),
    Column("chunk_overlap", Integer, nullable=False),
    # The model that new vectors are made with; null until the first document tells which one it is.
    Column("embedding_model", String(200)),
    Column("dimensions", Integer),
    # The bytes of its documents' texts, which count against what the app may keep.
    Column("size_bytes", BigInteger, nullable=False),
    # Counts the changes that searches can notice: a cache compares this number.
    Column("revision", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("uq_rag_collections_name", "app_id", "name", unique=True),
)

documents = Table(
    "rag_documents",
    metadata,
    Column("app_id", _ID, primary_key=True),
    # Begins with the time at which it was made, so that the key is the order of a list.
    Column("id", _ID, primary_key=True),
    Column("collection_id", _ID, nullable=False),
    # The user that it belongs to; null for a document of the app itself.
    Column("user_id", _ID),
    Column("filename", String(255)),
    # Where its latest version is fetched from; null for a text or a file.
    Column("url", String(2000)),
    Column("metadata", Json, nullable=False),
    # `pending`, `processing`, `ready` or `failed`: of the latest version.
    Column("status", String(20), nullable=False),
    Column("error_message", String(500)),
    # The version that searches see; null while there is none.
    Column("version", Integer),
    Column("chunk_count", Integer, nullable=False),
    # The model that the vectors of that version were made with.
    Column("embedding_model", String(200)),
    Column("dimensions", Integer),
    # Who stored the version that searches see, and who the next one: `person`, `outside` or null (core/guard/texts.py).
    Column("writer", String(10)),
    Column("next_writer", String(10)),
    # The version that a job prepares, the job, and how far it is.
    Column("next_version", Integer),
    Column("ingest_id", String(60)),
    Column("chunks_done", Integer, nullable=False),
    Column("chunks_total", Integer, nullable=False),
    Column("attempts", Integer, nullable=False),
    # Where the text comes from: a file of the app, or null for a text that came with the call.
    Column("object_id", _ID),
    Column("media_type", String(255)),
    Column("title", String(500)),
    Column("pages", Integer),
    # Whether the next version is made from the text of the one that searches see.
    Column("keeps_text", Boolean, nullable=False),
    # The bytes of its text in UTF-8; null while they are not known.
    Column("size_bytes", BigInteger, nullable=False),
    # The digest of the content, in hexadecimal: the same content is stored once.
    Column("sha256", String(64), nullable=False),
    # The key that pays for the vectors; null for the app itself.
    Column("key_id", String(60)),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("ix_rag_documents_collection_id", "app_id", "collection_id", "id"),
    Index("ix_rag_documents_sha256", "app_id", "collection_id", "sha256"),
    Index("ix_rag_documents_status", "status", "updated_at"),
)

texts = Table(
    "rag_texts",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("document_id", _ID, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("collection_id", _ID, nullable=False),
    Column("text", Text, nullable=False),
    # The blocks that begin in this part: kind, level, page, start, end.
    Column("blocks", Json, nullable=False),
    Index("ix_rag_texts_collection_id", "app_id", "collection_id"),
)
"""The text of a document in parts of equal length, and the blocks that its parser found."""

chunks = Table(
    "rag_chunks",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("document_id", _ID, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    # A random one, by which the full-text index of SQLite names it.
    Column("number", BigInteger, nullable=False),
    Column("collection_id", _ID, nullable=False),
    # Where the chunk is in the document's text, in characters.
    Column("start_char", Integer, nullable=False),
    Column("end_char", Integer, nullable=False),
    Column("page", Integer),
    # The headings that it stands below, the outermost first.
    Column("headings", Json, nullable=False),
    Column("text", Text, nullable=False),
    # The words of headings and text as the full-text index has them, separated by spaces.
    Column("words", Text, nullable=False),
    Index("uq_rag_chunks_number", "number", unique=True),
    Index("ix_rag_chunks_collection_id", "app_id", "collection_id"),
)

vectors = Table(
    "rag_vectors",
    metadata,
    Column("app_id", _ID, primary_key=True),
    Column("document_id", _ID, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("collection_id", _ID, nullable=False),
    Column("dimensions", Integer, nullable=False),
    # A vector of length 1.
    Column("vector", HalfVector, nullable=False),
    Index("ix_rag_vectors_collection_id", "app_id", "collection_id"),
)

APP_TABLES = (
    *(AppTable(table) for table in (collections, documents, texts, chunks)),
    AppTable(vectors, counted_as="vectors"),
)
