"""/console/apps: the apps of a person's organisations, and one of them with its settings."""

import re
import unicodedata
from typing import Any

from baobab.http.console.app_page import name_app, read_app, refuse_field
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}"


async def show_apps(visit: Visit) -> Context:
    """Shows the first apps of each organisation, or more of the one that the query names."""
    organisation_id = visit.query.get("of")
    groups: list[dict[str, Any]] = []
    for organisation in await visit.list_organisations("apps_list"):
        if organisation_id is not None and organisation["id"] != organisation_id:
            continue
        cursor = {} if organisation_id is None or "after" not in visit.query else {"cursor": visit.query["after"]}
        page = await visit.call("apps_list", org_id=organisation["id"], limit=100, **cursor)
        groups.append({"name": organisation["name"], "id": organisation["id"], **page})
    return {"organisations": groups, "address": visit.registry.services.options.base_url}


async def create_app(visit: Visit) -> str:
    """Creates an app in the organisation that the form names. The name that addresses and keys have is derived from
    the one that people read.
    """
    arguments = {"organization_id": visit.form["of"]} if visit.form.get("of") else {}
    title = visit.form.get("name", "").strip()
    name = _derive_name(title)
    new_app = await visit.call("apps_init", name=name, **arguments)
    if new_app["created"] and title != name:
        await visit.call("apps_update", app_id=new_app["app_id"], display_name=title)
    return PATH.format(app=new_app["app_id"])


def _derive_name(text: str) -> str:
    plain_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9_]+", "-", plain_text).strip("-_")[:63].rstrip("-_")
    if not name:
        raise refuse_field("name", "The name needs a letter from a to z or a digit.")
    return name


async def show_app(visit: Visit) -> Context:
    app = await read_app(visit)
    address = visit.registry.services.options.base_url
    return {"app": app, "title": name_app(app), "address": f"{address}/v1/{app['id']}", "saved": "saved" in visit.query}


async def rename(visit: Visit) -> str:
    title = visit.form.get("display_name", "").strip()
    await visit.call("apps_update", app_id=visit.parts["app"], display_name=title or None)
    return PATH.format(**visit.parts) + "?saved=1"


async def set_access(visit: Visit) -> str:
    mode = visit.form.get("access_mode", "")
    await visit.call("config_access_mode", app_id=visit.parts["app"], access_mode=mode)
    return PATH.format(**visit.parts) + "?saved=1"


async def set_visibility(visit: Visit) -> str:
    visibility, is_listed = visit.form.get("visibility", ""), "listed" in visit.form
    await visit.call("config_visibility", app_id=visit.parts["app"], visibility=visibility, listed=is_listed)
    return PATH.format(**visit.parts) + "?saved=1"


async def pause(visit: Visit) -> str:
    is_paused = visit.form.get("paused") == "yes"
    await visit.call("config_pause", app_id=visit.parts["app"], paused=is_paused)
    return PATH.format(**visit.parts) + "?saved=1"


PAGES = (
    Page(
        "/apps",
        "Apps",
        "apps.html",
        show_apps,
        menu="Apps",
        tool="apps_list",
        icon="layout-grid",
        rank=10,
        on_phone=True,
    ),
    Page(PATH, "App", "app_overview.html", show_app, tab="Overview", icon="layout-grid", rank=0),
)
FORMS = (
    Form("/apps/create", create_app),
    Form(PATH + "/name", rename),
    Form(PATH + "/access-mode", set_access),
    Form(PATH + "/visibility", set_visibility),
    Form(PATH + "/pause", pause),
)
