"""The toolsets of users: sign-in, which speaks to apps' front ends, and the administration for those who run an app."""

from baobab.tools.core import AppMigrating, Toolset
from baobab.tools.core.app_events import AppEvent
from baobab.tools.users.clones import CLONES
from baobab.tools.users.errors import ENVELOPE
from baobab.tools.users.events import AUTHENTICATED, DELETED, EMAIL_VERIFIED
from baobab.tools.users.tables import APP_TABLES

_USER = {"id": "5b2f7c9e-0000-4000-8000-000000000000", "email": "ada@mail.example", "display_name": "Ada"}
_SIGNED_IN = {
    "event": "email_login",
    "user": {**_USER, "avatar_url": None, "provider": "email"},
    "isNewUser": False,
    "provider": "email",
}
_CHANGED = {"user": _USER}

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
    clones=CLONES,
    events=(
        AppEvent("user.signed_in", AUTHENTICATED, "A user signed in or up.", _SIGNED_IN, "user.id"),
        AppEvent(
            "user.signed_up",
            AUTHENTICATED,
            "A user signed up.",
            {**_SIGNED_IN, "event": "email_signup", "isNewUser": True},
            "user.id",
            lambda data: bool(data["isNewUser"]),
        ),
        AppEvent("user.verified", EMAIL_VERIFIED, "A user has shown that the address is theirs.", _CHANGED, "user.id"),
        AppEvent("user.deleted", DELETED, "A user was deleted.", _CHANGED, "user.id"),
    ),
)
