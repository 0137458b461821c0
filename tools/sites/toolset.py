"""The toolset of sites."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.sites.clones import CLONES
from baobab.tools.sites.tables import APP_TABLES

sites = Toolset(
    "sites",
    "The site of an app: web pages that are deployed as files and served on the app's own host.",
    base="/v1/{app_id}/frontend",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    clones=CLONES,
)
