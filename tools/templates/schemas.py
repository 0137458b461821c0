"""The arguments and results of the tools of templates and clones."""

from datetime import datetime
from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from baobab.tools.core import AppId, NotSecret, Secret, Text

State = Literal[
    "pending",
    "processing",
    "replaying_schema",
    "replaying_rls",
    "replaying_durable_objects",
    "replaying_functions",
    "replaying_config",
    "copying_repo",
    "seeding_data",
    "completed",
    "failed",
]
TemplateId = Annotated[AppId, Field(description="The template: the `app_id` that op:templates_list names.")]
FunctionName = Annotated[str, Text(100, min_length=1)]
EnvName = Annotated[str, Text(128, min_length=1), NotSecret("the name of a variable")]
EnvValues = Annotated[
    dict[FunctionName, Annotated[dict[EnvName, Annotated[str, Secret(8192)]], Field(max_length=100)]],
    Field(max_length=100),
]


class NextAction(TypedDict):
    action: str
    description: str
    tool: NotRequired[str]


class Meta(TypedDict):
    next_actions: list[NextAction]


class SchemaSummary(TypedDict):
    """How much there is in a template; null while its region does not answer."""

    table_count: int | None
    function_count: int | None


class TemplateRow(TypedDict):
    app_id: str
    name: str
    owner_display_name: str
    region: str
    created_at: datetime
    fork_count: int
    has_repo: bool
    schema_summary: SchemaSummary


class TemplateList(TypedDict):
    items: list[TemplateRow]
    total: int
    limit: int
    offset: int
    _meta: Meta


class TableSummary(TypedDict):
    name: str
    column_count: int


class FunctionSummary(TypedDict):
    name: str
    trigger_type: str


class Fork(TypedDict):
    app_id: str
    name: str
    owner_display_name: NotRequired[str]
    created_at: datetime


class TemplateDetail(TemplateRow):
    display_name: str | None
    tables: list[TableSummary]
    functions: list[FunctionSummary]
    forks_sample: Annotated[list[Fork], Field(description="The newest clones that are offered themselves.")]
    repo_latest_snapshot: NotRequired[str | None]


class AbilityRow(TypedDict):
    kind: str
    name: str
    says: str
    is_on: Annotated[bool, Field(description="In a clone, whether its owner has switched it on.")]
    tool: Annotated[str | None, Field(description="The tool that switches it on.")]


class FoundSecret(TypedDict):
    place: str
    kind: str
    line: int


class KeyMeta(TypedDict):
    key: str
    status: Literal["auto_filled", "user_required"]
    reason: NotRequired[str]


class FunctionEnv(TypedDict):
    fn_name: str
    keys: list[str]
    key_meta: list[KeyMeta]


class DurableObjectEnv(TypedDict):
    env_keys: list[str]


class AppEnv(TypedDict):
    keys: list[str]
    note: str


class Preflight(TypedDict):
    """What a clone would need, could do, and would have of the template."""

    functions: list[FunctionEnv]
    durable_objects: DurableObjectEnv
    app_env: AppEnv
    has_repo: bool
    abilities: Annotated[
        list[AbilityRow], Field(description="What the app can do beyond keeping rows. In a clone, what acts is off.")
    ]
    hosts: Annotated[list[str], Field(description="The hosts that its code, agents and triggers name.")]
    secrets: Annotated[list[FoundSecret], Field(description="What looks like a secret in what is copied.")]
    complete: Annotated[bool, Field(description="Whether all texts were searched; else only the first 8 million.")]
    _meta: Meta


@with_config(ConfigDict(extra="forbid"))
class KeyToMint(TypedDict):
    fn_name: FunctionName
    key: EnvName


class CloneStarted(TypedDict):
    job_id: str
    status: State
    dest_app_id: NotRequired[str | None]
    error_message: NotRequired[str | None]
    _meta: Meta


class CloneJob(TypedDict):
    job_id: str
    status: State
    source_app_id: str
    dest_app_id: Annotated[str | None, Field(description="The copy, once it is completed.")]
    dest_region: str
    name: str
    retry_count: int
    error_message: str | None
    warnings: list[str]
    unfilled_env_vars: Annotated[
        dict[str, list[str]] | None, Field(description="Environment variables to fill in, by function.")
    ]
    created_at: datetime
    completed_at: datetime | None
    _meta: Meta


class CloneReview(TypedDict):
    """Where an app comes from, and what it can do."""

    app_id: str
    source_app_id: str | None
    source_name: str | None
    job_id: str | None
    cloned_at: datetime | None
    unfilled_env_vars: dict[str, list[str]] | None
    abilities: list[AbilityRow]
    hosts: list[str]
    secrets: Annotated[list[FoundSecret], Field(description="What looks like a secret in what clones would have.")]
    complete: Annotated[bool, Field(description="Whether all texts were searched; else only the first 8 million.")]
    _meta: Meta


class CloneWebhookSet(TypedDict):
    message: str
    app_id: str
    webhook_url: str | None
