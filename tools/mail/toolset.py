"""The toolset of mail."""

from baobab.tools.core import AppMigrating, Toolset
from baobab.tools.core.app_events import AppEvent
from baobab.tools.mail.clones import CLONES
from baobab.tools.mail.tables import APP_TABLES

FAILED = "mail.failed"
_SAMPLE = {
    "mail_id": "5b2f7c9e-0000-4000-8000-000000000000",
    "to": "ada@mail.example",
    "template": "message",
    "reason": "550 no such mailbox",
}

mail = Toolset(
    "mail",
    "Mails that an app's users get: what was sent, and what waits in the outbox.",
    base="/v1/{app_id}/auth",
    raises=(AppMigrating,),
    app_tables=APP_TABLES,
    clones=CLONES,
    events=(
        AppEvent(FAILED, FAILED, "A mail of the app was refused for good, or could not be handed over.", _SAMPLE, "to"),
    ),
)
