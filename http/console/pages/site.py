"""/console/apps/{app}/site: the web site of an app: which deployment visitors see, and going to another."""

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

PATH = "/apps/{app}/site"
_ONE = PATH + "/{id}"


async def show_site(visit: Visit) -> Context:
    app = await read_app(visit)
    return {"app": app, **await visit.call("sites_list", app_id=app["id"])}


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
)
