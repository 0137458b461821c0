"""/console/apps/{app}/site: the web site of an app: which deployment visitors see, going to another, and domains."""

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/site"
_ONE = PATH + "/{id}"
_DOMAIN = PATH + "/domains/{id}"


async def show_site(visit: Visit) -> Context:
    app = await read_app(visit)
    domains = await visit.call("domains_list", app_id=app["id"])
    return {"app": app, **await visit.call("sites_list", app_id=app["id"]), "names": domains}


async def activate(visit: Visit) -> str:
    return await _do(visit, "sites_activate")


async def cancel(visit: Visit) -> str:
    return await _do(visit, "sites_cancel")


async def delete(visit: Visit) -> str:
    return await _do(visit, "sites_delete")


async def preview(visit: Visit) -> Context:
    """Shows the address of a preview, which opens for whoever has it."""
    app = await read_app(visit)
    answer = await visit.call("sites_preview", app_id=app["id"], deployment_id=visit.parts["id"])
    return {"app": app, "title": "Preview", "address": answer["url"], "seconds": answer["expiresIn"]}


async def add_domain(visit: Visit) -> str:
    await visit.call("domains_add", app_id=visit.parts["app"], hostname=visit.form.get("hostname", "").strip())
    return PATH.format(app=visit.parts["app"]) + "#domains"


async def check_domain(visit: Visit) -> str:
    return await _do_to_domain(visit, "domains_verify")


async def remove_domain(visit: Visit) -> str:
    return await _do_to_domain(visit, "domains_remove")


async def _do_to_domain(visit: Visit, tool: str) -> str:
    await visit.call(tool, app_id=visit.parts["app"], domain_id=visit.parts["id"])
    return PATH.format(app=visit.parts["app"]) + "#domains"


async def _do(visit: Visit, tool: str) -> str:
    await visit.call(tool, app_id=visit.parts["app"], deployment_id=visit.parts["id"])
    return PATH.format(app=visit.parts["app"])


PAGES = (
    Page(PATH, "Site", "site.html", show_site, tab="Site", tool="sites_list", group="People", icon="globe", rank=50),
)
FORMS = (
    Form(_ONE + "/activate", activate),
    Form(_ONE + "/cancel", cancel),
    Form(_ONE + "/delete", delete),
    Form(_ONE + "/preview", preview, "site_preview.html"),
    Form(PATH + "/domains", add_domain),
    Form(_DOMAIN + "/check", check_domain),
    Form(_DOMAIN + "/remove", remove_domain),
)
