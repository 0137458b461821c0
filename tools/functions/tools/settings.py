"""The environment of functions, and settings that change without a deployment."""

from typing import Any

from sqlalchemy import select, update

from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import OMITTED, AppId, AppOwner, Audit, Call, Guard, Rest
from baobab.tools.functions import env as envs
from baobab.tools.functions.errors import EnvInvalid, FunctionInvalid, FunctionNotFound, NothingToChange
from baobab.tools.functions.live import publish_change
from baobab.tools.functions.rows import get_row
from baobab.tools.functions.schemas import (
    AllowedHosts,
    AppEnv,
    AppEnvChanged,
    EnvChanged,
    EnvVars,
    Name,
    SettingsChanged,
    Triggers,
)
from baobab.tools.functions.tables import FREEZES, app_env, functions_table
from baobab.tools.functions.tools.functions import INVALIDATED, follow_triggers, read_secret
from baobab.tools.functions.toolset import functions
from baobab.tools.functions.trigger_configs import read_triggers

_columns = functions_table.c
_EXAMPLE = {"envVars": {"GREETING": "Hello", "OLD_NAME": None}}


@functions.tool(
    "PATCH /functions/{name}/env",
    access=AppOwner("admin"),
    effect="write",
    raises=(FunctionNotFound, EnvInvalid),
    audit=Audit("function.env", category="function", action="update", resource="function"),
    rest=Rest(max_body=4 * 2**20, examples=_EXAMPLE),
    guard=Guard(grants=True),
)
async def functions_env_update(
    call: Call, app_id: AppId, name: Name, envVars: EnvVars, envVarsReplace: bool = False
) -> EnvChanged:
    """Change the environment variables of a function: what is named is set, null removes it, the others stay.

    They are stored encrypted. Nobody can read their values again; the function can.

    envVarsReplace: whether envVars replaces all that there were.
    """
    vault = call.services.vault
    async with FREEZES.writing(call) as unit:
        row = await get_row(unit.execute, app_id, name)
        env = envs.merge_env({} if envVarsReplace else envs.open_env(vault, row.id, row.env), envVars)
        is_it = (_columns.app_id == app_id, _columns.id == row.id)
        values = {"env": envs.seal_env(vault, row.id, env), "updated_at": call.now}
        await unit.execute(update(functions_table).where(*is_it).values(**values))
    await publish_change(call)
    call.audit.resource_id = row.id
    call.audit.data |= {"name": name, "variables": sorted(envVars)}
    message = f"The environment of {name} has {len(env)} variables. Its next call sees them."
    return {"message": message, "function": name, "updatedKeys": sorted(env), "cache_invalidation": INVALIDATED}


@functions.tool(
    "PATCH /functions/{name}/settings",
    access=AppOwner("admin"),
    effect="write",
    raises=(FunctionNotFound, FunctionInvalid, NothingToChange),
    audit=Audit("function.settings", category="function", action="update", resource="function"),
    rest=Rest(examples={"allow_service_key_impersonation": False}),
    guard=Guard(grants=True),
)
async def functions_settings_update(
    call: Call,
    app_id: AppId,
    name: Name,
    allow_service_key_impersonation: bool | None = None,
    triggers: Triggers | None = None,
    allowed_hosts: AllowedHosts | None = OMITTED,
) -> SettingsChanged:
    """Change settings of a function without deploying it.

    allow_service_key_impersonation: whether keys of the app may call it for a user, with X-Platform-As-User.
    triggers: replace all that there are. In a clone of a template, this is how they are switched on.
    allowed_hosts: the only hosts that its `fetch` reaches, at each redirect; null for every public one.
    """
    if allow_service_key_impersonation is None and triggers is None and allowed_hosts is OMITTED:
        raise NothingToChange("Send `allow_service_key_impersonation`, `triggers` or `allowed_hosts`.")
    plan = None if triggers is None else read_triggers(triggers)
    values: dict[str, Any] = {}
    if allow_service_key_impersonation is not None:
        values["allow_service_key_impersonation"] = allow_service_key_impersonation
    if allowed_hosts is not OMITTED:
        values["allowed_hosts"] = allowed_hosts
    async with FREEZES.writing(call) as unit:
        row = await get_row(unit.execute, app_id, name)
        secret, columns = read_secret(call, row, plan)
        is_it = (_columns.app_id == app_id, _columns.id == row.id)
        await unit.execute(update(functions_table).where(*is_it).values(**values, **columns, updated_at=call.now))
        row = await get_row(unit.execute, app_id, name)
    if plan is not None:
        await follow_triggers(call, row)
    await publish_change(call)
    call.audit.resource_id = row.id
    call.audit.data |= {"name": name, **values}
    if plan is not None:
        call.audit.data["triggers"] = [each["type"] for each in row.triggers if each["enabled"]]
    return {
        "message": "The settings were changed.",
        "function": name,
        "cache_invalidation": INVALIDATED,
        "triggers": [{"type": each["type"], "enabled": each["enabled"]} for each in row.triggers],
        "allowed_hosts": row.allowed_hosts,
        "webhook_secret": secret,
    }


@functions.tool("GET /env", access=AppOwner(), effect="read")
async def functions_app_env(call: Call, app_id: AppId) -> AppEnv:
    """List the names of the environment variables that all functions of an app have. Values are never shown."""
    row: Any = (await call.read(select(app_env).where(app_env.c.app_id == app_id))).first()
    if row is None:
        return {"keys": [], "updatedAt": None}
    return {"keys": sorted(envs.open_app_env(call.services.vault, app_id, row.env)), "updatedAt": row.updated_at}


@functions.tool(
    "PATCH /env",
    access=AppOwner("admin"),
    effect="write",
    raises=(EnvInvalid,),
    audit=Audit("function.app_env", category="function", action="update", resource="app"),
    rest=Rest(max_body=4 * 2**20, examples=_EXAMPLE),
    guard=Guard(grants=True),
)
async def functions_app_env_update(call: Call, app_id: AppId, envVars: EnvVars) -> AppEnvChanged:
    """Change the environment variables that all functions of an app have. A function's own ones win over them."""
    vault = call.services.vault
    async with FREEZES.writing(call) as unit:
        query = select(app_env.c.env).where(app_env.c.app_id == app_id)
        sealed_env: Any = (await unit.execute(query)).scalar()
        env = envs.merge_env(envs.open_app_env(vault, app_id, sealed_env), envVars)
        values = {"env": envs.seal_app_env(vault, app_id, env), "updated_at": call.now}
        statement = build_upsert(unit.database.dialect, app_env).values(app_id=app_id, **values)
        await unit.execute(statement.on_conflict_do_update(index_elements=["app_id"], set_=values))
        is_there = (_columns.app_id == app_id, _columns.deleted_at.is_(None))
        names = (await unit.execute(select(_columns.name).where(*is_there).order_by(_columns.name))).scalars().all()
    await publish_change(call)
    call.audit.resource_id = app_id
    call.audit.data["variables"] = sorted(envVars)
    return {"updatedKeys": sorted(env), "invalidated": {"functions": list(names), "count": len(names)}}
