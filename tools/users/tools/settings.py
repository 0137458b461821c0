"""/v1/{app_id}/auth/settings: how users get into an app."""

from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import select

from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import EVERYBODY, OMITTED, AppId, AppOwner, Audit, Call, Guard, PerAddress, Rest, Text, one_of
from baobab.tools.core.errors import MissingField
from baobab.tools.users.errors import RedirectRefused
from baobab.tools.users.redirects import RedirectTo, is_redirect_allowed
from baobab.tools.users.schemas import OneSignInSettings, SignInPage
from baobab.tools.users.settings import find_settings
from baobab.tools.users.tables import FREEZES, user_providers, user_settings
from baobab.tools.users.toolset import auth, users

Colour = Annotated[str, Text(7, pattern="^#[0-9a-fA-F]{6}$"), Field(examples=["#1d4ed8"])]
LogoUrl = Annotated[str, Text(2000, pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[^\s\x22\x27;,<>]*)?$")]
Days = Annotated[int, Field(ge=1, le=3650)]


@users.tool(
    "GET /auth/settings",
    access=AppOwner(),
    effect="read",
)
async def users_settings_get(call: Call, app_id: AppId) -> OneSignInSettings:
    """Read how users sign up and sign in to an app."""
    async with call.reading() as execute:
        return {"settings": await find_settings(execute, app_id)}


@users.tool(
    "PATCH /auth/settings",
    access=AppOwner("admin"),
    effect="write",
    raises=(MissingField,),
    audit=Audit("auth.settings.update", category="auth", resource="user_settings"),
    rest=Rest(examples={"anonymous": True, "anonymous_days": 30}),
    guard=Guard(
        widens={"anonymous": one_of([True]), "invite_only": one_of([False]), "second_factor": one_of(["optional"])}
    ),
)
async def users_settings_update(
    call: Call,
    app_id: AppId,
    anonymous: bool | None = None,
    anonymous_days: Days | None = OMITTED,
    invite_only: bool | None = None,
    second_factor: Literal["optional", "required"] | None = None,
    logo_url: LogoUrl | None = OMITTED,
    colour: Colour | None = OMITTED,
) -> OneSignInSettings:
    """Change how users sign up and sign in to an app, and how the sign-in page looks; fields left out stay.

    anonymous: whether anybody may sign in without an address, as an anonymous user.
    anonymous_days: after how many days without use an anonymous user is deleted; null for never.
    invite_only: whether only people who are invited (op:users_invite) become users, on every way of signing up.
    second_factor: `required` of everybody, or `optional`; open sessions stay open.
    logo_url: a picture that the page shows; null for none.
    colour: of the page's buttons, such as `#1d4ed8`; null for blue.
    """
    new_values = {"anonymous": anonymous, "invite_only": invite_only, "second_factor": second_factor}
    changes: dict[str, Any] = {name: value for name, value in new_values.items() if value is not None}
    clearable = {"anonymous_days": anonymous_days, "logo_url": logo_url, "colour": colour}
    changes |= {name: value for name, value in clearable.items() if value is not OMITTED}
    if not changes:
        raise MissingField("Nothing to change.", remediation="Send at least one of the settings.")
    async with FREEZES.writing(call) as unit:
        saving = build_upsert(unit.database.dialect, user_settings).values(app_id=app_id, **changes)
        await unit.execute(saving.on_conflict_do_update(index_elements=["app_id"], set_=changes))
        settings = await find_settings(unit.execute, app_id)
    call.audit.data["fields"] = sorted(changes)
    return {"settings": settings}


@auth.tool(
    "GET /page",
    access=EVERYBODY,
    effect="read",
    raises=(RedirectRefused,),
    limit=PerAddress(300, 60, per_app=True),
)
async def auth_page(call: Call, app_id: AppId, redirect_to: RedirectTo | None = None) -> SignInPage:
    """Return what a sign-in page shows: the app's name and looks, and its providers.

    redirect_to: where the page would send the browser with the tokens; refused where the app does not allow it.
    """
    if redirect_to is not None and not is_redirect_allowed(call, redirect_to):
        raise RedirectRefused
    columns = user_providers.c
    query = select(columns.provider).where(columns.app_id == app_id, columns.enabled).order_by(columns.provider)
    async with call.reading() as execute:
        settings = await find_settings(execute, app_id)
        providers = list((await execute(query.limit(50))).scalars().all())
    return {
        "app_name": call.require_app().title,
        "logo_url": settings["logo_url"],
        "colour": settings["colour"],
        "invite_only": settings["invite_only"],
        "providers": providers,
        "app_url": next((each for each in sorted(call.require_app().allowed_origins) if _is_site(each)), None),
    }


def _is_site(origin: str) -> bool:
    """Returns whether an allowed origin is the address of one site."""
    return origin.startswith("https://") and "*" not in origin
