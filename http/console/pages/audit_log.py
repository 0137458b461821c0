"""/console/apps/{app}/audit-log: who did what in an app."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Page
from baobab.http.console.visit import Visit
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.guard.escaping import escape_json

_SHOWN = 50
_FILTERS = ("category", "action", "event_type", "actor_id", "success", "from", "to")


async def show_log(visit: Visit) -> Context:
    app = await read_app(visit)
    filters: dict[str, Any] = {
        name: visit.query[name].strip() for name in _FILTERS if visit.query.get(name, "").strip()
    }
    offset = visit.query.get("offset", "")
    position: dict[str, Any] = {"offset": int(offset)} if offset.isdecimal() and len(offset) < 8 else {}
    outcome = {"success": filters["success"] == "true"} if "success" in filters else {}
    page = await visit.call("audit_logs_list", app_id=app["id"], limit=_SHOWN, **{**filters, **outcome}, **position)
    rows = [
        {**row, "data": escape_json(row["event_data"], indent=2) if row["event_data"] else ""} for row in page["logs"]
    ]
    return {
        "app": app,
        "actors": await _find_actors(visit, app, page["logs"]),
        "rows": rows,
        "total": page["total"],
        "following": page["nextOffset"],
        "asked": filters,
        "categories": ("auth", "admin", "function", "ai", "data", "agents"),
        "actions": ("create", "update", "delete", "invoke", "enable", "disable"),
    }


async def _find_actors(
    visit: Visit, app: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[str, str]]:
    """Returns the names of those who did something, by id, each with the path of a page about them. Whoever is gone, or
    is not for this person to see, is not among them.
    """
    organisation_id = app["organization_id"]
    actors: dict[str, tuple[str, str]] = {}
    with suppress(BaobabError):
        page = await visit.call("organisations_members", organisation_id, organization_id=organisation_id)
        here = f"/apps/{app['id']}/audit-log?actor_id="
        actors |= {each["account_id"]: (each["name"] or each["email"], here + each["account_id"])
                   for each in page["members"]}  # fmt: skip
    with suppress(BaobabError):
        page = await visit.call("api_keys_list", organisation_id, organization_id=organisation_id)
        actors |= {key["id"]: (key["name"], "/keys") for key in page["keys"]}
    for user_id in {row["actor_id"] for row in rows if row["actor_type"] == "app_user" and row["actor_id"]}:
        with suppress(BaobabError):
            user = (await visit.call("users_get", app_id=app["id"], user_id=user_id))["user"]
            name = user["display_name"] or user["email"] or "a guest"
            actors[user_id] = (name, f"/apps/{app['id']}/users/{user_id}")
    return actors


PAGES = (
    Page(
        "/apps/{app}/audit-log",
        "Audit log",
        "audit_log.html",
        show_log,
        tab="Audit log",
        tool="audit_logs_list",
        group="Operate",
        icon="list",
        rank=10,
    ),
)
