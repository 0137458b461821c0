"""Agents and runs as callers see them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field, GetJsonSchemaHandler, StringConstraints
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

from baobab.runtime.agents.spec.spec import graph_schema
from baobab.tools.agents.redaction import is_outsider, redact_failure
from baobab.tools.core import Caller, JsonObject, NameText, Text
from baobab.tools.core.auth.deciders import Approvers
from baobab.tools.core.limits.money import dollars, usd
from baobab.tools.core.types import Json

Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=100),
    Field(description="The agent's name.", examples=["note-keeper"]),
]
NameOrNone = Annotated[str, StringConstraints(pattern=r"^(_|[a-z0-9][a-z0-9_-]*)$", max_length=100)]
Visibility = Literal["private", "authenticated", "public"]
AgentStatus = Literal["active", "disabled"]
RunStatus = Literal["queued", "running", "paused", "cancelling", "completed", "failed", "cancelled", "timed_out"]


class _GraphSchema:
    """The JSON Schema that describes a graph. `find_issues` validates graphs, because it reports more detail."""

    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return graph_schema()


_GRAPH = "The graph; `docs_read` with the name `graph-spec` explains it."
Graph = Annotated[JsonObject, _GraphSchema(), Field(description=_GRAPH)]
# The same for tools that report themselves what is wrong with any JSON value.
AnyGraph = Annotated[Json, _GraphSchema(), Field(description=_GRAPH)]
Hourly = Annotated[int, Field(ge=1, le=1_000_000)]
ModelName = Annotated[str, Text(200, min_length=1)]
DisplayName = Annotated[str, NameText(200)]
DedupeWindow = Annotated[int, Field(ge=0, le=3600)]
Days = Annotated[int, Field(ge=1, le=3650)]
Concurrent = Annotated[int, Field(ge=1, le=10_000)]


class AppRightGrant(TypedDict):
    by: Annotated[str, Field(description="Who saved the node as it is: `account:ID` or `key:ID`.")]
    at: datetime


class Agent(TypedDict):
    id: str
    app_id: str
    name: str
    display_name: str | None
    description: str | None
    graph_spec: dict[str, Any]
    default_model: str | None
    status: AgentStatus
    visibility: Visibility
    max_runs_per_user_per_hour: int | None
    max_runs_per_ip_per_hour: int | None
    max_runs_per_app_per_hour: int | None
    daily_budget_usd: str | None
    max_concurrent_runs: int | None
    dedupe_window_seconds: int
    safety_acknowledged: bool
    taint_checks: bool
    retention_days: int | None
    approvers: Annotated[Json, Field(description="Who decides where calls of its runs wait; null: see docs/agents.md.")]
    app_rights: Annotated[
        dict[str, AppRightGrant] | None,
        Field(description="The nodes that act with the app's right (`run_as`), and who allowed it; null if none does."),
    ]
    created_at: datetime
    updated_at: datetime


class OneAgent(TypedDict):
    agent: Agent


class AgentToday(OneAgent):
    spent_today_usd: Annotated[str, Field(description="What its runs have cost today (UTC), in US dollars.")]


class ChangedAgent(OneAgent):
    warnings: NotRequired[list["Issue"]]


class Agents(TypedDict):
    agents: list[Agent]


class Failure(TypedDict):
    """Why a run failed. Users and visitors of the app get `message` and `type`."""

    message: str
    type: str
    code: NotRequired[Annotated[str, Field(description="Of the refusal behind it, as its direct caller would get it.")]]
    remediation: NotRequired[str]
    details: NotRequired[JsonObject]
    quotes: NotRequired[
        Annotated[Literal[True], Field(description="The message is in the words of a tool server or provider.")]
    ]


class Incomplete(TypedDict):
    reason: Literal["length", "content_filter", "refusal", "call_lost"]
    node_id: str
    step: int


class Delivery(TypedDict):
    event_id: str
    attempts: int
    status: Annotated[int | None, Field(description="That of the last answer; null where there was none.")]
    delivered_at: datetime | None


class Usage(TypedDict):
    input_tokens: int
    output_tokens: int
    cost_usd: NotRequired[Annotated[float, Field(description="Not told to users and visitors of the app.")]]


class Decision(TypedDict):
    """A call that waits for a person."""

    approval_id: str
    tool: str
    approvers: Annotated[Json, Field(description="Who decides, as in `run_paused`.")]
    expires_at: datetime


class Awaited(TypedDict):
    """A child run, at any depth, that has not ended."""

    run_id: str
    agent: str
    status: RunStatus
    parent_run_id: str
    decisions: list[Decision]


class Run(TypedDict):
    id: str
    app_id: str
    agent_id: str
    agent: str
    caller_kind: Annotated[
        Literal["dashboard", "api_key", "function", "end_user", "anonymous"],
        Field(
            description="As whom it acts: an account that is signed in, an account by its API key, a key of the app, a "
            "user or a visitor."
        ),
    ]
    caller_user_id: str | None
    caller_ip: str | None
    started_by_name: NotRequired[
        Annotated[
            str | None,
            Field(description="The name of the account or key that started it, where one run is read."),
        ]
    ]
    status: RunStatus
    input: dict[str, Any]
    output: Any
    error: Failure | None
    incomplete: Annotated[
        Incomplete | None, Field(description="Which answer of a model was cut or lost; null where none was.")
    ]
    usage: Usage
    tainted: Annotated[bool, Field(description="Whether text that strangers may have written was read.")]
    thread_id: str | None
    forked_from: str | None
    forked_step: int | None
    parent_run_id: Annotated[str | None, Field(description="The run of which this one is a step.")]
    waiting_for: NotRequired[
        Annotated[list[Awaited], Field(description="The runs below it that go on, where one run is read.")]
    ]
    webhook_url: str | None
    webhook_delivery: Annotated[Delivery | None, Field(description="How telling that URL went, once it was tried.")]
    idempotency_key: str | None
    payload_hash: str
    last_seq: Annotated[int, Field(description="The seq of its latest event.")]
    created_at: datetime
    started_at: datetime | None
    paused_until: Annotated[datetime | None, Field(description="Until when a person can decide.")]
    finished_at: datetime | None


class OneRun(TypedDict):
    run: Run
    may_cancel: NotRequired[Annotated[bool, Field(description="Whether the caller may cancel it now.")]]
    graph_spec: NotRequired[Annotated[dict[str, Any], Field(description="The run's graph, if it was asked for.")]]


class RunState(TypedDict):
    run_id: str
    status: RunStatus
    output: NotRequired[Annotated[Any, Field(description="With `wait_seconds`: what the run returned.")]]
    error: NotRequired[Annotated[Failure | None, Field(description="With `wait_seconds`: why it failed.")]]


class Runs(TypedDict):
    """Newest first; `next_cursor` is set if there are more."""

    runs: list[Run]
    next_cursor: NotRequired[str]


class Thread(TypedDict):
    thread_id: str
    messages: Annotated[int, Field(description="How many messages it has ever had.")]
    created_at: datetime
    updated_at: Annotated[datetime, Field(description="When its last turn ended.")]


class Threads(TypedDict):
    threads: list[Thread]
    next_cursor: NotRequired[str]


class Event(TypedDict):
    seq: int
    type: str
    payload: dict[str, Any]
    created_at: datetime


class Events(TypedDict):
    events: list[Event]


class ModelMessage(TypedDict):
    role: str
    content: str
    content_characters: NotRequired[Annotated[int, Field(description="How many there were, if the text is cut.")]]
    tool_calls: NotRequired[Annotated[str, Field(description="The calls of tools that it asks for, as JSON text.")]]
    tool_calls_characters: NotRequired[int]


class ModelCall(TypedDict):
    """One call to a model. Of the prompt, the first message and the newest are kept, up to 16,000 characters."""

    step: int
    node_id: str
    model: str | None
    prompt: list[ModelMessage]
    left_out: Annotated[int, Field(description="How many messages after the first are not kept.")]
    answer: ModelMessage | None
    error: Annotated[str | None, Field(description="Why there is no answer.")]
    finish_reason: Annotated[str | None, Field(description="Why the model stopped, as its provider says.")]
    input_tokens: int
    output_tokens: int
    cost_usd: float
    duration_ms: int
    created_at: datetime


class ModelCalls(TypedDict):
    """Oldest first."""

    model_calls: list[ModelCall]


class Issue(TypedDict):
    path: list[str | int]
    message: str


Description = Annotated[str, Text(5000)]


def agent_of(row: Any, dedupe_seconds: int) -> Agent:
    fields = {name: getattr(row, name) for name in Agent.__annotations__ if hasattr(row, name)}
    budget = None if row.daily_budget is None else dollars(row.daily_budget)
    approvers = None if row.approvers is None else Approvers.parse(row.approvers).as_json
    grants = row.app_rights and {
        node: {"by": grant["by"], "at": datetime.fromisoformat(grant["at"])} for node, grant in row.app_rights.items()
    }
    fields |= {"approvers": approvers, "app_rights": grants, "daily_budget_usd": budget}
    return cast(Agent, fields | {"dedupe_window_seconds": dedupe_seconds})


def run_of(row: Any, caller: Caller, awaited_runs: Sequence[Awaited] | None = None) -> Run:
    """Renders a run as the caller may see it."""
    fields = {name: getattr(row, name) for name in Run.__annotations__ if hasattr(row, name)}
    usage: dict[str, Any] = {
        "input_tokens": row.prompt_tokens,
        "output_tokens": row.completion_tokens,
    }
    if is_outsider(caller):
        fields["error"] = redact_failure(row.error)
    else:
        usage["cost_usd"] = usd(row.cost)
    if delivery := fields.get("webhook_delivery"):
        at = delivery["delivered_at"]
        fields["webhook_delivery"] = delivery | {"delivered_at": at and datetime.fromisoformat(at)}
    if awaited_runs is not None:
        fields["waiting_for"] = list(awaited_runs)
    return cast(Run, fields | {"usage": usage})


def model_call_of(row: Any) -> ModelCall:
    fields = {name: getattr(row, name) for name in ModelCall.__annotations__ if hasattr(row, name)}
    return cast(ModelCall, fields | {"cost_usd": usd(row.cost), "duration_ms": row.milliseconds})


class Validity(TypedDict):
    """The result of a validation. A graph with `warnings` can be used."""

    valid: bool
    issues: NotRequired[list[Issue]]
    warnings: NotRequired[list[Issue]]


class Erasing(TypedDict):
    runs: int
    """The number of runs that are being erased."""


class Answered(TypedDict):
    approved: bool
    reason: str
    data: Annotated[dict[str, object] | None, Field(description="As the run gave it, or as the person changed it.")]


class Opened(TypedDict):
    stream_token: str
    expires_at: datetime


class StartedPublicly(Opened):
    run_id: str
    status: RunStatus
    output: NotRequired[Annotated[Any, Field(description="With `wait_seconds`: what the run returned.")]]
    error: NotRequired[Annotated[Failure | None, Field(description="With `wait_seconds`: why it failed.")]]
    visitor_id: NotRequired[
        Annotated[str, Field(description="Of a visitor: send it with the next start to go on with its threads.")]
    ]


class Started(TypedDict):
    run_id: str
    status: RunStatus
    replayed: NotRequired[Annotated[Literal[True], Field(description="The same input has started this run before.")]]
    output: NotRequired[Annotated[Any, Field(description="With `wait_seconds`: what the run returned.")]]
    error: NotRequired[Annotated[Failure | None, Field(description="With `wait_seconds`: why it failed.")]]


class SecretMade(TypedDict):
    secret: Annotated[str, Field(description="Shown this once: keep it where the webhooks are received.")]
    made_at: datetime
    earlier_until: Annotated[
        datetime | None, Field(description="Until when the earlier secret signs, too; null where there is none.")
    ]


class SecretInForce(TypedDict):
    made_at: Annotated[datetime | None, Field(description="Null where there is none: webhooks are then not signed.")]
    earlier_until: datetime | None
