"""/console/team: the people of an organisation, their roles, and invitations."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from baobab.http.console.app_page import name_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.roles import ROLE_LINES, ROLE_NAMES, ROLE_TABLE
from baobab.http.console.visit import Visit
from baobab.tools.core.auth.roles import rank

_MOST_APPS = 100


async def show_team(visit: Visit) -> Context:
    return await _read(visit, visit.query.get("of"))


async def _read(visit: Visit, of: str | None) -> dict[str, Any]:
    organisations = await visit.list_organisations("organisations_members")
    organisation = next((row for row in organisations if row["id"] == of), organisations[0])
    here = {"organization_id": organisation["id"]}
    people = {row["account_id"]: row for row in (await visit.call("organisations_members", **here))["members"]}
    notices = await visit.call("notices_members", organisation["id"])
    for row in notices["members"]:
        if row["account_id"] in people:
            people[row["account_id"]] |= {"notified": row["notified"], "decided": row["decided"]}
    apps = (await visit.call("apps_list", org_id=organisation["id"], limit=_MOST_APPS))["apps"]
    invitations: list[Any] = []
    if visit.may("organisations_invitations", organisation["id"]):
        invitations = (await visit.call("organisations_invitations", **here))["invitations"]
    own_rank, search = rank(organisation["role"]), visit.query.get("search", "").strip()
    return {
        "title": "Team",
        "organisation": organisation,
        "organisations": organisations,
        "people": list(people.values()),
        "shown_people": [person for person in people.values() if _is_found(person, search)],
        "search": search,
        "own_id": visit.session.caller.account_id,
        "own_rank": own_rank,
        "ranks": {role: rank(role) for role in ROLE_NAMES},
        "roles": {role: name for role, name in ROLE_NAMES.items() if rank(role) <= own_rank},
        "role_names": ROLE_NAMES,
        "role_lines": ROLE_LINES,
        "role_table": ROLE_TABLE,
        "apps": apps,
        "app_names": {app["id"]: name_app(app) for app in apps},
        "invitations": invitations,
        "sends_mail": visit.registry.services.mailer.delivers,
        "saved": "saved" in visit.query,
        "invited": None,
    }


def _is_found(person: Mapping[str, Any], search: str) -> bool:
    """Returns whether each word of a search is in the name or address of a person."""
    text = f"{person['name']} {person['email']}".casefold()
    return all(word in text for word in search.casefold().split())


async def invite(visit: Visit) -> Context:
    """Invites somebody. The page that follows shows the link once."""
    of, fields = visit.form.get("of", ""), visit.form
    role = fields.get("role", "member")
    app_ids = sorted(name.removeprefix("app.") for name in fields if name.startswith("app."))
    arguments: dict[str, Any] = {"email": fields.get("email", "").strip(), "role": role}
    if role == "approver" and app_ids:
        arguments["app_ids"] = app_ids
    invitation = await visit.call("organisations_invite", organization_id=of, **arguments)
    return {**await _read(visit, of), "invited": invitation}


async def withdraw(visit: Visit) -> str:
    of = visit.form.get("of", "")
    await visit.call("organisations_withdraw_invitation", organization_id=of, invitation_id=visit.parts["id"])
    return f"/team?of={quote(of)}&saved=1"


async def set_role(visit: Visit) -> str:
    of, role = visit.form.get("of", ""), visit.form.get("role", "")
    app_ids = sorted(name.removeprefix("app.") for name in visit.form if name.startswith("app."))
    app_choice: dict[str, Any] = {"app_ids": app_ids} if role == "approver" and app_ids else {}
    arguments = {"organization_id": of, "account_id": visit.parts["id"], "role": role}
    await visit.call("organisations_set_role", **arguments, **app_choice)
    return f"/team?of={quote(of)}&saved=1"


async def remove(visit: Visit) -> str:
    """Removes a member, or leaves."""
    of, account_id = visit.form.get("of", ""), visit.parts["id"]
    await visit.call("organisations_remove_member", organization_id=of, account_id=account_id)
    return "/account?saved=1" if account_id == visit.session.caller.account_id else f"/team?of={quote(of)}&saved=1"


async def rename(visit: Visit) -> str:
    of = visit.form.get("of", "")
    await visit.call("organisations_update", organization_id=of, name=visit.form.get("name", "").strip())
    return f"/team?of={quote(of)}&saved=1"


async def show_invitation(visit: Visit) -> Context:
    """Shows an invitation to somebody who is signed in."""
    offer = await visit.call("organisations_read_invitation", token=visit.query.get("token", ""))
    return {
        "title": f"Join {offer['organization_name']}",
        "offer": offer,
        "token": visit.query.get("token", ""),
        "role_name": ROLE_NAMES[offer["role"]],
        "is_own": offer["email"] == visit.session.email,
    }


async def accept(visit: Visit) -> str:
    await visit.call("organisations_accept_invitation", token=visit.form.get("token", ""))
    return "?joined=1"


PAGES = (
    Page(
        "/team",
        "Team",
        "team.html",
        show_team,
        menu="Team",
        tool="organisations_members",
        group="Organisation",
        icon="users",
        rank=20,
    ),
    Page("/invitation", "Invitation", "invitation.html", show_invitation),
)
FORMS = (
    Form("/team/invite", invite, "team.html"),
    Form("/team/invitations/{id}/withdraw", withdraw),
    Form("/team/members/{id}/role", set_role),
    Form("/team/members/{id}/remove", remove),
    Form("/team/rename", rename),
    Form("/invitation/accept", accept),
)
