"""/v1/{app_id}/auth/settings: how users get into an app."""

from typing import Annotated, Any

from pydantic import Field

from baobab.storage.tables import build_upsert
from baobab.tools.core.auth.access import AppOwner
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.errors import MissingField
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import OMITTED, AppId
from baobab.tools.core.widening import one_of
from baobab.tools.users.schemas import OneSignInSettings
from baobab.tools.users.settings import find_settings
from baobab.tools.users.tables import FREEZES, user_settings
from baobab.tools.users.toolset import users

Days = Annotated[int, Field(ge=1, le=3650)]


@users.tool(
    "GET /auth/settings",
    access=AppOwner(),
    effect="read",
    mcp=Mcp(
        keywords=(
            "how users get in, anonymous sign-in, guests, who may sign up; "
            "Gäste, wer darf sich registrieren; "
            "invitados, quién puede registrarse"
        )
    ),
)
async def users_settings_get(call: Call, app_id: AppId) -> OneSignInSettings:
    """Read how users get into an app."""
    async with call.reading() as execute:
        return {"settings": await find_settings(execute, app_id)}


@users.tool(
    "PATCH /auth/settings",
    access=AppOwner("admin"),
    effect="write",
    raises=(MissingField,),
    audit=Audit("auth.settings.update", category="auth", resource="user_settings"),
    rest=Rest(examples={"anonymous": True, "anonymous_days": 30}),
    mcp=Mcp(
        keywords=("allow anonymous sign-in, guest users, try without an account; Gäste zulassen; permitir invitados")
    ),
    guard=Guard(widens={"anonymous": one_of([True])}),
)
async def users_settings_update(
    call: Call, app_id: AppId, anonymous: bool | None = None, anonymous_days: Days | None = OMITTED
) -> OneSignInSettings:
    """Change how users get into an app; what is left out stays.

    anonymous: whether anybody may sign in without an address, as an anonymous user.
    anonymous_days: after how many days without use an anonymous user is deleted; null for never.
    """
    changes: dict[str, Any] = {} if anonymous is None else {"anonymous": anonymous}
    if anonymous_days is not OMITTED:
        changes["anonymous_days"] = anonymous_days
    if not changes:
        raise MissingField("Nothing to change.", remediation="Send `anonymous` or `anonymous_days`.")
    async with FREEZES.writing(call) as unit:
        saving = build_upsert(unit.database.dialect, user_settings).values(app_id=app_id, **changes)
        await unit.execute(saving.on_conflict_do_update(index_elements=["app_id"], set_=changes))
        settings = await find_settings(unit.execute, app_id)
    call.audit.data["fields"] = sorted(changes)
    return {"settings": settings}
