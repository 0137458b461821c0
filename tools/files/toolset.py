"""The toolset of files."""

from baobab.tools.core.errors import AppMigrating, RateLimited, Unavailable
from baobab.tools.core.toolset import Toolset
from baobab.tools.files.tables import APP_TABLES

TUS = {"tus-resumable": "1.0.0"}
"""The header of every answer of the protocol tus."""

files = Toolset(
    "files",
    "Files of an app and of its users: upload, list, download and delete them.",
    base="/storage/{app_id}",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
)
