"""/console/apps/{app}/users: finds, invites, bans and signs out an app's users, and sets their roles."""

from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/users"
_SHOWN = 50


async def show_users(visit: Visit) -> Context:
    app, search = await read_app(visit), visit.query.get("search", "").strip()
    filters = {name: value for name, value in (("search", search), ("cursor", visit.query.get("cursor"))) if value}
    page = await visit.call("users_list", app_id=app["id"], limit=_SHOWN, **filters)
    all_invitations = (await visit.call("users_invitations_list", app_id=app["id"]))["invitations"]
    invitations = [each for each in all_invitations if each["accepted_at"] is None and each["expires_at"] > visit.now]
    return {"app": app, "search": search, "invitations": invitations, **page}


async def show_user(visit: Visit) -> Context:
    app = await read_app(visit)
    names = {"app_id": app["id"], "user_id": visit.parts["user"]}
    details = await visit.call("users_get", **names)
    user, factors = details["user"], details["second_factor"]
    sessions = (await visit.call("users_sessions", **names))["sessions"]
    title = user["email"] or "Anonymous user"
    user_values = {"user": user, "factors": factors, "sessions": sessions}
    return {"app": app, "title": title, **user_values, "saved": "saved" in visit.query}


async def invite(visit: Visit) -> str:
    role = visit.form.get("role", "").strip() or "user"
    await visit.call("users_invite", app_id=visit.parts["app"], email=visit.form.get("email", "").strip(), role=role)
    return PATH.format(**visit.parts)


async def uninvite(visit: Visit) -> str:
    await visit.call("users_invitations_revoke", app_id=visit.parts["app"], invitation_id=visit.parts["id"])
    return PATH.format(app=visit.parts["app"])


async def set_role(visit: Visit) -> str:
    return await _update(visit, role=visit.form.get("role", "").strip())


async def ban(visit: Visit) -> str:
    reason = visit.form.get("reason", "").strip()
    return await _update(visit, banned=True, **({"ban_reason": reason} if reason else {}))


async def unban(visit: Visit) -> str:
    return await _update(visit, banned=False)


async def sign_out(visit: Visit) -> str:
    await visit.call("users_sessions_end", **_name_user(visit))
    return _open_user(visit)


async def end_session(visit: Visit) -> str:
    await visit.call("users_sessions_end", **_name_user(visit), session_id=visit.parts["session"])
    return _open_user(visit)


async def reset_factors(visit: Visit) -> str:
    await visit.call("users_second_factor_reset", **_name_user(visit))
    return _open_user(visit)


async def delete(visit: Visit) -> str:
    await visit.call("users_delete", **_name_user(visit))
    return PATH.format(app=visit.parts["app"])


async def _update(visit: Visit, **changes: Any) -> str:
    await visit.call("users_update", **_name_user(visit), **changes)
    return _open_user(visit)


def _name_user(visit: Visit) -> dict[str, str]:
    return {"app_id": visit.parts["app"], "user_id": visit.parts["user"]}


def _open_user(visit: Visit) -> str:
    return f"{PATH.format(app=visit.parts['app'])}/{visit.parts['user']}?saved=1"


PAGES = (
    Page(PATH, "Users", "users.html", show_users, tab="Users", group="People", icon="users", rank=10),
    Page(PATH + "/{user}", "User", "user.html", show_user),
)
FORMS = (
    Form(PATH + "/invite", invite),
    Form(PATH + "/invitations/{id}/revoke", uninvite),
    Form(PATH + "/{user}/role", set_role),
    Form(PATH + "/{user}/ban", ban),
    Form(PATH + "/{user}/unban", unban),
    Form(PATH + "/{user}/sign-out", sign_out),
    Form(PATH + "/{user}/sessions/{session}/end", end_session),
    Form(PATH + "/{user}/second-factor", reset_factors),
    Form(PATH + "/{user}/delete", delete),
)
