"""The toolset of the repository."""

from baobab.tools.core.errors import AppMigrating, RateLimited, Unavailable
from baobab.tools.core.toolset import Toolset
from baobab.tools.repo.tables import APP_TABLES

repo = Toolset(
    "repo",
    "The repository of an app: snapshots of its source files.",
    base="/v1/{app_id}/repo",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
)
