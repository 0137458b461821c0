"""The toolset of agents."""

from baobab.tools.agents.data import APP_TABLES, stop_runs
from baobab.tools.agents.errors import ENVELOPE
from baobab.tools.core.errors import AppMigrating, RateLimited, Unavailable
from baobab.tools.core.toolset import Toolset

agents = Toolset(
    "agents",
    "Agents of an app: graphs of models and tools, their runs, and the decisions that those wait for.",
    base="/v1/{app_id}",
    envelope=ENVELOPE,
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    stop=stop_runs,
)
