"""The toolset of the repository."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.repo.clones import CLONES
from baobab.tools.repo.tables import APP_TABLES

repo = Toolset(
    "repo",
    "The repository of an app: snapshots of its source files.",
    base="/v1/{app_id}/repo",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    clones=CLONES,
)
