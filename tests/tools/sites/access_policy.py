"""The callers that may call the tools of sites, and the arguments for it (tests/tools/access.py)."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.tools.access import ADMINS, PUBLIC, RUNNERS, Caller, World

POLICY = {
    "sites_create": ADMINS,
    "sites_deploy_files": ADMINS,
    "sites_start": ADMINS,
    "sites_sync": ADMINS,
    "sites_activate": ADMINS,
    "sites_cancel": ADMINS,
    "sites_delete": ADMINS,
    "sites_env_replace": ADMINS,
    "sites_env_change": ADMINS,
    "sites_env_keys": RUNNERS,
    "sites_list": RUNNERS,
    "sites_get": RUNNERS,
    "sites_preview": RUNNERS,
    # The signed address is what counts.
    "sites_upload": PUBLIC,
    # Pages are for everybody; below `/v1` they are only sent on to the host where they are.
    "sites_page": PUBLIC,
    "sites_preview_page": PUBLIC,
}


async def _deploy(world: World, caller: Caller) -> dict[str, Any]:
    path = f"/v1/{world.app}/frontend/deployments/files"
    deployment = await world.request("POST", path, world.owner.headers, files={"index.html": "home"})
    return {"app_id": world.app, "deployment_id": deployment["id"], "path": "index.html"}


async def _create(world: World, caller: Caller) -> dict[str, Any]:
    path = f"/v1/{world.app}/frontend/deployments"
    listing = (await world.baobab.client.get(path, headers=world.owner.headers)).json()
    for each in listing["deployments"]:
        if each["status"] in ("WAITING", "UPLOADING"):
            await world.request("POST", f"{path}/{each['id']}/cancel", world.owner.headers)
    creation = await world.request("POST", path, world.owner.headers, framework="static")
    query = {name: values[0] for name, values in parse_qs(urlsplit(creation["uploadUrl"]).query).items()}
    return {"app_id": world.app, "deployment_id": creation["id"], **query}


async def for_sites_create(world: World, caller: Caller) -> dict[str, Any]:
    await _create(world, caller)
    return {"app_id": world.app}


for_sites_get = for_sites_sync = for_sites_activate = for_sites_delete = for_sites_preview = _deploy
for_sites_page = for_sites_preview_page = _deploy
for_sites_cancel = for_sites_start = for_sites_upload = _create
