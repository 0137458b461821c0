"""The toolsets of integrations: an app's, and that of providers' webhooks."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.core.app_clones import never_clone
from baobab.tools.integrations.tables import APP_TABLES

integration_hooks = Toolset(
    "integration_hooks",
    "What providers of integrations send to this server.",
    base="/v1/integrations/_hooks",
    raises=(RateLimited, Unavailable),
    mcp=False,
)
integrations = Toolset(
    "integrations",
    "The accounts of an app's users at other services: Gmail, Slack, GitHub and more.",
    base="/v1/{app_id}/integrations",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    clones=(
        *never_clone("users connect their own accounts", "integration_connections", "integration_calls"),
        *never_clone("credentials; whoever clones enables the toolkits anew", "integration_toolkits"),
    ),
)
