"""The rows of files, in the database of the app's region. Their bytes are in the region's object store."""

from sqlalchemy import BigInteger, Boolean, Column, Index, String, Table, Text

from baobab.storage.sql.tables import Instant, Json, metadata
from baobab.tools.core import AppTable, Freezes
from baobab.tools.core.guard.own_prefixes import define_prefixes
from baobab.tools.core.traffic import define_traffic

FREEZES = Freezes("files")

files_table = Table(
    "files",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # Begins with the time at which it was made, so that the key is the order of a list.
    Column("id", String(36), primary_key=True),
    # The user that owns the file; null for a file of the app itself.
    Column("user_id", String(36)),
    Column("filename", String(255), nullable=False),
    Column("content_type", String(255), nullable=False),
    # Who stored it: `person`, `outside` or null (tools/core/guard/texts.py).
    Column("writer", String(10)),
    Column("size_bytes", BigInteger, nullable=False),
    # Whether every signed-in user may download it.
    Column("public", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    # Until then a file without bytes holds its room in the app's quota.
    Column("reserved_until", Instant, nullable=False),
    # The last segment of its key in the object store, which names the attempt that stored it; null without bytes.
    Column("stored_as", String(36)),
    Column("sha256", String(64)),
    Column("stored_at", Instant),
    # Texts by name, of whoever stored it; null for none.
    Column("metadata", Json),
    # Since when everybody may read it at its permanent address; null for files that are not published.
    Column("published_at", Instant),
    # Whether a resumable upload has not said its length yet: then `size_bytes` is what has arrived. Null if it has.
    Column("length_deferred", Boolean),
    # The header Upload-Metadata of a resumable upload, which its client reads again.
    Column("sent_metadata", Text),
    # The caller and the idempotency key that made it, as a digest, and one of what the call asked for.
    Column("request_key", String(64)),
    Column("request_digest", String(64)),
)
_columns = files_table.c
PENDING = _columns.stored_at.is_(None)
"""The condition for files without bytes."""
Index("ix_files_app_id_user_id_id", _columns.app_id, _columns.user_id, _columns.id)
Index("ix_files_app_id_filename_id", _columns.app_id, _columns.filename, _columns.id)
Index("ix_files_app_id_request_key", _columns.app_id, _columns.request_key, unique=True)
Index("ix_files_pending", _columns.app_id, _columns.reserved_until, sqlite_where=PENDING, postgresql_where=PENDING)

file_parts = Table(
    "file_parts",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("file_id", String(36), primary_key=True),
    # Where the part begins in the file: the parts of a file follow each other without gaps.
    Column("start_byte", BigInteger, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    # The last segment of its key in the object store.
    Column("stored_as", String(36), nullable=False),
)
"""The parts of resumable uploads that have arrived. They are deleted when the file is complete."""

file_usage = Table(
    "file_usage",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # As of the app's latest upload. Null until the first one after the organisations' room was counted.
    Column("organisation_id", String(36), index=True),
    # Sums over the files that have bytes, changed in the transactions that store and delete files.
    Column("used_bytes", BigInteger, nullable=False),
    Column("files_count", BigInteger, nullable=False),
)

file_usage_by_user = Table(
    "file_usage_by_user",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("user_id", String(36), primary_key=True),
    Column("used_bytes", BigInteger, nullable=False),
)
"""The part of `file_usage` that is each user's."""

file_traffic = define_traffic("file_traffic")
"""What published files have sent."""

own_folders = define_prefixes("file_own_folders")
"""The beginnings of names of files that an admin has marked as the app's own text."""

APP_TABLES = (
    AppTable(files_table, counted_as="files", counted_if=_columns.stored_at.is_not(None)),
    AppTable(file_parts),
    AppTable(file_usage),
    AppTable(file_usage_by_user),
    AppTable(own_folders),
    AppTable(file_traffic),
)


THUMBNAIL = "thumbnail"
"""The last segment of the key of a file's thumbnail, beside that of its bytes."""
PICTURE = "picture-"
"""The beginning of the last segment of the key of each other small copy."""


def build_folder(app_id: str, file_id: str) -> str:
    """Returns the prefix of a file's bytes in the object store. It holds nothing that a caller has chosen."""
    return f"{build_app_folder(app_id)}{file_id}/"


def build_app_folder(app_id: str) -> str:
    return f"{app_id}/files/"
