"""The arguments and results of the tools of apps."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from baobab.tools.core import Text


class NextAction(TypedDict):
    action: str
    description: str
    tool: NotRequired[str]


class AppMeta(TypedDict):
    resource_info: dict[str, Any]
    next_actions: list[NextAction]


class CreatedApp(TypedDict):
    app_id: str
    name: str
    created: bool
    region: str
    organization_id: str
    subdomain: str
    url: str
    api_url: str
    api_base_url: str
    anon_key: str
    db_provisioned: bool
    provisioning_status: str
    created_at: datetime
    _meta: AppMeta


class AppRow(TypedDict):
    id: str
    name: str
    display_name: str | None
    subdomain: str
    db_name: str
    db_provisioned: bool
    provisioning_status: str
    region: str
    visibility: str
    listed: bool
    template_source_app_id: str | None
    fork_count: int
    substrate_organization_id: str | None
    organization_id: str
    created_at: datetime


class AppList(TypedDict):
    apps: list[AppRow]
    next_cursor: str | None


class AppStatus(TypedDict):
    app_id: str
    name: str
    db_provisioned: bool
    provisioning_status: str
    provisioning_error: str | None


class Deleted(TypedDict):
    message: str
    app_id: str


AccessMode = Literal["public", "authenticated"]


Visibility = Literal["public", "private"]


Name = Annotated[str, Text(63, pattern=r"^[a-z_][a-z0-9_]*$")]


class StorageConfig(TypedDict):
    maxFileSizeMb: int
    allowedContentTypes: list[str]
    publicReadEnabled: bool
    storageLimitBytes: NotRequired[int]
    userLimitBytes: NotRequired[int]


class JwtConfig(TypedDict):
    accessTokenTtl: str
    refreshTokenTtlDays: int


class Config(TypedDict):
    id: str
    name: str
    display_name: Annotated[str | None, Field(description="What people read in place of the name.")]
    subdomain: str
    organization_id: str
    db_name: str
    db_provisioned: bool
    region: str
    anon_key: str
    allowed_origins: list[str]
    user_tools: Annotated[list[str], Field(description="The tools that the app's users may call over MCP.")]
    storage_config: StorageConfig
    jwt_config: JwtConfig
    auth_hook_function: str | None
    access_mode: AccessMode
    visibility: Visibility
    listed: bool
    open_tables: Annotated[
        list[str] | None,
        Field(
            description="A sentence for each table of which visitors or any user reach every row; null while the "
            "tables cannot be read."
        ),
    ]
    open_collections: Annotated[
        list[str] | None,
        Field(
            description="A sentence for each collection that visitors may read; null while the collections cannot be "
            "read."
        ),
    ]
    open_agents: Annotated[
        list[str] | None,
        Field(description="A sentence for each agent that visitors may run; null while the agents cannot be read."),
    ]
    open_keys: Annotated[
        list[str] | None,
        Field(
            description="A sentence for each rule that lets visitors read or write keys; null while the rules cannot "
            "be read. For the same key, a more specific rule may be closed."
        ),
    ]
    paused: bool
    paused_at: datetime | None
    paused_reason: str | None
    template_source_app_id: str | None
    repo_latest_snapshot: str | None
    fork_count: int
    substrate_organization_id: str | None
    created_at: datetime
    updated_at: datetime


class AccessModeSet(TypedDict):
    """warnings: of a public app, the tables of which visitors or any user reach every row, and what visitors reach of
    collections, agents and keys.
    """

    message: str
    app_id: str
    access_mode: AccessMode
    warnings: NotRequired[list[str]]


class SecuredTable(TypedDict):
    table: str
    policy: str
    public_read_policies: NotRequired[list[str]]


class TableError(TypedDict):
    table: str
    error: str


class Secured(AccessModeSet):
    tables_secured: list[SecuredTable]
    table_errors: list[TableError]


@with_config(ConfigDict(extra="forbid"))
class TableToSecure(TypedDict):
    table_name: Name
    user_column: Name
    public_read_column: NotRequired[Name]


class AuthHookSet(TypedDict):
    message: str
    auth_hook_function: str | None


class VisibilitySet(TypedDict):
    """warnings: of a public app, what looks like a secret in what clones have, the tables of which visitors or any user
    reach every row, and what visitors reach of collections, agents and keys.
    """

    message: str
    app_id: str
    visibility: Visibility
    listed: bool
    warnings: NotRequired[list[str]]


class StorageSet(TypedDict):
    message: str
    app_id: str
    storage_config: StorageConfig


class JwtSet(TypedDict):
    message: str
    app_id: str
    jwt_config: JwtConfig


class CorsSet(TypedDict):
    message: str
    app_id: str
    allowed_origins: list[str]


class UserToolsSet(TypedDict):
    message: str
    app_id: str
    user_tools: list[str]
    mcp_url: Annotated[str, Field(description="The address that the app's users give to their MCP clients.")]


class PauseSet(TypedDict):
    message: str
    app_id: str
    paused: bool
    paused_at: datetime | None
    paused_reason: str | None
