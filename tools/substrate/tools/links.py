"""/v1/me/apps/{app_id}: the substrate that an app's agents may use, and whether its users become entities there."""

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import select, update

from baobab.tools.core import Account, AppId, AppOwner, Audit, Call, Guard, Toolset, Uuid, one_of, require_role
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.core.listing import Listing
from baobab.tools.substrate.access import CALLERS, EITHER_SIDE, organisation_of
from baobab.tools.substrate.errors import NotLinked
from baobab.tools.substrate.schemas import AppLink, LinkedApps
from baobab.tools.substrate.toolset import substrate

substrate_links = Toolset("substrate_links", "The links of apps to substrates.", base="/v1/me/apps/{app_id}")

_ADMIN = AppOwner("admin", keys=False)


@substrate_links.tool(
    "POST /substrate-link",
    access=_ADMIN,
    effect="write",
    audit=Audit("app.substrate.link", resource="app"),
    guard=Guard(widens={"organization_id": whatever_is_given}),
)
async def apps_link_substrate(call: Call, app_id: AppId, organization_id: Uuid | None = None) -> AppLink:
    """Link an app to the substrate of an organisation. Its agents may then use it, and its users can be mirrored there.

    organization_id: an organisation in which you are an admin; null for the one that has the app.
    """
    caller = call.caller
    assert isinstance(caller, Account)
    linked_organisation_id = call.require_app().organisation_id if organization_id is None else str(organization_id)
    require_role(await call.services.directory.role(linked_organisation_id, caller.account_id), "admin")
    return await _change(call, app_id, substrate_organization_id=linked_organisation_id)


@substrate_links.tool(
    "DELETE /substrate-link",
    access=EITHER_SIDE,
    effect="write",
    audit=Audit("app.substrate.unlink", resource="app"),
)
async def apps_unlink_substrate(call: Call, app_id: AppId) -> AppLink:
    """Unlink an app from a substrate, as an admin of either. The substrate keeps what it has."""
    return await _change(call, app_id, substrate_organization_id=None, substrate_autopropagate_users=False)


@substrate_links.tool(
    "PUT /substrate-autopropagate",
    access=_ADMIN,
    effect="write",
    raises=(NotLinked,),
    audit=Audit("app.substrate.autopropagate", resource="app"),
    guard=Guard(widens={"users": one_of([True])}),
)
async def apps_set_substrate_autopropagate(
    call: Call,
    app_id: AppId,
    users: Annotated[bool | None, Field(description="Whether users become entities; null leaves it as it is.")] = None,
) -> AppLink:
    """Choose whether people who sign up to an app become entities of the substrate, marked as strangers.

    users: whether they do, from now on; null leaves it as it is.
    """
    row = await _read(call, app_id)
    if users and row["organization_id"] is None:
        raise NotLinked
    return row if users is None else await _change(call, app_id, substrate_autopropagate_users=users)


@substrate.tool(
    "GET /apps",
    access=CALLERS,
    effect="read",
    listing=Listing("apps", continues=("after", "app_id")),
)
async def substrate_apps(
    call: Call,
    limit: Annotated[int, Field(ge=1, le=500)] = 100,
    after: AppId | None = None,
) -> LinkedApps:
    """List the apps that are linked to the substrate, and whether their users become entities there.

    limit: how many at most.
    after: the last `app_id` of the previous page; null for the first page.
    """
    query = select(apps.c.id, apps.c.name, apps.c.substrate_autopropagate_users)
    query = query.where(apps.c.substrate_organization_id == organisation_of(call))
    if after is not None:
        query = query.where(apps.c.id > after)
    rows = await call.execute(query.order_by(apps.c.id).limit(limit))
    return {"apps": [{"app_id": row.id, "name": row.name, "users": row.substrate_autopropagate_users} for row in rows]}


async def _change(call: Call, app_id: str, **values: Any) -> AppLink:
    await call.execute(update(apps).where(apps.c.id == app_id).values(**values, updated_at=call.now))
    return await _read(call, app_id)


async def _read(call: Call, app_id: str) -> AppLink:
    query = select(apps.c.substrate_organization_id, apps.c.substrate_autopropagate_users)
    row = (await call.execute(query.where(apps.c.id == app_id))).one()
    return {
        "app_id": app_id,
        "organization_id": row.substrate_organization_id,
        "users": row.substrate_autopropagate_users,
    }
