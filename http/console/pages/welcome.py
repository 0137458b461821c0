"""/console/welcome: the first steps of a new owner, one after the other, and which of them are done."""

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit
from baobab.tools.accounts.first_account import EMAIL
from baobab.tools.core.auth.membership import UNNAMED

PATH = "/welcome"


async def show_welcome(visit: Visit) -> Context:
    organisation = (await visit.list_organisations("organisations_update"))[0]
    here = {"organization_id": organisation["id"]}
    account = await visit.call("platform_me")
    me, by_key = account["user"], visit.session.caller.key_id is not None
    # A key's session does not see the passkeys of the account.
    passkeys = [] if by_key else (await visit.call("console_passkeys_list"))["passkeys"]
    apps = (await visit.call("apps_list", org_id=organisation["id"], limit=1))["apps"]
    keys = (await visit.call("api_keys_list", organisation["id"]))["keys"]
    members = (await visit.call("organisations_members", **here))["members"]
    invitations = (await visit.call("organisations_invitations", **here))["invitations"]
    is_named = organisation["name"] not in (UNNAMED, me["name"])
    return {
        "title": "First steps",
        "organisation": organisation,
        "user": me,
        "is_first_account": me["email"] == EMAIL,
        "given_name": organisation["name"] if is_named else "",
        "app": None,
        "first_app": apps[0] if apps else None,
        "by_key": by_key,
        "steps": {
            "names": is_named,
            "way_in": account["has_password"] or bool(passkeys),
            "app": bool(apps),
            "client": any(key["last_used_at"] for key in keys),
            "team": len(members) > 1 or bool(invitations),
        },
        "saved": "saved" in visit.query,
    }


async def save_names(visit: Visit) -> str:
    organisation_id, form = visit.form.get("of", ""), visit.form
    await visit.call("organisations_update", organization_id=organisation_id, name=form.get("name", "").strip())
    if own_name := form.get("own_name", "").strip():
        await visit.call("platform_update", name=own_name)
    return f"{PATH}?saved=1"


PAGES = (Page(PATH, "First steps", "welcome.html", show_welcome, tool="organisations_update"),)
FORMS = (Form(f"{PATH}/names", save_names),)
