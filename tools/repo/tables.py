"""The rows of repositories, in the database of the app's region. The contents are in the region's object store."""

from sqlalchemy import BigInteger, Boolean, Column, String, Table

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

repo_settings = Table(
    "repo_settings",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # Whether a push deploys the functions in the folder `functions`.
    Column("deploys_functions", Boolean, nullable=False),
    # The snapshot that is to be deployed, and who pushed it, in the form of tools/core/auth/proposers.py.
    Column("snapshot_id", String(64)),
    Column("pusher", Json),
    # The one job that deploys for the app, and since when; null while there is nothing to do.
    Column("job_id", String(36)),
    Column("job_at", Instant),
    # The digest of what was last deployed of each function, by name.
    Column("digests", Json, nullable=False),
    # What became of the last push: `snapshot_id`, `at`, `functions`, `error`.
    Column("outcome", Json),
)

APP_TABLES = (AppTable(repo_blobs), AppTable(repo_snapshots), AppTable(repo_settings))


def build_key(app_id: str, sha256: str, stored_as: str) -> str:
    """Returns the key of a content in the object store."""
    return f"{app_id}/repo/{sha256}/{stored_as}"
