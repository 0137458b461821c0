"""The pages of sites, which are answered on hosts of their own: that of the app, and one for each preview."""

from typing import Annotated, Unpack, cast

from pydantic import Field
from sqlalchemy import select

from baobab.tools.core import AppId, Call, Mcp, PerAddress, Rest, Secret, Text
from baobab.tools.core.errors import Damaged
from baobab.tools.core.signed_urls import Expires, Signature
from baobab.tools.core.traffic import BandwidthExceeded, require_bandwidth
from baobab.tools.sites.access import PREVIEWERS, VISITORS, name_preview_cookie
from baobab.tools.sites.building import READY, find_deployment
from baobab.tools.sites.errors import (
    DeploymentNotFound,
    SiteNotFound,
    SiteRangeNotSatisfiable,
    SiteStoreFailed,
)
from baobab.tools.sites.schemas import Bytes, Conditions, DeploymentId
from baobab.tools.sites.serving import HEADERS, STATUSES, answer_page, choose_status, redirect
from baobab.tools.sites.tables import site_deployments, site_traffic, sites_table
from baobab.tools.sites.toolset import sites

PagePath = Annotated[str, Text(2000), Field(description="The path in the site, without its first slash.")]
# One page asks for many files. They count by themselves, so that visitors do not spend what the app's API needs.
_LIMIT = PerAddress(6000, 60, per_app=True)
_RAISES = (SiteRangeNotSatisfiable, SiteStoreFailed, Damaged, BandwidthExceeded)


@sites.tool(
    "GET /pages/{path:path}",
    access=VISITORS,
    effect="read",
    raises=(SiteNotFound, *_RAISES),
    limit=_LIMIT,
    rest=Rest(
        status=choose_status,
        statuses=STATUSES,
        media_type="application/octet-stream",
        from_headers=HEADERS,
        form=True,
        site=True,
    ),
    mcp=Mcp(offered=False),
)
async def sites_page(call: Call, app_id: AppId, path: PagePath, **conditions: Unpack[Conditions]) -> Bytes:
    """Read a page or another file of the app's site, on the host of the app. This path sends there."""
    async with call.reading() as execute:
        is_live = (sites_table.c.app_id == site_deployments.c.app_id) & (sites_table.c.live_id == site_deployments.c.id)
        query = select(site_deployments).join(sites_table, is_live).where(sites_table.c.app_id == app_id)
        deployment = (await execute(query)).first()
        if deployment is None:
            raise SiteNotFound
        await require_bandwidth(call, execute, site_traffic)
        return cast(bytes, await answer_page(call, execute, deployment, path, conditions))


@sites.tool(
    "GET /deployments/{deployment_id}/pages/{path:path}",
    access=PREVIEWERS,
    effect="read",
    raises=(DeploymentNotFound, *_RAISES),
    limit=_LIMIT,
    rest=Rest(
        status=choose_status,
        statuses=STATUSES,
        media_type="application/octet-stream",
        from_headers={**HEADERS, "cookie": "cookie"},
        form=True,
        site=True,
    ),
    mcp=Mcp(offered=False),
)
async def sites_preview_page(
    call: Call,
    app_id: AppId,
    deployment_id: DeploymentId,
    path: PagePath,
    expires: Expires = 0,
    signature: Signature = "",
    cookie: Annotated[str, Secret(8192)] = "",
    **conditions: Unpack[Conditions],
) -> Bytes:
    """Read a page of a deployment, on the host of its preview. This path sends there.

    The address from op:sites_preview leaves a cookie on that host, with which its pages find their files.

    cookie: the cookies of the preview's host.
    """
    async with call.reading() as execute:
        deployment = await find_deployment(execute, app_id, deployment_id)
        if deployment is None or deployment.status != READY:
            raise DeploymentNotFound
        if signature:
            cookie = _build_cookie(call, expires, signature)
            return cast(bytes, redirect(call, "/", 303, {"set-cookie": cookie}))
        await require_bandwidth(call, execute, site_traffic)
        return cast(bytes, await answer_page(call, execute, deployment, path, conditions, private=True))


def _build_cookie(call: Call, expires: int, signature: str) -> str:
    name = name_preview_cookie(call)
    seconds = max(expires - int(call.services.clock.time()), 0)
    parts = [f"{name}={expires}.{signature}", "Path=/", f"Max-Age={seconds}", "HttpOnly", "SameSite=Lax"]
    return "; ".join((*parts, *(["Secure"] if name.startswith("__Host-") else [])))
