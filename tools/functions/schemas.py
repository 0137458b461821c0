"""The shapes of what the tools of functions take and answer."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from baobab.tools.core import JsonObject, NotSecret, Secret, Text
from baobab.tools.core.types import Json, Moment

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
HOST = r"^(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$"
MOST_CODE = 2**20
"""Characters of a function's source. Its bytes are counted, too."""
MOST_FUNCTIONS, MOST_VERSIONS = 100, 50
MOST_VARIABLES, MOST_VALUE = 64, 32 * 1024

Name = Annotated[
    str,
    StringConstraints(pattern=NAME, min_length=1, max_length=100),
    Field(description="The function, by its name in the app.", examples=["hello"]),
]
Code = Annotated[
    str,
    Text(MOST_CODE, min_length=1),
    NotSecret("code is shown to all who run the app; secrets belong in envVars"),
    Field(
        description="One file of source, which exports a `default` function or one named `handler`.",
        examples=["export default (req, ctx) => Response.json({hello: ctx.request.functionName})"],
    ),
]
Language = Literal["typescript", "python"]
Description = Annotated[str, Text(1000)]
Message = Annotated[str, Text(500), Field(description="What this version changes.")]
ToolDescription = Annotated[str, Text(500), Field(description="What models are told about it.")]
ToolMode = Literal["read_only", "read_write"]
ExposedTo = Literal["developer_only", "end_user"]
TimeoutMs = Annotated[int, Field(ge=1, le=300_000, description="Milliseconds after which a call is ended.")]
MemoryMb = Annotated[int, Field(ge=64, le=1024, description="Megabytes that a call may use.")]
Variable = Annotated[str, Secret(MOST_VALUE)]
EnvVars = Annotated[
    dict[Annotated[str, Text(255)], Variable | None],
    Field(
        max_length=MOST_VARIABLES,
        description="Environment variables by name; they are stored encrypted and never shown. null removes one.",
        examples=[{"STRIPE_KEY": "sk_test_1"}],
    ),
]
AllowedHosts = Annotated[
    list[Annotated[str, StringConstraints(pattern=HOST, max_length=253, to_lower=True)]],
    Field(max_length=50, description="Hosts that `fetch` reaches.", examples=[["api.example.com", "*.example.org"]]),
]
VersionNumber = Annotated[int, Field(strict=False, ge=1, le=2**31 - 1, description="The number of a version.")]
LogLevel = Literal["error", "all"]
LogLimit = Annotated[int, Field(ge=1, le=1000, description="The most calls that are listed.")]
Since = Annotated[Moment, Field(description="Only what began from this moment on.")]
TriggerType = Literal["http", "cron", "storage_upload", "webhook", "websocket"]

_Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
_Short = Annotated[str, Text(200, min_length=1)]


class TriggerConfig(TypedDict, total=False):
    method: Annotated[_Method, Field(description="http: the only method; left out, every one.")]
    path: Annotated[str, Text(200), Field(description="http: what the path behind the name begins with.")]
    auth: Annotated[
        Literal["required", "optional", "none"], Field(description="http: whether callers need a credential.")
    ]
    schedule: Annotated[str, Text(200, min_length=1), Field(description="cron: five fields.", examples=["0 2 * * *"])]
    timezone: Annotated[str, Text(60, min_length=1), Field(description="cron: left out, UTC.")]
    catch_up: Annotated[bool, Field(description="cron: whether one missed tick is made up for.")]
    bucket: Annotated[str, Text(100, min_length=1), Field(description="storage_upload: an app has one, `default`.")]
    prefix: Annotated[str, Text(500), Field(description="storage_upload: what the file's name begins with.")]
    contentTypes: Annotated[
        list[_Short], Field(max_length=50, description="storage_upload: such as `image/png` or `image/*`.")
    ]
    provider: Annotated[Literal["stripe", "github", "custom"], Field(description="webhook: who signs, and how.")]
    secret: Annotated[str, Secret(500), Field(description="webhook: the secret that the sender gave you.")]
    signature_header: Annotated[_Short, Field(description="webhook: of `custom`; left out, x-signature.")]
    tolerance_seconds: Annotated[int, Field(ge=1, le=86_400, description="webhook: how old a signature may be.")]
    idempotency_key_header: Annotated[
        _Short,
        NotSecret("the name of a header"),
        Field(description="webhook: the header that is the same when a delivery comes again."),
    ]
    secret_required: Annotated[
        bool, NotSecret("a switch"), Field(description="webhook: without a provider, whether it must be signed.")
    ]
    allowed_sources: Annotated[str, Text(500), Field(description="webhook: provider tags, divided by commas.")]


class TriggerInput(TypedDict):
    type: TriggerType
    config: NotRequired[TriggerConfig]
    enabled: NotRequired[bool]


Triggers = Annotated[
    list[TriggerInput],
    Field(max_length=5, description="What starts the function, each type at most once; left out, `http`."),
]


class TriggerState(TypedDict):
    type: str
    enabled: bool


class TriggerView(TypedDict):
    type: str
    config: dict[str, Any]
    enabled: bool


class CacheState(TypedDict):
    success: bool
    attempts: int


class Deployed(TypedDict):
    id: str
    name: str
    url: str | None
    triggers: list[TriggerState]
    deployedAt: datetime
    cacheInvalidation: CacheState
    version: int
    sha256: str
    changed: Annotated[bool, Field(description="Whether the code is another than that of the version before.")]
    webhook_url: str | None
    webhook_secret: Annotated[
        str | None, Field(description="The generated secret of a webhook trigger, shown only now.")
    ]


class FunctionRow(TypedDict):
    id: str
    name: str
    description: str
    triggers: list[TriggerView]
    url: str | None
    status: Literal["active", "error"]
    deployedAt: datetime
    lastInvoked: datetime | None
    lastStatus: int | None
    invocationCount: int
    errorRate: Annotated[float, Field(description="Of the last 24 hours, from 0 to 1.")]
    avgDuration: Annotated[float | None, Field(description="Milliseconds, of the last 24 hours.")]
    agent_tool: bool
    agent_tool_description: str | None
    agent_tool_mode: ToolMode
    agent_tool_exposed_to: ExposedTo
    allow_service_key_impersonation: bool
    version: int
    language: str


class Functions(TypedDict):
    functions: list[FunctionRow]


class Function(FunctionRow):
    code: str
    timeoutMs: int
    memoryLimitMb: int
    errorCount: int
    envKeys: list[str]
    allowed_hosts: Annotated[list[str] | None, Field(description="null: every public host.")]
    sha256: str
    input_schema: dict[str, Any] | None
    webhook_url: str | None


class FunctionDeleted(TypedDict):
    success: bool


class EnvChanged(TypedDict):
    message: str
    function: str
    updatedKeys: Annotated[list[str], Field(description="All names after the change.")]
    cache_invalidation: CacheState


class SettingsChanged(TypedDict):
    message: str
    function: str
    cache_invalidation: CacheState
    triggers: list[TriggerState]
    allowed_hosts: list[str] | None
    webhook_secret: Annotated[
        str | None, Field(description="The generated secret of a webhook trigger, shown only now.")
    ]


class AppEnv(TypedDict):
    keys: list[str]
    updatedAt: datetime | None


class Invalidated(TypedDict):
    functions: list[str]
    count: int


class AppEnvChanged(TypedDict):
    updatedKeys: list[str]
    invalidated: Invalidated


class ConsoleLog(TypedDict):
    level: str
    message: str
    timestamp: datetime


class LogRow(TypedDict):
    timestamp: datetime
    method: str
    path: str
    statusCode: int
    duration: Annotated[float, Field(description="Milliseconds.")]
    memoryUsed: Annotated[float | None, Field(description="Megabytes.")]
    error: str | None
    stack: str | None
    consoleLogs: list[ConsoleLog]
    version: int
    request_id: str
    shutdown_reason: str | None
    trigger: str


class Logs(TypedDict):
    logs: list[LogRow]
    hasMore: bool


class FunctionVersion(TypedDict):
    number: int
    live: bool
    language: str
    sha256: str
    bytes: int
    message: str | None
    author: dict[str, Any]
    created_at: datetime


class Versions(TypedDict):
    versions: list[FunctionVersion]


class VersionDiff(TypedDict):
    before: int
    after: int
    diff: Annotated[str, Field(description="In the unified format; empty if the sources are the same.")]


class RolledBack(TypedDict):
    name: str
    version: int
    sha256: str
    message: str


class Invoked(TypedDict):
    status: int
    headers: dict[str, str]
    body: Json
    request_id: str


Headers = Annotated[
    dict[Annotated[str, Text(200)], Annotated[str, Text(8000)]],
    Field(max_length=50, description="Headers of the request."),
]
InvokeMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Payload = Annotated[JsonObject, Field(description="What the function gets as JSON.")]


class FunctionToolView(TypedDict):
    name: str
    description: str
    mode: ToolMode
    input_schema: dict[str, Any]


class FunctionTools(TypedDict):
    tools: list[FunctionToolView]


class FunctionResult(TypedDict):
    result: Json


class Fired(TypedDict):
    status: int
    error: Annotated[str | None, Field(description="Why it failed; null if it did not.")]
    body: Json


DeliveryStatus = Literal["running", "completed", "failed"]


class WebhookDelivery(TypedDict):
    id: Annotated[str, Field(description="Also what `ctx.request.id` says.")]
    provider: str
    status: DeliveryStatus
    attempts: int
    duplicates: Annotated[int, Field(description="How often it came again after it had completed.")]
    answer_status: int | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class WebhookDeliveries(TypedDict):
    deliveries: list[WebhookDelivery]
