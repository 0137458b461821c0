"""The toolsets of functions: what those who run an app do with them, and what everybody else does."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.functions.clones import CLONES
from baobab.tools.functions.errors import CallEnvelope
from baobab.tools.functions.tables import APP_TABLES

functions = Toolset(
    "functions",
    "Code that runs beside an app's data: at an address, at an hour, after an upload, or for a webhook.",
    base="/v1/{app_id}",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    clones=CLONES,
)
function_calls = Toolset(
    "function_calls",
    "Calls of an app's functions.",
    base="/v1/{app_id}",
    envelope=CallEnvelope(),
    raises=(RateLimited, Unavailable),
    mcp=False,
)
