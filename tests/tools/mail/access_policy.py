"""The callers that may call the tools of mail, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ADMINS, RUNNERS, Caller, World

POLICY = {
    "mail_outbox_list": ADMINS,
    "mail_outbox_get": ADMINS,
    "mail_settings_get": ADMINS,
    "mail_settings_update": ADMINS,
    # The installation under test has no mail server, which is said after the caller is let in.
    "mail_test": ADMINS,
    "mail_send": RUNNERS,
}


async def for_mail_outbox_get(world: World, caller: Caller) -> dict[str, Any]:
    email = f"{world.new_name('reader')}@example.com"
    world.baobab.application.services.limits._windows.clear()  # type: ignore[attr-defined]
    body = {"email": email, "password": "correct Horse 7!"}
    await world.request("POST", f"/auth/{world.app}/signup", {}, **body)
    outbox = await world.request("GET", f"/v1/{world.app}/auth/outbox", world.owner.headers)
    return {"app_id": world.app, "mail_id": outbox["mails"][0]["id"]}
