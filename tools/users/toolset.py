"""The toolsets of users: sign-in, which speaks to apps' front ends, and the administration for those who run an app."""

from baobab.tools.core.errors import AppMigrating
from baobab.tools.core.toolset import Toolset
from baobab.tools.users.errors import ENVELOPE
from baobab.tools.users.tables import APP_TABLES

auth = Toolset(
    "auth",
    "Sign-in of an app's users.",
    base="/auth/{app_id}",
    envelope=ENVELOPE,
    raises=(AppMigrating,),
    # They take passwords and codes of people, which no model should see.
    mcp=False,
)

users = Toolset(
    "users",
    "Users of an app: list, invite, ban and remove them, end their sessions.",
    base="/v1/{app_id}",
    raises=(AppMigrating,),
    app_tables=APP_TABLES,
)
