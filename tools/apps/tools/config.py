"""An app's settings: /v1/{app_id}/config and its parts."""

from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import select, update

from baobab.runtime.agents.tables import agents
from baobab.tools.apps.errors import FunctionNotDeployed, StorageBeyondPlan, ToolNotForUsers
from baobab.tools.apps.rows import get_app_row
from baobab.tools.apps.schemas import (
    AccessMode,
    AccessModeSet,
    AuthHookSet,
    Config,
    CorsSet,
    JwtSet,
    PauseSet,
    Secured,
    SecuredTable,
    StorageSet,
    TableError,
    TableToSecure,
    UserToolsSet,
    Visibility,
    VisibilitySet,
)
from baobab.tools.core import (
    AppId,
    AppNotFound,
    AppOwner,
    Audit,
    BadRequest,
    BaobabError,
    Call,
    Guard,
    NotFound,
    Rest,
    Text,
    Toolset,
    one_of,
)
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.auth.user_tools import build_resource, is_for_users
from baobab.tools.core.call import Preview
from baobab.tools.core.errors import MissingField
from baobab.tools.core.guard.changes import NOTHING, Change, describe_change
from baobab.tools.core.guard.widening import whatever_is_given
from baobab.tools.core.limits.plans import MB, Plan
from baobab.tools.core.outages import STORE_OUTAGES

config = Toolset("config", "An app's settings.", base="/v1/{app_id}")

_ADMIN = AppOwner("admin")

Origin = Annotated[
    str,
    Text(250, pattern=r"^https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?$"),
    Field(description="A full web origin, without a path.", examples=["https://shop.example.com"]),
]
ContentType = Annotated[
    str, Text(100, pattern=r"^[A-Za-z0-9!#$&^_.+-]+/([A-Za-z0-9!#$&^_.+-]+|\*)$"), Field(examples=["image/png"])
]
ToolName = Annotated[str, Text(100, pattern=r"^[a-z][a-z0-9_]*$")]
FunctionName = Annotated[str, Text(100, min_length=1)]
Reason = Annotated[str, Text(500)]
_FURTHER_NAMES = {"access_token_ttl": "accessTokenTtl"}


@config.tool(
    "GET /config",
    access=AppOwner(),
    effect="read",
    rest=Rest(further_names=_FURTHER_NAMES),
)
async def config_get(call: Call, app_id: AppId) -> Config:
    """Read every setting of an app."""
    row = await get_app_row(call)
    return {
        "id": app_id,
        "name": row["name"],
        "display_name": row["display_name"],
        "subdomain": row["subdomain"],
        "organization_id": row["organisation_id"],
        "db_name": app_id,
        "db_provisioned": True,
        "region": row["region"],
        "anon_key": row["anon_key"],
        "allowed_origins": row["allowed_origins"],
        "user_tools": row["user_tools"],
        "storage_config": row["storage_config"],
        "jwt_config": row["jwt_config"],
        "auth_hook_function": row["auth_hook_function"],
        "access_mode": row["access_mode"],
        "visibility": row["visibility"],
        "listed": row["listed"],
        "open_tables": await _list_open_tables(call),
        "open_collections": await _list_open_collections(call),
        "open_agents": await _list_open_agents(call),
        "open_keys": await _list_open_keys(call),
        "paused": row["paused_at"] is not None,
        "paused_at": row["paused_at"],
        "paused_reason": row["paused_reason"],
        "template_source_app_id": row["template_source_app_id"],
        "repo_latest_snapshot": row["repo_latest_snapshot"],
        "fork_count": row["fork_count"],
        "substrate_organization_id": row["substrate_organization_id"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }


_HOLDERS = {"accessTokenTtl": "jwt_config", "refreshTokenTtlDays": "jwt_config"} | dict.fromkeys(
    ("publicReadEnabled", "maxFileSizeMb", "storageLimitBytes", "userLimitBytes", "allowedContentTypes"),
    "storage_config",
)
"""The columns that hold several settings as JSON, by the setting."""
_COLUMN_NAMES = {"tools": "user_tools", "post_auth_function": "auth_hook_function", "reason": "paused_reason"}
"""The columns whose names are not those of the arguments."""


async def _preview(call: Call, app_id: AppId, **settings: Any) -> Preview:
    """Returns the settings that would have another value."""
    del app_id
    row = await get_app_row(call)
    changes: list[Change] = []
    for name, after in settings.items():
        if after is None and name not in ("post_auth_function", "reason"):
            # Fields that are left out stay.
            continue
        if name == "paused":
            before = row["paused_at"] is not None
        elif name in _HOLDERS:
            before = row[_HOLDERS[name]].get(name)
        else:
            before = row[_COLUMN_NAMES.get(name, name)]
        if before != after:
            values = [NOTHING if value is None else value for value in (before, after)]
            changes.append(describe_change(name, *values))
    return Preview(changes=changes)


@config.tool(
    "PATCH /config/access-mode",
    access=_ADMIN,
    effect="write",
    audit=Audit("app.config.access_mode", resource="app"),
    rest=Rest(examples={"access_mode": "authenticated"}),
    guard=Guard(preview=_preview, widens={"access_mode": one_of(["public"])}),
)
async def config_access_mode(call: Call, app_id: AppId, access_mode: AccessMode) -> AccessModeSet:
    """Let anonymous requests reach what the app opens to visitors, or only signed-in users and keys.

    What is open: rows of tables that policies open to visitors and their live changes, exposed keys, public agents and
    public collections. The answer's `warnings` name what visitors reach as a whole. Takes effect within 2 s. Event
    streams opened with a token of their own continue to their end.

    access_mode: `public` lets anonymous requests through to the rules; `authenticated` answers them 401.
    """
    await _set(call, access_mode=access_mode)
    answer: AccessModeSet = {
        "message": f"Access mode is now {access_mode}.",
        "app_id": app_id,
        "access_mode": access_mode,
    }
    warnings = await _list_what_is_open(call) if access_mode == "public" else []
    return {**answer, "warnings": warnings} if warnings else answer


@config.tool(
    "POST /secure",
    access=_ADMIN,
    effect="write",
    audit=Audit("app.secure", resource="app"),
    rest=Rest(examples={"tables": [{"table_name": "posts", "user_column": "user_id"}]}),
    guard=Guard(overwrites=True),
)
async def config_secure(
    call: Call, app_id: AppId, tables: Annotated[list[TableToSecure], Field(max_length=50)] | None = None
) -> Secured:
    """Require sign-in everywhere in the app, and let each user reach only their own rows of the tables that are named.

    Anonymous requests are answered 401 from now on. A table that cannot be isolated is listed in `table_errors`; the
    others are still isolated.

    tables: the tables to isolate by user; left out, only the access mode changes.
    """
    await _set(call, access_mode="authenticated")
    secured_tables: list[SecuredTable] = []
    errors: list[TableError] = []
    for table in tables or ():
        public = table.get("public_read_column")
        try:
            isolation = await call.invoke(
                "rls_isolate",
                app_id=app_id,
                table_name=table["table_name"],
                user_column=table["user_column"],
                public_read_column=public,
            )
        except (BadRequest, NotFound) as exc:
            errors.append({"table": table["table_name"], "error": exc.message})
        else:
            secured_tables.append({"table": table["table_name"], "policy": isolation["policy_name"]})
            if public is not None:
                secured_tables[-1]["public_read_policies"] = isolation["public_read_policies"]
    return {
        "message": "The app now requires sign-in.",
        "app_id": app_id,
        "access_mode": "authenticated",
        "tables_secured": secured_tables,
        "table_errors": errors,
    }


@config.tool(
    "PATCH /config/auth-hooks",
    access=_ADMIN,
    effect="write",
    raises=(FunctionNotDeployed,),
    audit=Audit("app.config.auth_hooks", resource="app"),
    rest=Rest(examples={"post_auth_function": None}),
    guard=Guard(preview=_preview),
)
async def config_auth_hooks(
    call: Call,
    app_id: AppId,
    post_auth_function: FunctionName | None,
) -> AuthHookSet:
    """Set the function that runs after each sign-in, or remove it with null.

    post_auth_function: name of a deployed function, or null.
    """
    if post_auth_function is not None:
        try:
            arguments = {"app_id": app_id, "name": post_auth_function}
            tool = call.registry.find("functions_get")
            await call.registry.run(tool, arguments, call.caller, call.context, unit=call.unit)
        except (NotFound, BadRequest) as exc:
            raise FunctionNotDeployed(f"The app has no function named `{post_auth_function}`.") from exc
    await _set(call, auth_hook_function=post_auth_function)
    if post_auth_function is None:
        return {"message": "The post-auth hook was removed.", "auth_hook_function": None}
    message = f"After each sign-in, {post_auth_function} is called."
    return {"message": message, "auth_hook_function": post_auth_function}


@config.tool(
    "PATCH /config/visibility",
    access=_ADMIN,
    effect="write",
    audit=Audit("app.config.visibility", resource="app"),
    rest=Rest(examples={"visibility": "public", "listed": True}),
    guard=Guard(preview=_preview, widens={"visibility": one_of(["public"]), "listed": one_of([True])}),
)
async def config_visibility(
    call: Call, app_id: AppId, visibility: Visibility, listed: bool | None = None
) -> VisibilitySet:
    """Offer an app as a template to everybody, or keep it private.

    The answer's `warnings` name what looks like a secret in what clones would have, and what visitors reach.

    visibility: `public` offers it, `private` does not.
    listed: whether a public app appears in the list of templates; unchanged when left out.
    """
    # First: the search must not wait while this call holds a lock.
    secrets = await _list_secrets(call) if visibility == "public" else []
    row = await get_app_row(call)
    is_listed = row["listed"] if listed is None else listed
    await _set(call, visibility=visibility, listed=is_listed)
    message = f"Visibility is now {visibility}."
    answer: VisibilitySet = {"message": message, "app_id": app_id, "visibility": visibility, "listed": is_listed}
    warnings = [*secrets, *await _list_what_is_open(call)] if visibility == "public" else []
    return {**answer, "warnings": warnings} if warnings else answer


@config.tool(
    "PATCH /config/storage",
    access=_ADMIN,
    effect="write",
    raises=(StorageBeyondPlan,),
    audit=Audit("app.config.storage", resource="app"),
    rest=Rest(examples={"publicReadEnabled": True}),
    guard=Guard(
        preview=_preview, widens={"publicReadEnabled": one_of([True]), "allowedContentTypes": whatever_is_given}
    ),
)
async def config_storage(
    call: Call,
    app_id: AppId,
    publicReadEnabled: bool | None = None,
    maxFileSizeMb: Annotated[int, Field(ge=1, le=100_000)] | None = None,
    storageLimitBytes: Annotated[int, Field(ge=0, le=2**50)] | None = None,
    userLimitBytes: Annotated[int, Field(ge=0, le=2**50)] | None = None,
    allowedContentTypes: Annotated[list[ContentType], Field(max_length=100)] | None = None,
) -> StorageSet:
    """Change how files of an app are stored. Fields left out stay.

    publicReadEnabled: whether every signed-in user may download every file.
    maxFileSizeMb: the largest file, in MB of 2^20 bytes.
    storageLimitBytes: the sum of all files, at most what the plan allows.
    userLimitBytes: the sum of the files of each user; by default a tenth of storageLimitBytes, or one file if larger.
    allowedContentTypes: MIME types that uploads may have, `image/*` included; an empty list allows all.
    """
    changes = {
        "publicReadEnabled": publicReadEnabled,
        "maxFileSizeMb": maxFileSizeMb,
        "storageLimitBytes": storageLimitBytes,
        "userLimitBytes": userLimitBytes,
        "allowedContentTypes": allowedContentTypes,
    }
    _require_in_plan(
        call.require_app().plan,
        maxFileSizeMb=None if maxFileSizeMb is None else maxFileSizeMb * MB,
        storageLimitBytes=storageLimitBytes,
        userLimitBytes=userLimitBytes,
    )
    settings = await _merge(call, "storage_config", changes)
    return {"message": "The storage settings were saved.", "app_id": app_id, "storage_config": settings}


@config.tool(
    "PATCH /config/jwt",
    access=_ADMIN,
    effect="write",
    audit=Audit("app.config.jwt", resource="app"),
    rest=Rest(examples={"accessTokenTtl": "30m"}, further_names=_FURTHER_NAMES),
    guard=Guard(preview=_preview),
)
async def config_jwt(
    call: Call,
    app_id: AppId,
    accessTokenTtl: Literal["15m", "30m", "1h", "2h", "1d"] | None = None,
    refreshTokenTtlDays: Annotated[int, Field(ge=1, le=365)] | None = None,
) -> JwtSet:
    """Change how long the tokens of an app's users live. Fields left out stay.

    accessTokenTtl: lifetime of access tokens issued from now on.
    refreshTokenTtlDays: lifetime of refresh tokens, in days.
    """
    changes = {"accessTokenTtl": accessTokenTtl, "refreshTokenTtlDays": refreshTokenTtlDays}
    settings = await _merge(call, "jwt_config", changes)
    return {"message": "The token lifetimes were saved.", "app_id": app_id, "jwt_config": settings}


@config.tool(
    "PATCH /config/cors",
    access=_ADMIN,
    effect="write",
    audit=Audit("app.config.cors", resource="app"),
    rest=Rest(examples={"allowed_origins": ["https://shop.example.com"]}),
    guard=Guard(preview=_preview, widens={"allowed_origins": whatever_is_given}),
)
async def config_cors(
    call: Call, app_id: AppId, allowed_origins: Annotated[list[Origin], Field(min_length=1, max_length=50)]
) -> CorsSet:
    """Choose the web origins whose pages may call the app. The list given replaces the one before.

    allowed_origins: full origins such as https://shop.example.com, without a path.
    """
    origins = list(dict.fromkeys(origin.lower() for origin in allowed_origins))
    await _set(call, allowed_origins=origins)
    return {"message": "The allowed origins were saved.", "app_id": app_id, "allowed_origins": origins}


@config.tool(
    "PATCH /config/user-tools",
    access=_ADMIN,
    effect="write",
    raises=(ToolNotForUsers,),
    audit=Audit("app.config.user_tools", resource="app"),
    rest=Rest(examples={"tools": ["kv_get", "kv_put"]}),
    guard=Guard(preview=_preview, widens={"tools": whatever_is_given}),
)
async def config_user_tools(
    call: Call, app_id: AppId, tools: Annotated[list[ToolName], Field(max_length=200)]
) -> UserToolsSet:
    """Choose the tools that the app's own users may call over MCP. The list given replaces the one before.

    With at least one tool, users sign in with their MCP clients at /mcp?app_id=, by OAuth. An empty list closes this.

    tools: names of tools that admit users of the app, such as kv_get. Users may do the same with them as over REST.
    """
    for name in tools:
        tool = call.registry.tools.get(name)
        if tool is None or not is_for_users(tool):
            possible = sorted(each.name for each in call.registry.tools.values() if is_for_users(each))
            raise ToolNotForUsers(f"Users of an app cannot call `{name}`.", details={"possible": possible})
    names = sorted(set(tools))
    await _set(call, user_tools=names)
    await call.services.notices.publish(call.unit, "tools", f"app:{app_id}")
    call.audit.data["tools"] = names
    message = "The tools of the app's users were saved." if names else "The app's users have no tools over MCP."
    mcp_url = build_resource(call.services.options.base_url, app_id)
    return {"message": message, "app_id": app_id, "user_tools": names, "mcp_url": mcp_url}


@config.tool(
    "PATCH /config/pause",
    access=_ADMIN,
    effect="write",
    audit=Audit("app.config.paused", resource="app"),
    rest=Rest(examples={"paused": True, "reason": "maintenance"}),
    guard=Guard(preview=_preview),
)
async def config_pause(call: Call, app_id: AppId, paused: bool, reason: Reason | None = None) -> PauseSet:
    """Pause an app's functions, data and files, or resume them. Sign-in, KV and all settings keep working.

    paused: true to pause, false to resume.
    reason: shown to callers while the app is paused.
    """
    if reason is not None and not paused:
        raise BadRequest("`reason` goes with `paused: true` only.")
    at = call.now if paused else None
    await _set(call, paused_at=at, paused_reason=reason)
    state = "paused" if paused else "running"
    return {
        "message": f"The app is now {state}.",
        "app_id": app_id,
        "paused": paused,
        "paused_at": at,
        "paused_reason": reason,
    }


async def _set(call: Call, **values: Any) -> None:
    app_id = call.require_app().id
    update_result = await call.execute(update(apps).where(apps.c.id == app_id).values(**values, updated_at=call.now))
    if not update_result.rowcount:
        raise AppNotFound
    await call.services.notices.publish(call.unit, "app", app_id)
    call.audit.resource_id = app_id


def _require_in_plan(plan: Plan, **sizes: int | None) -> None:
    """Raises StorageBeyondPlan for bytes that no upload could ever use. What was set under a larger plan may stay."""
    limit = plan.file_bytes
    excessive_names = [name for name, size in sizes.items() if size is not None and limit is not None and size > limit]
    if excessive_names:
        names = " and ".join(f"`{name}`" for name in excessive_names)
        raise StorageBeyondPlan(
            f"The plan {plan.name} allows {limit} bytes of files in all apps of the organisation; {names} is more.",
            details={"plan": plan.name, "limit_bytes": limit, "settings": excessive_names},
        )


async def _merge(call: Call, column: str, changes: dict[str, Any]) -> Any:
    new_values = {name: value for name, value in changes.items() if value is not None}
    if not new_values:
        raise MissingField(f"Send at least one of {', '.join(f'`{name}`' for name in changes)}.")
    settings = (await get_app_row(call))[column] | new_values
    await _set(call, **{column: settings})
    return settings


async def _list_open_tables(call: Call, *, counts: bool = False) -> list[str] | None:
    """Returns a sentence for each table of which visitors or any user reach every row. None if they cannot be read, as
    while their region does not answer: settings are read and changed all the same.

    counts: whether to count rows too, and name tables that are open because of the rows that they have today.
    """
    try:
        policies = await call.invoke("rls_list", app_id=call.require_app().id, with_slow_statements=counts)
    except BaobabError:
        return None
    return [finding["message"] for finding in policies["open_tables"]]


async def _list_open_collections(call: Call) -> list[str] | None:
    """Returns a sentence for each collection that visitors may read; None if they cannot be read."""
    try:
        collections = await call.invoke("rag_collections_list", app_id=call.require_app().id)
    except BaobabError:
        return None
    names = [collection["name"] for collection in collections if collection["accessMode"] == "public"]
    return [f"The collection `{name}`: anyone without signing in may read every document." for name in names]


async def _list_open_agents(call: Call) -> list[str] | None:
    """Returns a sentence for each agent that visitors may run; None if they cannot be read."""
    is_open = (agents.c.visibility == "public", agents.c.status == "active", agents.c.deleted_at.is_(None))
    # Not by agents_list, which reads all graphs.
    query = select(agents.c.name).where(agents.c.app_id == call.require_app().id, *is_open).order_by(agents.c.name)
    try:
        names = (await call.read(query)).scalars().all()
    except STORE_OUTAGES:
        return None
    return [f"The agent `{name}`: anyone without signing in may run it." for name in names]


async def _list_open_keys(call: Call) -> list[str] | None:
    """Returns a sentence for each rule that lets visitors read or write keys; None if they cannot be read."""
    try:
        rules = (await call.invoke("kv_expose_list", app_id=call.require_app().id))["rules"]
    except BaobabError:
        return None
    sentences: list[str] = []
    for rule in rules:
        verbs = [verb for verb in ("read", "write") if rule[verb] == "public"]
        if verbs:
            sentences.append(f"The keys `{rule['pattern']}`: anyone without signing in may {' and '.join(verbs)} them.")
    return sentences


async def _list_secrets(call: Call) -> list[str]:
    """Returns a sentence for each place where something that clones would have looks like a secret."""
    try:
        review = await call.invoke("clones_review", app_id=call.require_app().id)
    except BaobabError as error:
        return [f"What clones would have could not be searched for secrets: {error.message}"]
    sentences = [
        f"Each clone would have what looks like a secret ({secret['kind']}): {secret['place']}, line {secret['line']}."
        for secret in review["secrets"]
    ]
    if not review["complete"]:
        sentences.append("There is more text than is searched for secrets, so look at the rest yourself.")
    return sentences


async def _list_what_is_open(call: Call) -> list[str]:
    lists = (
        await _list_open_tables(call, counts=True),
        await _list_open_collections(call),
        await _list_open_agents(call),
        await _list_open_keys(call),
    )
    return [sentence for sentences in lists for sentence in sentences or ()]
