"""The toolset of mail."""

from baobab.tools.core import AppMigrating, Toolset
from baobab.tools.mail.clones import CLONES
from baobab.tools.mail.tables import APP_TABLES

mail = Toolset(
    "mail",
    "Mails that an app's users get: what was sent, and what waits in the outbox.",
    base="/v1/{app_id}/auth",
    raises=(AppMigrating,),
    app_tables=APP_TABLES,
    clones=CLONES,
)
