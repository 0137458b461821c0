"""Tools that create, list, rename and delete apps: /init and /apps."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Row, bindparam, delete, func, select, update

from baobab.tools.apps.errors import NameTaken, RegionUnknown, SubdomainTaken
from baobab.tools.apps.rows import get_app_row
from baobab.tools.apps.schemas import AppList, AppRow, AppStatus, CreatedApp, Deleted
from baobab.tools.apps.toolset import apps
from baobab.tools.core import (
    OMITTED,
    AnyAccount,
    AppId,
    AppNotFound,
    AppOwner,
    Audit,
    Call,
    Cursor,
    Guard,
    Mcp,
    NameText,
    PageSize,
    Rest,
    Text,
    Uuid,
    decode_cursor,
    encode_cursor,
)
from baobab.tools.core.app_data import erase_app
from baobab.tools.core.auth.membership import resolve_organisation_id
from baobab.tools.core.auth.tables import api_keys, signing_keys
from baobab.tools.core.auth.tables import apps as apps_table
from baobab.tools.core.call import Preview
from baobab.tools.core.cells import Cells, RegionFull
from baobab.tools.core.errors import MissingField
from baobab.tools.core.failures import failures
from baobab.tools.core.guard.changes import describe_change
from baobab.tools.core.limits.plan_room import HELD_PLAN, ProjectLimitReached, cap_of_apps, read_plan, require_room
from baobab.tools.core.limits.plans import Plan
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.new_apps import (
    RESERVED,
    build_app_row,
    derive_subdomain,
    find_free_subdomain,
    insert_app_row,
    is_subdomain_taken,
)

AppName = Annotated[
    str,
    Text(63, min_length=1, pattern=r"^[a-z0-9][a-z0-9_-]*$"),
    Field(description="Lower case letters, digits, `_` and `-`; unique in its organisation.", examples=["shop"]),
]
DisplayName = Annotated[str, NameText(100, min_length=1)]
Subdomain = Annotated[str, Text(63, min_length=3, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
Region = Annotated[str, Text(40, min_length=1)]

_IN_ORGANISATION = apps_table.c.organisation_id == bindparam("organisation")
# Built once: to build a statement takes as long as to run it.
_EXISTING = ("id", "name", "region", "subdomain", "anon_key", "provisioning_status", "created_at")
_BY_NAME = select(*(apps_table.c[name] for name in _EXISTING)).where(
    _IN_ORGANISATION, apps_table.c.name == bindparam("name")
)
_COUNT = select(func.count()).select_from(apps_table).where(_IN_ORGANISATION)
_LISTED = [
    apps_table.c[name]
    for name in (
        "id", "name", "display_name", "subdomain", "provisioning_status", "region", "visibility", "listed",
        "template_source_app_id", "fork_count", "substrate_organization_id", "organisation_id", "created_at",
    )
]  # fmt: skip
"""The columns of an app that a list shows. The others are settings in JSON."""
_BY_ID = select(*_LISTED).where(apps_table.c.id == bindparam("app"))
_LIST = select(*_LISTED).where(_IN_ORGANISATION).limit(bindparam("count"))
_LIST = _LIST.order_by(apps_table.c.created_at.desc(), apps_table.c.id.desc())
_LIST_ON = _LIST.where(
    (apps_table.c.created_at < bindparam("created"))
    | ((apps_table.c.created_at == bindparam("created")) & (apps_table.c.id < bindparam("last")))
)


@apps.tool(
    "POST /init",
    access=AnyAccount(),
    effect="write",
    raises=(RegionUnknown, RegionFull, SubdomainTaken, ProjectLimitReached),
    audit=Audit("app.create", action="create", resource="app"),
    rest=Rest(status=lambda result: 201 if result["created"] else 200, statuses=(201, 200), examples={"name": "shop"}),
    mcp=Mcp(start=True),
)
async def apps_init(
    call: Call,
    name: AppName,
    region: Region | None = None,
    subdomain: Subdomain | None = None,
    organization_id: Uuid | None = None,
) -> CreatedApp:
    """Create an app, or get the one of that name.

    A second call with the same name is safe: it answers 200 with the existing app. The `anon_key` in the result is
    public: browsers send it in the `apikey` header.

    region: where the app's data will live; the server's default when left out. A geography picks the least loaded
      of its regions; the result names it.
    subdomain: a free subdomain of your choice; derived from the name when left out.
    organization_id: the organisation that will own it; the caller's when left out.
    """
    options, ids = call.services.options, call.services.ids
    organisation = await resolve_organisation_id(call, organization_id)
    cells = call.services.of(Cells)
    candidates = cells.find(region)
    if not candidates:
        raise RegionUnknown(f"`region`: there is no region `{region}`.", details={"regions": cells.list_region_names()})
    of_organisation = {"organisation": organisation}
    plan, same_name, count = await call.unit.execute_all(
        (HELD_PLAN, of_organisation), (_BY_NAME, {**of_organisation, "name": name}), (_COUNT, of_organisation)
    )
    app_count: int = count.scalar_one()
    app_row = same_name.first()
    is_new = app_row is None
    if app_row is not None:
        row = app_row._asdict()
    else:
        await _require_room(call, organisation, read_plan(plan), app_count)
        app_count += 1
        app_id = ids.app()
        row = build_app_row(
            call.services,
            app_id,
            organisation,
            name,
            subdomain=await _choose_subdomain(call, name, subdomain),
            region=await cells.choose(call.execute, candidates),
        )
        # The insert itself tells whether the subdomain is free, as it nearly always is.
        while not await insert_app_row(call.unit, row):
            row["subdomain"] = await _find_free_subdomain(call, name, subdomain)
        await call.services.notices.publish(call.unit, "app", app_id)
        await call.services.notices.publish(call.unit, "resources", f"organisation:{organisation}")
    call.audit.resource_id = row["id"]
    call.audit.organisation_id = organisation
    call.audit.app_id = row["id"]
    call.audit.nothing_done = not is_new
    if is_new:
        await call.emit("app.created", name=name, region=row["region"], organization_id=organisation)
    return {
        "app_id": row["id"],
        "name": row["name"],
        "created": is_new,
        "region": row["region"],
        "organization_id": organisation,
        "subdomain": row["subdomain"],
        "url": options.build_address(f"{row['subdomain']}.{options.base_domain}"),
        "api_url": f"{options.base_url}/v1/{row['id']}",
        "api_base_url": f"{options.base_url}/v1/{row['id']}",
        "anon_key": row["anon_key"],
        "db_provisioned": True,
        "provisioning_status": row["provisioning_status"],
        "created_at": row["created_at"],
        "_meta": {
            "resource_info": {"apps": app_count},
            "next_actions": [
                {"action": "store_value", "description": "Put a value under a key.", "tool": "kv_put"},
                {"action": "create_key", "description": "Mint an API key for this app.", "tool": "api_keys_create"},
                {"action": "read_config", "description": "See every setting of the app.", "tool": "config_get"},
            ],
        },
    }


@apps.tool(
    "GET /apps",
    access=AnyAccount(),
    effect="read",
    mcp=Mcp(start=True),
)
async def apps_list(
    call: Call, org_id: Uuid | None = None, limit: PageSize = 100, cursor: Cursor | None = None
) -> AppList:
    """List the apps of an organisation, newest first.

    org_id: another organisation that you belong to; the caller's when left out.
    """
    organisation = await resolve_organisation_id(call, org_id)
    query, parameters = _LIST, {"organisation": organisation, "count": limit + 1}
    if cursor is not None:
        created_at, last_id = decode_cursor(call.services.vault, "apps", cursor)
        query, parameters = _LIST_ON, {**parameters, "created": datetime.fromisoformat(created_at), "last": last_id}
    rows = (await call.read(query, parameters)).all()
    is_all = cursor is None and len(rows) <= limit
    await count_list(call, call.read, _LIST, is_all=is_all, values={"organisation": organisation})
    more = rows[limit - 1] if len(rows) > limit else None
    next_cursor = encode_cursor(call.services.vault, "apps", more.created_at.isoformat(), more.id) if more else None
    return {"apps": [_app_row(row) for row in rows[:limit]], "next_cursor": next_cursor}


@apps.tool(
    "GET /apps/{app_id}/status",
    access=AppOwner(),
    effect="read",
)
async def apps_status(call: Call, app_id: AppId) -> AppStatus:
    """Check whether an app is ready to be used."""
    row = await get_app_row(call)
    return {
        "app_id": app_id,
        "name": row["name"],
        "db_provisioned": True,
        "provisioning_status": row["provisioning_status"],
        "provisioning_error": row["provisioning_error"],
    }


async def _preview_update(
    call: Call, app_id: AppId, name: AppName | None = None, display_name: DisplayName | None = OMITTED
) -> Preview:
    del app_id
    row, names = await get_app_row(call), _collect_names(name, display_name)
    changes = [describe_change(field, row[field], value) for field, value in names.items() if row[field] != value]
    return Preview(changes=changes)


def _collect_names(name: str | None, display_name: str | None) -> dict[str, str | None]:
    names: dict[str, str | None] = {} if name is None else {"name": name}
    return names if display_name is OMITTED else {**names, "display_name": display_name}


@apps.tool(
    "PATCH /apps/{app_id}",
    access=AppOwner("admin"),
    effect="write",
    raises=(NameTaken, MissingField),
    audit=Audit("app.rename", resource="app"),
    rest=Rest(examples={"name": "storefront"}),
    guard=Guard(preview=_preview_update),
)
async def apps_update(
    call: Call, app_id: AppId, name: AppName | None = None, display_name: DisplayName | None = OMITTED
) -> AppRow:
    """Rename an app. Its id, subdomain and keys stay as they are.

    display_name: what people read in place of the name: in the console, on its sign-in page and in its mails; null for
      the name itself.
    """
    app, changes = call.require_app(), _collect_names(name, display_name)
    if not changes:
        raise MissingField("Nothing to change.", remediation="Send `name` or `display_name`.")
    await call.hold(app.organisation_id)
    same_name = select(apps_table.c.id).where(
        apps_table.c.organisation_id == app.organisation_id, apps_table.c.name == name, apps_table.c.id != app_id
    )
    if name is not None and (await call.execute(same_name)).first():
        raise NameTaken(f"The organisation has an app named `{name}`.")
    await call.execute(update(apps_table).where(apps_table.c.id == app_id).values(**changes, updated_at=call.now))
    await call.services.notices.publish(call.unit, "app", app_id)
    call.audit.resource_id = app_id
    call.audit.data |= {"from": app.name, "to": name or app.name}
    if display_name is not OMITTED:
        call.audit.data["display_name"] = display_name
    rows = (await call.unit.execute(_BY_ID, {"app": app_id})).all()
    if not rows:
        raise AppNotFound
    return _app_row(rows[0])


async def _preview_delete(call: Call, app_id: AppId) -> str:
    app, usage = call.require_app(), await call.stores.kv.usage(app_id)
    is_live = (api_keys.c.app_id == app_id, api_keys.c.revoked_at.is_(None))
    keys = (await call.execute(select(func.count()).where(*is_live))).scalar_one()
    return (
        f"It would delete the app {app.name} with {usage.keys} keys ({usage.bytes} bytes) in its key-value store, "
        f"and put {keys} API keys out of force."
    )


@apps.tool(
    "DELETE /apps/{app_id}",
    access=AppOwner("admin", keys=False),
    effect="destructive",
    audit=Audit("app.delete", action="delete", resource="app"),
    guard=Guard(preview=_preview_delete),
)
async def apps_delete(call: Call, app_id: AppId) -> Deleted:
    """Delete an app with everything it owns: data, keys, users, settings. This cannot be undone."""
    app = call.require_app()
    digests = (
        (
            await call.execute(
                select(api_keys.c.digest)
                .where(api_keys.c.app_id == app_id)
                .union_all(select(apps_table.c.function_key_digest).where(apps_table.c.id == app_id))
            )
        )
        .scalars()
        .all()
    )
    await call.execute(delete(signing_keys).where(signing_keys.c.owner == app_id))
    # apps_purge removes those in the database of another region.
    await call.execute(delete(failures).where(failures.c.app_id == app_id))
    if not (await call.execute(delete(apps_table).where(apps_table.c.id == app_id))).rowcount:
        raise AppNotFound
    for key_digest in digests:
        await call.services.notices.publish(call.unit, "key", key_digest)
    await call.services.notices.publish(call.unit, "app", app_id)
    await call.services.notices.publish(call.unit, "resources", f"organisation:{app.organisation_id}")
    await call.emit("app.deleted", name=app.name, region=app.region, organization_id=app.organisation_id)
    await erase_app(call.registry.toolsets, call.stores, app.id, call.unit)
    call.audit.resource_id = app_id
    call.audit.data["name"] = app.name
    return {"message": f"App {app.name} was deleted.", "app_id": app_id}


async def _choose_subdomain(call: Call, name: str, subdomain: str | None) -> str:
    first = subdomain or derive_subdomain(name)
    return await _find_free_subdomain(call, name, subdomain) if first in RESERVED else first


async def _find_free_subdomain(call: Call, name: str, requested_subdomain: str | None) -> str:
    if requested_subdomain is None:
        return await find_free_subdomain(call.unit, call.services, name)
    if requested_subdomain in RESERVED or await is_subdomain_taken(call.unit, requested_subdomain):
        raise SubdomainTaken(f"The subdomain `{requested_subdomain}` is taken or reserved.")
    return requested_subdomain


def _app_row(row: Row[Any]) -> AppRow:
    return {
        "id": row.id,
        "name": row.name,
        "display_name": row.display_name,
        "subdomain": row.subdomain,
        "db_name": row.id,
        "db_provisioned": True,
        "provisioning_status": row.provisioning_status,
        "region": row.region,
        "visibility": row.visibility,
        "listed": row.listed,
        "template_source_app_id": row.template_source_app_id,
        "fork_count": row.fork_count,
        "substrate_organization_id": row.substrate_organization_id,
        "organization_id": row.organisation_id,
        "created_at": row.created_at,
    }


async def _require_room(call: Call, organisation_id: str, plan: Plan, app_count: int) -> None:
    """Raises ProjectLimitReached if the plan of an organisation allows no more apps than it has."""
    if plan.apps is not None and app_count >= plan.apps:
        cap = await cap_of_apps(call.unit, organisation_id, plan)
        require_room("apps", plan, cap, app_count, error=ProjectLimitReached)
