"""The toolset of files."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.core.app_clones import never_clone
from baobab.tools.core.app_events import AppEvent
from baobab.tools.files.tables import APP_TABLES

STORED, DELETED = "file.stored", "file.deleted"
_SAMPLE = {
    "object_id": "5b2f7c9e-0000-4000-8000-000000000000",
    "key": "app_x/5b2f7c9e/report.pdf",
    "filename": "report.pdf",
    "content_type": "application/pdf",
    "size_bytes": 18_231,
    "user_id": None,
}
TUS = {"tus-resumable": "1.0.0"}
"""The header of every answer of the protocol tus."""

files = Toolset(
    "files",
    "Files of an app and of its users: upload, list, download and delete them.",
    base="/storage/{app_id}",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    clones=(
        *never_clone("files are data", "files", "file_parts", "file_usage", "file_usage_by_user"),
        *never_clone("history", "file_traffic"),
        *never_clone("marks of the app's own texts: a copy's texts are a stranger's", "file_own_folders"),
    ),
    events=(
        AppEvent("file.stored", STORED, "The bytes of a file have arrived.", _SAMPLE, "object_id"),
        AppEvent("file.deleted", DELETED, "A file was deleted.", _SAMPLE, "object_id"),
    ),
)
