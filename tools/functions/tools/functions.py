"""/v1/{app_id}/functions: deploy functions, list them, read them, delete them."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from baobab.runtime.net.webhooks import new_secret
from baobab.storage.sql.database import Unit
from baobab.tools.core import OMITTED, AppId, AppOwner, Audit, Call, Guard, Mcp, Rest
from baobab.tools.functions import env as envs
from baobab.tools.functions.errors import (
    EnvInvalid,
    FunctionInvalid,
    FunctionNotFound,
    NameTaken,
    TooManyFunctions,
)
from baobab.tools.functions.live import build_urls, publish_change
from baobab.tools.functions.rows import (
    count_errors,
    describe_functions,
    find_row,
    get_row,
    list_env_keys,
    write_counts,
)
from baobab.tools.functions.schemas import (
    MOST_FUNCTIONS,
    MOST_VERSIONS,
    AllowedHosts,
    Code,
    Deployed,
    Description,
    EnvVars,
    ExposedTo,
    Function,
    FunctionDeleted,
    Functions,
    Language,
    MemoryMb,
    Message,
    Name,
    TimeoutMs,
    ToolDescription,
    ToolMode,
    TriggerInput,
    Triggers,
)
from baobab.tools.functions.sources import CheckedCode, check
from baobab.tools.functions.tables import FREEZES, functions_table, versions
from baobab.tools.functions.toolset import functions
from baobab.tools.functions.trigger_configs import TriggerPlan, find_trigger, read_triggers

_columns, _versions = functions_table.c, versions.c
_CODE = "export default (req, ctx) => Response.json({hello: ctx.request.functionName})"
_DEFAULTS: dict[str, Any] = {
    "description": "",
    "timeout_ms": 30_000,
    "memory_mb": 128,
    "agent_tool": False,
    "agent_tool_description": None,
    "agent_tool_mode": "read_only",
    "agent_tool_exposed_to": "developer_only",
    "allow_service_key_impersonation": True,
    "allowed_hosts": None,
}
_HTTP: list[TriggerInput] = [{"type": "http"}]
INVALIDATED: Any = {"success": True, "attempts": 1}
"""Other processes hear of a change by a notice in the transaction of the change."""


@functions.tool(
    "POST /functions",
    access=AppOwner("admin"),
    effect="write",
    raises=(FunctionInvalid, EnvInvalid, NameTaken, TooManyFunctions),
    audit=Audit("function.deploy", category="function", action="create", resource="function"),
    rest=Rest(max_body=8 * 2**20, examples={"name": "hello", "code": _CODE}),
    mcp=Mcp(long_running=True),
    guard=Guard(grants=True),
)
async def functions_deploy(
    call: Call,
    app_id: AppId,
    name: Name,
    code: Code,
    language: Language = "typescript",
    description: Description | None = None,
    envVars: EnvVars | None = None,
    envVarsReplace: bool = False,
    timeoutMs: TimeoutMs | None = None,
    memoryLimitMb: MemoryMb | None = None,
    triggers: Triggers | None = None,
    trigger: TriggerInput | None = None,
    agent_tool: bool | None = None,
    agent_tool_description: ToolDescription | None = OMITTED,
    agent_tool_mode: ToolMode | None = None,
    agent_tool_exposed_to: ExposedTo | None = None,
    allow_service_key_impersonation: bool | None = None,
    allowed_hosts: AllowedHosts | None = OMITTED,
    message: Message | None = None,
) -> Deployed:
    """Deploy a function: code that runs beside the app's data. A function of this name gets a new version.

    Settings that are left out stay as they are; a new function then has the defaults: 30000 ms, 128 MB, an http trigger
    that needs a credential. Triggers that are given replace all that there were.

    description: what it is for, for people.
    language: JavaScript is `typescript`, too.
    envVars: are merged into those that there are, and win over them; null removes one.
    envVarsReplace: whether envVars replaces them all.
    timeoutMs: at most 300000.
    memoryLimitMb: from 64 to 1024.
    trigger: one trigger, in place of `triggers`.
    agent_tool: whether agents may call it as a tool.
    agent_tool_description: what models are told about it; null removes it.
    agent_tool_mode: `read_write` asks a person before each call by an agent; `read_only` cannot change anything.
    agent_tool_exposed_to: whether runs and MCP clients of the app's users may call it, too.
    allow_service_key_impersonation: whether keys of the app may call it for a user, with X-Platform-As-User.
    allowed_hosts: the only hosts that its `fetch` reaches, at each redirect; null for every public one.
    """
    if triggers is not None and trigger is not None:
        raise FunctionInvalid("`trigger` is short for `triggers` with one element; send one of the two.")
    new_triggers = triggers if triggers is not None else [trigger] if trigger is not None else None
    plan = None if new_triggers is None else read_triggers(new_triggers)
    async with call.reading() as execute:
        present_row = await find_row(execute, app_id, name)
    env = (
        {}
        if present_row is None or envVarsReplace
        else envs.open_env(call.services.vault, present_row.id, present_row.env)
    )
    env = envs.merge_env(env, envVars or {})
    # Before the first statement: it may fetch what the code imports, and nobody must wait for that.
    source = await check(call.services, code, language, env)
    values: dict[str, Any] = {
        "description": description,
        "timeout_ms": timeoutMs,
        "memory_mb": memoryLimitMb,
        "agent_tool": agent_tool,
        "agent_tool_mode": agent_tool_mode,
        "agent_tool_exposed_to": agent_tool_exposed_to,
        "allow_service_key_impersonation": allow_service_key_impersonation,
    }
    values = {name_: value for name_, value in values.items() if value is not None}
    if agent_tool_description is not OMITTED:
        values["agent_tool_description"] = agent_tool_description
    if allowed_hosts is not OMITTED:
        values["allowed_hosts"] = allowed_hosts
    async with FREEZES.writing(call) as unit:
        row = await find_row(unit.execute, app_id, name)
        if row is None:
            row = await _add_function(call, unit, name)
        secret, columns = read_secret(call, row, plan)
        columns |= _read_env(call, row, envVars, replaces=envVarsReplace)
        number = row.last_version + 1
        is_changed = await _is_changed(unit, row, source)
        await unit.execute(insert(versions), _build_version(call, row.id, number, language, code, source, message))
        too_old = (
            _versions.app_id == app_id,
            _versions.function_id == row.id,
            _versions.number <= number - MOST_VERSIONS,
        )
        await unit.execute(delete(versions).where(*too_old, _versions.number != row.version))
        columns |= {
            **values,
            "version": number,
            "last_version": number,
            "deployed_at": call.now,
            "updated_at": call.now,
        }
        is_it = (_columns.app_id == app_id, _columns.id == row.id)
        await unit.execute(update(functions_table).where(*is_it).values(**columns))
        row = await get_row(unit.execute, app_id, name)
    await follow_triggers(call, row)
    await publish_change(call, of_tools=row.agent_tool or (present_row is not None and present_row.agent_tool))
    call.audit.resource_id = row.id
    call.audit.data |= {"name": name, "version": number, "sha256": source.sha256}
    call.audit.data["triggers"] = [each["type"] for each in row.triggers]
    url, webhook_url = build_urls(call.services, call.require_app(), row)
    return {
        "id": row.id,
        "name": name,
        "url": url,
        "triggers": [{"type": each["type"], "enabled": each["enabled"]} for each in row.triggers],
        "deployedAt": row.deployed_at,
        "cacheInvalidation": INVALIDATED,
        "version": number,
        "sha256": source.sha256,
        "changed": is_changed,
        "webhook_url": webhook_url,
        "webhook_secret": secret,
    }


async def _add_function(call: Call, unit: Unit, name: str) -> Any:
    """Writes the row of a new function, which has no version yet. Raises NameTaken and TooManyFunctions."""
    app_id = call.require_app().id
    is_same = (_columns.app_id == app_id, _columns.taken_name == name.lower())
    taken_name = (await unit.execute(select(_columns.name).where(*is_same))).scalar()
    if taken_name is not None:
        raise NameTaken(details={"name": taken_name})
    is_there = (_columns.app_id == app_id, _columns.deleted_at.is_(None))
    count = (await unit.execute(select(func.count()).select_from(functions_table).where(*is_there))).scalar_one()
    if count >= MOST_FUNCTIONS:
        raise TooManyFunctions(f"The app has {MOST_FUNCTIONS} functions already.", details={"limit": MOST_FUNCTIONS})
    new_row = {
        **_DEFAULTS,
        "app_id": app_id,
        "id": call.services.ids.uuid(),
        "name": name,
        "taken_name": name.lower(),
        "version": 0,
        "last_version": 0,
        "triggers": read_triggers(_HTTP).triggers,
        "created_at": call.now,
        "deployed_at": call.now,
        "updated_at": call.now,
    }
    await unit.execute(insert(functions_table), new_row)
    return await get_row(unit.execute, app_id, name)


def read_secret(call: Call, row: Any, plan: TriggerPlan | None) -> tuple[str | None, dict[str, Any]]:
    """Returns the secret that was generated for webhooks, if one was, and the columns of triggers."""
    if plan is None:
        return None, {}
    columns: dict[str, Any] = {"triggers": plan.triggers}
    if not plan.needs_secret:
        return None, {**columns, "webhook_secret": None}
    secret, new_one = plan.secret, None
    config = next(each["config"] for each in plan.triggers if each["type"] == "webhook")
    if secret is None:
        if row.webhook_secret is not None:
            return None, columns
        if config["provider"] is not None:
            raise FunctionInvalid(f"The webhook trigger needs `secret`: the one that {config['provider']} signs with.")
        secret = new_one = new_secret(call.services.ids)
    columns["webhook_secret"] = envs.seal_webhook_secret(call.services.vault, row.id, str(secret))
    return new_one, columns


def _read_env(call: Call, row: Any, changes: Mapping[str, str | None] | None, *, replaces: bool) -> dict[str, Any]:
    if changes is None and not replaces:
        return {}
    vault = call.services.vault
    env = envs.merge_env({} if replaces else envs.open_env(vault, row.id, row.env), changes or {})
    return {"env": envs.seal_env(vault, row.id, env)}


async def _is_changed(unit: Unit, row: Any, source: CheckedCode) -> bool:
    is_it = (_versions.app_id == row.app_id, _versions.function_id == row.id, _versions.number == row.version)
    return (await unit.execute(select(_versions.sha256).where(*is_it))).scalar() != source.sha256


def _build_version(
    call: Call, function_id: str, number: int, language: str, code: str, source: CheckedCode, message: str | None
) -> dict[str, Any]:
    return {
        "app_id": call.require_app().id,
        "function_id": function_id,
        "number": number,
        "language": language,
        "source": code,
        "code": source.code,
        "sha256": source.sha256,
        "input_schema": source.input_schema,
        "imports": source.imports,
        "message": message,
        "author": {"kind": call.caller.actor, "id": call.caller.actor_id},
        "created_at": call.now,
    }


async def follow_triggers(call: Call, row: Any, *, is_deleted: bool = False) -> None:
    """Has an app's triggers follow what a function says, in the call's own transaction."""
    triggers = [] if is_deleted else row.triggers
    await call.invoke(
        "triggers_follow_function",
        app_id=call.require_app().id,
        function=row.name,
        function_id=row.id,
        cron=find_trigger(triggers, "cron"),
        storage_upload=find_trigger(triggers, "storage_upload"),
    )


@functions.tool("GET /functions", access=AppOwner(), effect="read")
async def functions_list(call: Call, app_id: AppId) -> Functions:
    """List the functions of an app, with their triggers, and how often they were called and failed."""
    await write_counts(call)
    query = select(functions_table).where(_columns.app_id == app_id, _columns.deleted_at.is_(None))
    async with call.reading() as execute:
        rows = (await execute(query.order_by(_columns.name))).all()
        return {"functions": await describe_functions(call, execute, rows)}


@functions.tool("GET /functions/{name}", access=AppOwner(), effect="read", raises=(FunctionNotFound,))
async def functions_get(call: Call, app_id: AppId, name: Name) -> Function:
    """Read a function: its code, settings, and the names of its environment variables. Values are never shown."""
    await write_counts(call)
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
        [description] = await describe_functions(call, execute, [row])
        is_live = (_versions.app_id == app_id, _versions.function_id == row.id, _versions.number == row.version)
        version: Any = (await execute(select(versions).where(*is_live))).first()
        errors = await count_errors(execute, row)
    _, webhook_url = build_urls(call.services, call.require_app(), row)
    return {
        **description,
        "code": version.source,
        "timeoutMs": row.timeout_ms,
        "memoryLimitMb": row.memory_mb,
        "errorCount": errors,
        "envKeys": list_env_keys(call, row),
        "allowed_hosts": row.allowed_hosts,
        "sha256": version.sha256,
        "input_schema": version.input_schema,
        "webhook_url": webhook_url,
    }


async def _preview_delete(call: Call, app_id: AppId, name: Name) -> str:
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
    kinds = ", ".join(each["type"] for each in row.triggers) or "nothing"
    return f"It would delete the function {name}, which {kinds} starts now, with its environment. Its logs are kept."


@functions.tool(
    "DELETE /functions/{name}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(FunctionNotFound,),
    audit=Audit("function.delete", category="function", action="delete", resource="function"),
    guard=Guard(preview=_preview_delete),
)
async def functions_delete(call: Call, app_id: AppId, name: Name) -> FunctionDeleted:
    """Delete a function with its environment. Its address answers 404; its logs and versions are kept."""
    async with FREEZES.writing(call) as unit:
        row = await get_row(unit.execute, app_id, name)
        is_it = (_columns.app_id == app_id, _columns.id == row.id)
        values = {"deleted_at": call.now, "taken_name": row.id, "env": None, "webhook_secret": None, "triggers": []}
        await unit.execute(update(functions_table).where(*is_it).values(**values, updated_at=call.now))
    await follow_triggers(call, row, is_deleted=True)
    await publish_change(call, of_tools=row.agent_tool)
    call.audit.resource_id = row.id
    call.audit.data["name"] = name
    return {"success": True}
