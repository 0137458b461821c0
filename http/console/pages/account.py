"""/console/account: a person's name, password, address and organisations, and the end of the account."""

from baobab.http.console.page import Context, Form, Page
from baobab.http.console.roles import ROLE_NAMES
from baobab.http.console.visit import Visit


async def show_account(visit: Visit) -> Context:
    me = await visit.call("platform_me")
    return {
        "title": "Account",
        "user": me["user"],
        "own_organisations": [row for row in me["organizations"] if not (row["personal"] and row["role"] == "owner")],
        "role_names": ROLE_NAMES,
        "by_key": visit.session.caller.key_id is not None,
        "sends_mail": visit.registry.services.mailer.delivers,
        "saved": "saved" in visit.query,
        "mailed": "mailed" in visit.query,
    }


async def rename(visit: Visit) -> str:
    await visit.call("platform_update", name=visit.form.get("name", "").strip())
    return "/account?saved=1"


async def set_password(visit: Visit) -> str:
    """Sets a password. Every session ends with that, this one too."""
    password = visit.form.get("password", "")
    await visit.call("platform_update", password=password, **_read_present_password(visit))
    return "/sign-in?done=password"


async def change_email(visit: Visit) -> str:
    email = visit.form.get("email", "").strip()
    await visit.call("platform_change_email", email=email, **_read_present_password(visit))
    return "/account?mailed=1"


async def delete(visit: Visit) -> str:
    await visit.call("platform_delete", **_read_present_password(visit))
    return "/sign-in?done=deleted"


def _read_present_password(visit: Visit) -> dict[str, str]:
    """Returns the present password as an argument; nothing where the account has none yet."""
    password = visit.form.get("current_password")
    return {"current_password": password} if password else {}


PAGES = (
    Page(
        "/account",
        "Account",
        "account.html",
        show_account,
        menu="Name, password, e-mail",
        group="Account",
        icon="user",
        rank=10,
        for_approvers=True,
    ),
)
FORMS = (
    Form("/account/name", rename),
    Form("/account/password", set_password),
    Form("/account/email", change_email),
    Form("/account/delete", delete),
)
