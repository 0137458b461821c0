"""/console/apps/{app}/migrations: an app's region, moving it to another one, and the copy that stays behind."""

from baobab.http.console.app_page import read_app
from baobab.http.console.page import Context, Form, Page
from baobab.http.console.visit import Visit

_PATH = "/apps/{app}/migrations"


async def show_migrations(visit: Visit) -> Context:
    app = await read_app(visit)
    move = (await visit.call("moves_active", app_id=app["id"]))["migration"]
    replicas = (await visit.call("source_replicas_list", app["organization_id"]))["source_replicas"]
    regions = (await visit.call("system_regions"))["regions"]
    return {
        "app": app,
        "title": "Region",
        "move": move,
        "replicas": [row for row in replicas if row["app_id"] == app["id"]],
        "regions": [region for region in regions if region != app["region"]],
    }


async def start(visit: Visit) -> str:
    await visit.call("moves_start", app_id=visit.parts["app"], dest_region=visit.form.get("region", ""))
    return _PATH.format(**visit.parts)


async def abort(visit: Visit) -> str:
    await visit.call("moves_abort", app_id=visit.parts["app"], migration_id=visit.parts["id"])
    return _PATH.format(app=visit.parts["app"])


async def reverse(visit: Visit) -> str:
    await visit.call("moves_reverse", app_id=visit.parts["app"], migration_id=visit.parts["id"])
    return _PATH.format(app=visit.parts["app"])


async def delete_copy(visit: Visit) -> str:
    await visit.call("source_replicas_delete", visit.form.get("of"), migration_id=visit.parts["id"])
    return _PATH.format(app=visit.parts["app"])


PAGES = (
    Page(_PATH, "Region", "migrations.html", show_migrations, tab="Region", group="Operate", icon="map-pin", rank=80),
)
FORMS = (
    Form(f"{_PATH}/start", start),
    Form(f"{_PATH}/{{id}}/abort", abort),
    Form(f"{_PATH}/{{id}}/reverse", reverse),
    Form(f"{_PATH}/{{id}}/delete-copy", delete_copy),
)
