"""The results of the data tools, and the parameters that several of them share."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, WithJsonSchema, with_config
from typing_extensions import TypedDict

from baobab.tools.core import JsonObject, Text
from baobab.tools.core.patterns import Pattern
from baobab.tools.data.actor import Role
from baobab.tools.data.fields import (
    MOST_ROWS,
    Filters,
    IdempotencyKey,
    MediaType,
    OneOrMore,
    Prefer,
    SelectText,
    TableName,
)
from baobab.tools.data.schema.channels import Level

Row = dict[str, Any]
"""The columns of a row by name. A bigint and a numeric are texts, times ISO 8601 in UTC, bytes hexadecimal."""


_ROW_SCHEMA: dict[str, Any] = {"type": "object", "additionalProperties": True}
RowsOrRow = Annotated[
    Any, WithJsonSchema({"anyOf": [{"type": "array", "items": _ROW_SCHEMA}, _ROW_SCHEMA]}, mode="serialization")
]
"""The same as `list[Row] | Row`, which pydantic serialises five times slower."""


class ActingAs(TypedDict):
    """Whom those who run the app want to be instead of themselves."""

    as_role: Annotated[
        Role | None,
        Field(default=None, description="For those who run the app: see it as a visitor (`anon`) or as a user."),
    ]
    as_user: Annotated[
        Annotated[str, Text(36, pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")] | None,
        Field(default=None, description="For those who run the app: be this user (a UUID)."),
    ]


class RepeatOptions(TypedDict):
    """By what a write that is sent again is recognised."""

    idempotency_key: Annotated[IdempotencyKey | None, Field(default=None)]


class WriteOptions(ActingAs, RepeatOptions):
    """The options of every tool that writes rows."""


class AnswerOptions(WriteOptions):
    """The options of the tools that write several rows and return them."""

    select: Annotated[SelectText | None, Field(default=None, description="The columns to return; else all.")]
    prefer: Annotated[Prefer, Field(default="", description="`return=minimal` returns no rows.")]
    media_type: Annotated[
        MediaType, Field(default="", description="`application/vnd.pgrst.object+json` for the one row as an object.")
    ]


class QueryPlan(TypedDict):
    """sql: the statement, with `?` for each value. plan: the steps of Postgres, as its EXPLAIN writes them in JSON, or
    those of SQLite, each with its `id`, its `parent` and its `detail`.
    """

    sql: str
    plan: list[dict[str, Any]]


class SqlAnswer(TypedDict):
    """rows: of a SELECT, or of RETURNING; each by the names of its columns. rowCount: how many rows a SELECT found, or
    a write wrote.
    """

    rows: list[Row]
    rowCount: int


class Deleted(TypedDict):
    deleted: bool


class ResourceInfo(TypedDict):
    table_count: int
    tables: list[str]


class Meta(TypedDict):
    resource_info: ResourceInfo


class Schema(TypedDict):
    app_id: str
    schema: dict[str, Any]
    api_base: str
    _meta: Meta


class Statement(TypedDict):
    sql: str
    description: str
    destructive: bool


class BrokenCheck(TypedDict):
    """A condition that rows of today break. check: its name; column: the generated column whose type they do not fit.
    examples: the keys of some of the rows.
    """

    table: str
    rows: int
    examples: list[dict[str, Any]]
    check: NotRequired[str]
    column: NotRequired[str]


class Applied(TypedDict):
    """broken_checks: of a dry run, the checks that would fail because rows of today break them."""

    applied: int
    statements: list[Statement]
    dry_run: NotRequired[bool]
    broken_checks: NotRequired[list[BrokenCheck]]
    migration_id: NotRequired[str]
    action_id: NotRequired[str]
    """What data_undo takes, if something was dropped or renamed."""
    name: NotRequired[str | None]
    message: str
    warnings: NotRequired[list[str]]
    _meta: NotRequired[Meta]


class Migration(TypedDict):
    id: str
    description: str
    applied_sql: list[str]
    applied_at: datetime


class Migrations(TypedDict):
    app_id: str
    migrations: list[Migration]
    template_migrations: list[Migration]


class TableDescription(TypedDict):
    table: str
    columns: dict[str, Any]
    checks: dict[str, str]
    key: list[str]
    referred_to_by: list[str]
    row_level_security: bool
    own_text: Annotated[
        bool, Field(description="Whether an admin has marked its rows as the app's own text (op:schema_own_text).")
    ]
    policies: list[str]
    query: NotRequired[str]


class OwnText(TypedDict):
    table: str
    own_text: bool


class Enabled(TypedDict):
    success: bool
    table: str
    message: str


class Visible(TypedDict):
    """How many of the rows that are there now a kind of caller reaches by SELECT."""

    anonymous: int
    any_user: int
    total: int


class PolicySet(TypedDict):
    success: bool
    policy_name: str
    table: str
    visible_rows: Visible
    warnings: NotRequired[list[str]]


class Isolated(TypedDict):
    success: bool
    table: str
    user_column: str
    policy_name: str
    public_read_policies: NotRequired[list[str]]


class PolicyRow(TypedDict):
    schemaname: str
    tablename: str
    policyname: str
    permissive: str
    roles: list[str]
    cmd: str
    qual: str | None
    with_check: str | None


class Finding(TypedDict):
    table: str
    caller: str
    may: list[str]
    message: str


class MissingIndex(TypedDict):
    """A column by which rows are looked up, and with which no index of its table begins."""

    table: str
    column: str
    message: str


class SlowStatement(TypedDict):
    """A slow query of a table. filters, order: the columns, without values. calls: how often it ran."""

    table: str
    operation: str
    filters: list[str]
    order: list[str]
    calls: int
    slowest_ms: int
    last_at: str
    message: str


class Policies(TypedDict):
    policies: list[PolicyRow]
    tables_with_rls: list[str]
    open_tables: list[Finding]
    missing_indexes: list[MissingIndex]
    slow_statements: list[SlowStatement]


class Dropped(TypedDict):
    success: bool
    table: str
    dropped: list[str]
    message: str


class TableSwitched(TypedDict):
    table: str
    status: str


class Configured(TypedDict):
    configured: list[TableSwitched]


class LiveTable(TypedDict):
    table_name: str
    events: list[str]
    enabled: bool
    created_at: str
    updated_at: str
    trigger_installed: bool
    drift: bool


class RealtimeConfig(TypedDict):
    app_id: str
    tables: list[LiveTable]
    active_connection: bool
    websocket_url: str
    events_url: str


@with_config(ConfigDict(extra="forbid"))
class ChannelRuleFields(TypedDict):
    """Who may join the channels of a pattern and send to them: `owner` is the user whom the channel's name names."""

    pattern: Pattern
    join: Level
    send: Level


class ChannelRules(TypedDict):
    rules: list[ChannelRuleFields]


class Told(TypedDict):
    told: bool


class ChangeRow(TypedDict):
    """One change of one row. before, after: null where the row was not there, or was too large to be kept."""

    id: int
    action_id: str
    table: str
    op: str
    before: Row | None
    after: Row | None
    at: str
    role: str
    user_id: str | None
    actor_id: str | None
    run_id: str | None
    tool: str


class Changes(TypedDict):
    changes: list[ChangeRow]


class Undone(TypedDict):
    """undone: how many changes of rows, or of the schema, were taken back. actions: the writes that they belonged to.
    message, warnings: of a change of the schema, what was brought back, and what is not as it was.
    """

    undone: int
    actions: list[str]
    message: NotRequired[str]
    warnings: NotRequired[list[str]]


class Viewer(TypedDict):
    """visible: how many of the rows that were asked for they see."""

    viewer: str
    visible: int


class SimulatedRow(TypedDict):
    row: Row
    seen_by: list[str]


class Simulated(TypedDict):
    """total: how many rows there are, whoever sees them."""

    table: str
    total: int
    viewers: list[Viewer]
    rows: list[SimulatedRow]


@with_config(ConfigDict(extra="forbid", strict=True))
class Write(TypedDict):
    """One write. values: of an insert, a row or a list of them. changes: of an update, values by column. where: which
    rows are updated or deleted, filters as data_list has them. expect: how many rows it must be about.
    """

    op: Literal["insert", "update", "delete"]
    table: TableName
    values: NotRequired[OneOrMore]
    on_conflict: NotRequired[Annotated[str, Text(1000)]]
    changes: NotRequired[JsonObject]
    where: NotRequired[Filters]
    expect: NotRequired[Annotated[int, Field(ge=0, le=MOST_ROWS)]]


class Written(TypedDict):
    """count: how many rows it was about. rows: as they are now, or were when they were deleted; left out if the caller
    wants none.
    """

    op: str
    table: str
    count: int
    rows: NotRequired[list[Row]]


class LineError(TypedDict):
    line: int
    code: str
    message: str


class Imported(TypedDict):
    """written: rows. failed: lines that were left out, the first 100 of which are in `errors`. last_line: where the
    last row that was written begins. import_id: what data_undo takes as `run_id` to undo the import as a whole.
    """

    written: int
    failed: int
    errors: list[LineError]
    last_line: int
    dry_run: bool
    import_id: str


class Batch(TypedDict):
    results: list[Written]
