"""The callers that may call the tools of templates, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from sqlalchemy import insert, update

from baobab.tools.core.auth.tables import apps
from baobab.tools.templates.tables import clone_jobs
from tests.tools.access import ACCOUNTS, ADMINS, PUBLIC, RUNNERS, Caller, World

_OF_REQUESTER = "401 403 403 403 403 403 403 403 404 404 ok  ok  404 404"
POLICY = {
    "templates_list": PUBLIC,
    "templates_get": PUBLIC,
    "templates_preflight": ACCOUNTS,
    "templates_clone": ACCOUNTS,
    "clone_jobs_get": _OF_REQUESTER,
    "clone_jobs_retry": _OF_REQUESTER,
    "clones_review": RUNNERS,
    "config_clone_webhook": ADMINS,
}


async def for_templates_get(world: World, caller: Caller) -> dict[str, Any]:
    """An app of its own: that of the world stays private."""
    name = world.new_name("template")
    app = await world.request("POST", "/init", world.host.headers, name=name, organization_id=world.host_org)
    async with world.baobab.application.services.database.writing() as connection:
        offer = {"visibility": "public", "listed": True, "repo_latest_snapshot": "0" * 64}
        await connection.execute(update(apps).where(apps.c.id == app["app_id"]).values(**offer))
    return {"template_id": app["app_id"]}


for_templates_preflight = for_templates_get


async def for_templates_clone(world: World, caller: Caller) -> dict[str, Any]:
    services = world.baobab.application.services
    async with services.database.writing() as connection:
        # Whoever has cloned before is not held up by that.
        await connection.execute(update(clone_jobs).values(account_id=services.ids.uuid()))
    return await for_templates_get(world, caller)


async def for_clone_jobs_get(world: World, caller: Caller) -> dict[str, Any]:
    services = world.baobab.application.services
    now, job = services.clock.now(), services.ids.uuid()
    row: dict[str, Any] = {
        "id": job,
        "source_app_id": world.app,
        "dest_app_id": services.ids.app(),
        "dest_region": "local",
    }
    row |= {"account_id": world.owner.id, "maker": {}, "organisation_id": world.org, "name": "copy"}
    state = {"status": "failed", "is_failing": True, "attempts": 0, "retry_count": 0, "warnings": []}
    async with services.database.writing() as connection:
        await connection.execute(insert(clone_jobs), row | state | dict.fromkeys(_TIMES, now))
    return {"job_id": job}


_TIMES = ("created_at", "started_at", "completed_at")
for_clone_jobs_retry = for_clone_jobs_get


async def for_config_clone_webhook(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "clear": True}
