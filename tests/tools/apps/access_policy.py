"""The callers that may call the tools of apps, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ACCOUNTS, ADMINS, RUNNERS, Caller, World

POLICY = {
    "apps_init": ACCOUNTS,
    "apps_list": ACCOUNTS,
    "apps_status": RUNNERS,
    "apps_update": ADMINS,
    # No key of an app can delete the app.
    "apps_delete": "401 403 403 403 403 403 403 403 403 ok  ok  ok  403 403",
    "config_get": RUNNERS,
    "config_access_mode": ADMINS,
    "config_secure": ADMINS,
    "config_auth_hooks": ADMINS,
    "config_visibility": ADMINS,
    "config_storage": ADMINS,
    "config_jwt": ADMINS,
    "config_cors": ADMINS,
    "config_user_tools": ADMINS,
    "config_pause": ADMINS,
}


async def for_apps_delete(world: World, caller: Caller) -> dict[str, Any]:
    response = await world.request(
        "POST", "/init", world.owner.headers, name=world.new_name("app"), organization_id=world.org
    )
    return {"app_id": response["app_id"]}
