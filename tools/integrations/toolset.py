"""The toolsets of integrations: an app's, and that of providers' webhooks."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.core.app_clones import never_clone
from baobab.tools.core.app_events import AppEvent
from baobab.tools.integrations.tables import APP_TABLES

CONNECTED, EXPIRED, DISCONNECTED = "integration.connected", "integration.expired", "integration.disconnected"
_SAMPLE = {
    "connection_id": "5b2f7c9e-0000-4000-8000-000000000000",
    "toolkit": "gmail",
    "user_id": "0c9d1a55-0000-4000-8000-000000000000",
    "account_name": "ada@mail.example",
}
_EXPIRED_SAMPLE = {**_SAMPLE, "reason": "The service does not accept the account any more."}

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
    events=(
        AppEvent(CONNECTED, CONNECTED, "A user connected an account at a service.", _SAMPLE, "connection_id"),
        AppEvent(EXPIRED, EXPIRED, "A service has ended an account's connection.", _EXPIRED_SAMPLE, "connection_id"),
        AppEvent(DISCONNECTED, DISCONNECTED, "An account was disconnected.", _SAMPLE, "connection_id"),
    ),
)
