"""The toolset of triggers."""

from baobab.tools.core import AppMigrating, RateLimited, Toolset, Unavailable
from baobab.tools.core.app_events import HOUR, AppEvent
from baobab.tools.triggers.clones import CLONES
from baobab.tools.triggers.tables import APP_TABLES

triggers = Toolset(
    "triggers",
    "What starts by itself in an app: when something happens, or at an hour, an agent runs or a webhook is sent.",
    base="/v1/{app_id}",
    raises=(RateLimited, Unavailable, AppMigrating),
    app_tables=APP_TABLES,
    clones=CLONES,
    events=(
        AppEvent(
            HOUR,
            HOUR,
            "It is an hour of the trigger's own schedule.",
            {"schedule": "0 7 * * *", "timezone": "UTC", "scheduled_at": "2027-01-15T07:00:00+00:00"},
            "schedule",
        ),
    ),
)
