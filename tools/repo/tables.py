"""The rows of repositories, in the database of the app's region. The contents are in the region's object store."""

from sqlalchemy import BigInteger, Column, String, Table

from baobab.storage.sql.tables import Instant, Json, metadata
from baobab.tools.core import AppTable, Freezes

FREEZES = Freezes("repo")

repo_snapshots = Table(
    "repo_snapshots",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # The digest of its files' names and contents.
    Column("id", String(64), primary_key=True),
    # As it was committed: `files`, and perhaps `message`.
    Column("manifest", Json, nullable=False),
    # Counts the commits of an app: the highest is the latest.
    Column("position", BigInteger, nullable=False),
    Column("created_at", Instant, nullable=False),
)

repo_blobs = Table(
    "repo_blobs",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("sha256", String(64), primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    # The last segment of its key in the object store, which names the attempt that stored it.
    Column("stored_as", String(36), nullable=False),
    # When it was stored, or last found to be there by somebody who prepares a snapshot.
    Column("used_at", Instant, nullable=False),
)

APP_TABLES = (AppTable(repo_blobs), AppTable(repo_snapshots))


def build_key(app_id: str, sha256: str, stored_as: str) -> str:
    """Returns the key of a content in the object store."""
    return f"{app_id}/repo/{sha256}/{stored_as}"
