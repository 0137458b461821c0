"""The rows of sites, in the database of the app's region. The contents of files are in the region's object store."""

from sqlalchemy import BigInteger, Boolean, Column, String, Table, true

from baobab.storage.sql.tables import Instant, Json, Sealed, metadata
from baobab.tools.core import AppTable, Freezes
from baobab.tools.core.traffic import define_traffic

FREEZES = Freezes("sites")

sites_table = Table(
    "sites",
    metadata,
    Column("app_id", String(36), primary_key=True),
    # The deployment that visitors see. To change it is to publish.
    Column("live_id", String(36)),
    # The variables of the next build, as JSON.
    Column("variables", Sealed),
)

site_deployments = Table(
    "site_deployments",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("id", String(36), primary_key=True),
    # Counts the deployments of an app: the highest is the latest.
    Column("position", BigInteger, nullable=False),
    Column("status", String(10), nullable=False, index=True),
    Column("framework", String(20), nullable=False),
    # Whether visitors see it as soon as it is ready.
    Column("goes_live", Boolean, nullable=False, server_default=true()),
    # The last segment of the zip's key in the object store, which names the attempt that stored it.
    Column("upload_as", String(36)),
    Column("upload_bytes", BigInteger),
    Column("files_count", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    # What its files `_headers` and `_redirects` say (rules.py).
    Column("rules", Json, nullable=False),
    Column("warnings", Json, nullable=False),
    Column("error", Json),
    Column("created_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
)

site_files = Table(
    "site_files",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("deployment_id", String(36), primary_key=True),
    Column("path", String(500), primary_key=True),
    Column("sha256", String(64), nullable=False),
)

site_contents = Table(
    "site_contents",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("sha256", String(64), primary_key=True),
    # The deployment in whose folder of the object store it is. Others of the app may use it too.
    Column("stored_by", String(36), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    # Of the copy that is compressed already; null where there is none.
    Column("gzip_bytes", BigInteger),
)

site_traffic = define_traffic("site_traffic")

APP_TABLES = (
    AppTable(sites_table),
    AppTable(site_deployments),
    AppTable(site_contents),
    AppTable(site_files),
    AppTable(site_traffic),
)


def build_folder(app_id: str, deployment_id: str) -> str:
    """Returns the prefix of everything in the object store that a deployment has stored."""
    return f"{app_id}/sites/{deployment_id}/"


def build_upload_key(app_id: str, deployment_id: str, attempt: str) -> str:
    return f"{build_folder(app_id, deployment_id)}upload/{attempt}"


def build_content_key(app_id: str, stored_by: str, sha256: str, *, compressed: bool = False) -> str:
    return f"{build_folder(app_id, stored_by)}{sha256}{'.gz' if compressed else ''}"
