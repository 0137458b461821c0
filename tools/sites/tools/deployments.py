"""/v1/{app_id}/frontend/deployments: create, upload, start, list, make live, preview, cancel and delete."""

from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import func, insert, select, update

from baobab.storage.objects.errors import StoreUnavailable, TooLarge
from baobab.storage.sql.database import Unit
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Mcp, PerAddress, Rest
from baobab.tools.core.signed_urls import Expires, Signature, build_signed_url
from baobab.tools.core.stream import Body
from baobab.tools.core.traffic import read_traffic
from baobab.tools.core.waiting import Waits
from baobab.tools.sites.access import BY_UPLOAD_URL, build_preview_label, build_preview_path, build_upload_path
from baobab.tools.sites.archive import MOST_ARCHIVE_BYTES
from baobab.tools.sites.building import (
    BUILDING,
    CANCELED,
    READY,
    UNFINISHED,
    UNPACK,
    UPLOADING,
    WAITING,
    end,
    find_deployment,
    find_live_id,
    next_position,
    remove_deployment,
    set_live,
)
from baobab.tools.sites.errors import (
    DeploymentNotFound,
    DeploymentNotWaiting,
    SiteStoreFailed,
    TooManyDeployments,
    ZipMissing,
    ZipTooLarge,
)
from baobab.tools.sites.schemas import (
    CreatedDeployment,
    DeletedDeployment,
    Deployment,
    DeploymentId,
    Deployments,
    Framework,
    Preview,
    StoredZip,
)
from baobab.tools.sites.tables import FREEZES, build_upload_key, site_deployments, site_traffic
from baobab.tools.sites.toolset import sites

_UPLOAD_SECONDS, _PREVIEW_SECONDS = 900, 3600
_MOST_UNFINISHED = 10
_MOST_LISTED = 100
_UPLOADS = PerAddress(60, 60, per_app=True)
_columns = site_deployments.c
# To publish is to speak in the app's name to everybody: no key with limits may, and no agent.
PUBLISHES = Guard(grants=True)
_UNTIL_ENDED = Waits(
    is_over=lambda deployment: deployment["status"] not in (WAITING, UPLOADING, BUILDING),
    reads="sites_get",
    find=lambda deployment: {"deployment_id": deployment["id"]},
)


@sites.tool(
    "POST /deployments",
    access=AppOwner("admin"),
    effect="write",
    raises=(TooManyDeployments,),
    audit=Audit("site.create", category="app", action="create", resource="deployment"),
    rest=Rest(examples={"framework": "static"}),
    guard=PUBLISHES,
)
async def sites_create(call: Call, app_id: AppId, framework: Framework = "static") -> CreatedDeployment:
    """Begin a deployment of the app's site: returns where to send a zip of the built files within 15 minutes.

    Then start it with op:sites_start. For a few files of text, op:sites_deploy_files does everything in one call.
    """
    deployment_id = call.services.ids.uuid_at(call.now)
    async with FREEZES.writing(call) as unit:
        await insert_deployment(call, unit, deployment_id, framework, WAITING)
    call.audit.resource_id = deployment_id
    url = build_signed_url(call, "PUT", build_upload_path(app_id, deployment_id), _UPLOAD_SECONDS)
    return {
        "id": deployment_id,
        "uploadUrl": url,
        "expiresIn": _UPLOAD_SECONDS,
        "maxSizeBytes": MOST_ARCHIVE_BYTES,
    }


@sites.tool(
    "PUT /deployments/{deployment_id}/zip",
    access=BY_UPLOAD_URL,
    effect="write",
    raises=(DeploymentNotFound, DeploymentNotWaiting, ZipTooLarge, SiteStoreFailed),
    limit=_UPLOADS,
    audit=Audit("site.upload", category="app", action="update", resource="deployment"),
    rest=Rest(raw_body="content", query=("expires", "signature")),
    mcp=Mcp(offered=False),
)
async def sites_upload(
    call: Call,
    app_id: AppId,
    deployment_id: DeploymentId,
    content: Body,
    expires: Expires = 0,
    signature: Signature = "",
) -> StoredZip:
    """Send the zip of a deployment to the address from op:sites_create. Sent again before the start, it replaces the
    first.

    content: the zip, of at most 100 MiB.
    """
    too_large = ZipTooLarge(details={"file_size_bytes": content.size, "max_file_size_bytes": MOST_ARCHIVE_BYTES})
    if content.size is not None and content.size > MOST_ARCHIVE_BYTES:
        raise too_large
    async with call.reading() as execute:
        row = await find_deployment(execute, app_id, deployment_id)
    if row is None:
        raise DeploymentNotFound
    if row.status not in (WAITING, UPLOADING):
        raise DeploymentNotWaiting
    attempt, objects = call.services.ids.uuid(), call.stores.objects
    key = build_upload_key(app_id, deployment_id, attempt)
    try:
        info = await objects.put(key, content.chunks, content_type="application/zip", max_bytes=MOST_ARCHIVE_BYTES)
        async with call.stores.database.writing_unit(lock=app_id) as unit:
            await FREEZES.require_thawed(unit.execute, app_id)
            row = await find_deployment(unit.execute, app_id, deployment_id)
            is_taken = row is not None and row.status in (WAITING, UPLOADING)
            if is_taken:
                values = {"status": UPLOADING, "upload_as": attempt, "upload_bytes": info.size}
                await unit.execute(update(site_deployments).where(*_is_it(app_id, deployment_id)).values(**values))
    except TooLarge as exc:
        raise too_large from exc
    except StoreUnavailable as exc:
        raise SiteStoreFailed from exc
    if not is_taken:
        await objects.delete(key)
        raise DeploymentNotWaiting
    if row.upload_as is not None:
        await objects.delete(build_upload_key(app_id, deployment_id, row.upload_as))
    call.audit.resource_id = deployment_id
    call.audit.actor = "signed_url"
    return {"id": deployment_id, "status": "UPLOADING", "size_bytes": info.size}


@sites.tool(
    "POST /deployments/{deployment_id}/start",
    access=AppOwner("admin"),
    effect="write",
    raises=(DeploymentNotFound, DeploymentNotWaiting, ZipMissing),
    waits=_UNTIL_ENDED,
    audit=Audit("site.start", category="app", action="update", resource="deployment"),
    rest=Rest(status=202),
    guard=PUBLISHES,
)
async def sites_start(call: Call, app_id: AppId, deployment_id: DeploymentId, live: bool = True) -> Deployment:
    """Unpack the zip of a deployment and make it live. Read its `status` until it is READY or ERROR.

    live: whether visitors see it as soon as it is ready; false leaves what they see as it is, for op:sites_preview.
    """
    async with FREEZES.writing(call) as unit:
        row = await _get_row(unit.execute, app_id, deployment_id)
        if row.status == WAITING:
            raise ZipMissing
        if row.status == UPLOADING:
            values = {"status": BUILDING, "started_at": call.now, "goes_live": live}
            await unit.execute(update(site_deployments).where(*_is_it(app_id, deployment_id)).values(**values))
            await _enqueue_unpacking(call, unit, deployment_id)
        elif row.status != BUILDING:
            raise DeploymentNotWaiting
        row = await _get_row(unit.execute, app_id, deployment_id)
        live_id = await find_live_id(unit.execute, app_id)
    call.audit.resource_id = deployment_id
    return describe(call, row, live_id)


@sites.tool("GET /deployments", access=AppOwner(), effect="read")
async def sites_list(call: Call, app_id: AppId) -> Deployments:
    """List the deployments of the app's site, newest first, and what the site has sent this month."""
    query = select(site_deployments).where(_columns.app_id == app_id)
    async with call.reading() as execute:
        rows = (await execute(query.order_by(_columns.position.desc()).limit(_MOST_LISTED))).all()
        live_id = await find_live_id(execute, app_id)
        traffic = await read_traffic(execute, site_traffic, app_id, call.now)
    app = call.require_app()
    return {
        "deployments": [describe(call, row, live_id) for row in rows],
        "url": call.services.options.build_site_address(app.subdomain),
        "kept": app.plan.deployments,
        "traffic": {**traffic, "limit_bytes": app.plan.bandwidth_bytes},
    }


@sites.tool(
    "GET /deployments/{deployment_id}",
    access=AppOwner(),
    effect="read",
    raises=(DeploymentNotFound,),
    waits=Waits(is_over=lambda deployment: deployment["status"] not in (WAITING, UPLOADING, BUILDING)),
)
async def sites_get(call: Call, app_id: AppId, deployment_id: DeploymentId) -> Deployment:
    """Read a deployment: its status, why it failed, and its warnings."""
    async with call.reading() as execute:
        row = await _get_row(execute, app_id, deployment_id)
        return describe(call, row, await find_live_id(execute, app_id))


@sites.tool(
    "POST /deployments/{deployment_id}/sync",
    access=AppOwner("admin"),
    effect="write",
    raises=(DeploymentNotFound,),
    audit=Audit("site.sync", category="app", action="update", resource="deployment"),
    guard=PUBLISHES,
)
async def sites_sync(call: Call, app_id: AppId, deployment_id: DeploymentId) -> Deployment:
    """Refresh a deployment: if it is BUILDING, it is taken up again, which changes nothing if work on it goes on."""
    async with FREEZES.writing(call) as unit:
        row = await _get_row(unit.execute, app_id, deployment_id)
        call.audit.nothing_done = row.status != BUILDING or row.upload_as is None
        if not call.audit.nothing_done:
            await _enqueue_unpacking(call, unit, deployment_id)
        live_id = await find_live_id(unit.execute, app_id)
    call.audit.resource_id = deployment_id
    return describe(call, row, live_id)


@sites.tool(
    "POST /deployments/{deployment_id}/activate",
    access=AppOwner("admin"),
    effect="write",
    raises=(DeploymentNotFound, DeploymentNotWaiting),
    audit=Audit("site.activate", category="app", action="update", resource="deployment"),
    guard=Guard(grants=True, overwrites=True),
)
async def sites_activate(call: Call, app_id: AppId, deployment_id: DeploymentId) -> Deployment:
    """Make a ready deployment the live one, at once: to roll back, activate an earlier one."""
    async with FREEZES.writing(call) as unit:
        row = await _get_row(unit.execute, app_id, deployment_id)
        if row.status != READY:
            raise DeploymentNotWaiting(f"The deployment is {row.status}; only one that is READY can be live.")
        await set_live(unit, app_id, deployment_id)
    call.audit.resource_id = deployment_id
    return describe(call, row, deployment_id)


@sites.tool(
    "POST /deployments/{deployment_id}/cancel",
    access=AppOwner("admin"),
    effect="write",
    raises=(DeploymentNotFound, DeploymentNotWaiting),
    audit=Audit("site.cancel", category="app", action="update", resource="deployment"),
    guard=Guard(overwrites=True),
)
async def sites_cancel(call: Call, app_id: AppId, deployment_id: DeploymentId) -> Deployment:
    """Cancel a deployment that is not ready yet. What is live stays live."""
    async with FREEZES.writing(call) as unit:
        row = await _get_row(unit.execute, app_id, deployment_id)
        if row.status not in (*UNFINISHED, CANCELED):
            raise DeploymentNotWaiting(f"The deployment is {row.status} already.")
        call.audit.nothing_done = row.status == CANCELED
        await end(unit, call.services, call.require_app(), deployment_id, status=CANCELED)
        row = await _get_row(unit.execute, app_id, deployment_id)
        live_id = await find_live_id(unit.execute, app_id)
    call.audit.resource_id = deployment_id
    return describe(call, row, live_id)


async def _preview_delete(call: Call, app_id: AppId, deployment_id: DeploymentId) -> str:
    async with call.reading() as execute:
        row = await _get_row(execute, app_id, deployment_id)
        is_live = await find_live_id(execute, app_id) == deployment_id
    what = f"Deletes the deployment {deployment_id} of {row.created_at:%Y-%m-%d} with {row.files_count} files for ever."
    return f"{what} It is the live one: the app then has no site." if is_live else what


@sites.tool(
    "DELETE /deployments/{deployment_id}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(DeploymentNotFound,),
    audit=Audit("site.delete", category="app", action="delete", resource="deployment"),
    guard=Guard(preview=_preview_delete),
)
async def sites_delete(call: Call, app_id: AppId, deployment_id: DeploymentId) -> DeletedDeployment:
    """Delete a deployment and its files for ever. If it is the live one, the app then has no site."""
    async with FREEZES.writing(call) as unit:
        await _get_row(unit.execute, app_id, deployment_id)
        was_live = await find_live_id(unit.execute, app_id) == deployment_id
        if was_live:
            await set_live(unit, app_id, None)
        await remove_deployment(unit, call.services, call.require_app(), deployment_id)
    call.audit.resource_id = deployment_id
    return {"id": deployment_id, "deleted": True, "was_live": was_live}


@sites.tool(
    "GET /deployments/{deployment_id}/preview",
    access=AppOwner(),
    effect="read",
    raises=(DeploymentNotFound, DeploymentNotWaiting),
)
async def sites_preview(call: Call, app_id: AppId, deployment_id: DeploymentId) -> Preview:
    """Get an address at which a browser shows a ready deployment, live or not. It is valid for an hour.

    The deployment is on a host of its own, where the app's API is too.
    """
    async with call.reading() as execute:
        row = await _get_row(execute, app_id, deployment_id)
    if row.status != READY:
        raise DeploymentNotWaiting(f"The deployment is {row.status}; only one that is READY can be shown.")
    signed_url = build_signed_url(call, "GET", build_preview_path(app_id, deployment_id), _PREVIEW_SECONDS)
    address = call.services.options.build_site_address(build_preview_label(app_id, deployment_id))
    return {"url": f"{address}/?{urlsplit(signed_url).query}", "expiresIn": _PREVIEW_SECONDS}


def describe(call: Call, row: Any, live_id: str | None) -> Deployment:
    return {
        "id": row.id,
        "status": row.status,
        "framework": row.framework,
        "live": row.id == live_id,
        "url": call.services.options.build_site_address(call.require_app().subdomain),
        "files_count": row.files_count,
        "size_bytes": row.size_bytes,
        "warnings": row.warnings,
        "error": row.error,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
    }


async def insert_deployment(call: Call, unit: Unit, deployment_id: str, framework: str, status: str) -> None:
    """Inserts the row of a deployment. Raises TooManyDeployments. unit: holds the app's lock."""
    app_id = call.require_app().id
    is_unfinished = (_columns.app_id == app_id, _columns.status.in_(UNFINISHED))
    count = (await unit.execute(select(func.count()).select_from(site_deployments).where(*is_unfinished))).scalar_one()
    if count >= _MOST_UNFINISHED:
        raise TooManyDeployments(details={"limit": _MOST_UNFINISHED, "current": count})
    row = {
        "app_id": app_id,
        "id": deployment_id,
        "position": await next_position(unit.execute, app_id),
        "status": status,
        "framework": framework,
        "files_count": 0,
        "size_bytes": 0,
        "rules": {"headers": [], "redirects": []},
        "warnings": [],
        "created_at": call.now,
        "started_at": call.now if status == BUILDING else None,
    }
    await unit.execute(insert(site_deployments), row)


def _is_it(app_id: str, deployment_id: str) -> tuple[Any, Any]:
    return _columns.app_id == app_id, _columns.id == deployment_id


async def _get_row(execute: Any, app_id: str, deployment_id: str) -> Any:
    """Returns the row of a deployment. Raises DeploymentNotFound."""
    row = await find_deployment(execute, app_id, deployment_id)
    if row is None:
        raise DeploymentNotFound
    return row


async def _enqueue_unpacking(call: Call, unit: Unit, deployment_id: str) -> None:
    app = call.require_app()
    arguments = {"app_id": app.id, "deployment_id": deployment_id}
    await call.services.jobs.enqueue(unit, UNPACK, arguments, tenant=app.organisation_id)
