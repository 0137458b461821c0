"""The graph of an agent, version 1, as data. What a field means to a run is in docs/graph-spec.md.

These models say which shapes there are; what holds between them (edges that lead somewhere, tools that exist) is said
by `validation.py`. Every text, list and object is bounded.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

NODE_ID = r"^[^\x00-\x1f\x7f-\x9f]+$"
OUTPUT_KEY = r"^[A-Za-z_][A-Za-z0-9_]*$"
AGENT_NAME = r"^[a-z0-9][a-z0-9_-]*$"

NodeId = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NODE_ID)]
OutputKey = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=OUTPUT_KEY)]
AgentName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=AGENT_NAME)]
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=NODE_ID)]
ServerId = Annotated[
    str,
    StringConstraints(min_length=1, max_length=100, pattern=NODE_ID),
    Field(description="A tool server of the app, by its name or its id."),
]
Text = Annotated[str, StringConstraints(max_length=100_000)]

Mode = Literal["read_only", "read_write"]
Exposure = Literal["developer_only", "end_user"]
OnDenied = Literal["fail", "tell"]
OnError = Annotated[
    Literal["fail", "tell"],
    Field(
        description="What an error of the tool does: `fail` ends the run; `tell` writes "
        '`{"error": {"code", "message"}}` in place of the result and goes on.'
    ),
]
Arguments = Annotated[dict[str, JsonValue], Field(max_length=100)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class UserRole(_Part):
    """Users of the app who have a role."""

    role: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NODE_ID)]


Who = Literal["starter", "user", "member", "admin"] | UserRole


class Persons(_Part):
    """So many different people must approve."""

    persons: Annotated[int, Field(ge=2, le=5)]
    of: Who


NamedApprovers = Who | Persons
"""Who decides about the calls that wait; admins of the organisation always may."""


class Override(_Part):
    """Narrows what a tool is here: `read_write` makes it wait for approval, `developer_only` keeps it from users."""

    mode_override: Mode | None = None
    exposed_to_override: Exposure | None = None


ToolKey = tuple[str, str | None, str]
"""What makes two references one tool: source, server and name."""


class ToolRef(Override):
    source: Literal["builtin", "function", "mcp"]
    name: ToolName
    server_id: ServerId | None = None

    @property
    def key(self) -> ToolKey:
        return self.source, self.server_id, self.name

    @model_validator(mode="after")
    def _of_one_source(self) -> Self:
        if self.source == "mcp" and self.server_id is None:
            raise ValueError("a tool of source mcp needs a server_id")
        if self.source != "mcp" and self.server_id is not None:
            raise ValueError("only a tool of source mcp has a server_id")
        return self


class LlmNode(_Part):
    type: Literal["llm"]
    output_key: OutputKey
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    system_prompt: Text = ""
    input_template: Text | None = None
    tools: Annotated[list[ToolRef], Field(max_length=128)] = []
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    output_schema: dict[str, JsonValue] | None = None
    on_denied: OnDenied = "fail"
    approvers: NamedApprovers | None = None
    remembers: bool = False
    remembers_messages: Annotated[int, Field(ge=1, le=1000)] = 100
    remembers_characters: Annotated[int, Field(ge=1000, le=1_000_000)] = 100_000


class ToolNode(_Part):
    type: Literal["tool"]
    tool_ref: ToolRef
    args_template: Arguments = {}
    output_key: OutputKey | None = None
    on_denied: OnDenied = "fail"
    on_error: OnError = "fail"
    approvers: NamedApprovers | None = None


class MapNode(_Part):
    type: Literal["map"]
    over: Text
    tool_ref: ToolRef
    output_key: OutputKey
    args_template: Arguments = {}
    on_denied: OnDenied = "fail"
    on_error: OnError = "fail"
    approvers: NamedApprovers | None = None


class AgentNode(_Part):
    """approvers: of the run below, where its own agent names none."""

    type: Literal["agent"]
    agent: AgentName
    output_key: OutputKey
    input_template: Arguments = {}
    on_error: OnError = "fail"
    approvers: NamedApprovers | None = None


class EndNode(_Part):
    type: Literal["end"]
    output_template: JsonValue = "{{ state }}"


Node = Annotated[LlmNode | ToolNode | MapNode | AgentNode | EndNode, Field(discriminator="type")]


class Edge(_Part):
    """`when` is a JSON-Logic rule; an edge without it is always taken when it is its turn."""

    from_: NodeId = Field(alias="from")
    to: NodeId
    when: dict[str, JsonValue] | None = None


class ToolServer(_Part):
    server_id: ServerId
    tools: Annotated[list[ToolName], Field(max_length=256)] = []
    tool_overrides: Annotated[dict[ToolName, Override], Field(max_length=256)] = {}


class Tools(_Part):
    """What the nodes may use. A tool that is not named here is not there for the agent."""

    builtin: Annotated[list[ToolName], Field(max_length=128)] = []
    mcp_servers: Annotated[list[ToolServer], Field(max_length=32)] = []
    functions: Annotated[list[ToolName], Field(max_length=128)] = []


class Limits(_Part):
    max_steps: Annotated[int, Field(ge=1, le=200)] = 50
    max_tool_calls: Annotated[int, Field(ge=0, le=500)] = 50
    max_parallel_tools: Annotated[int, Field(ge=1, le=16)] = 4
    timeout_seconds: Annotated[int, Field(ge=5, le=3600)] = 300
    human_timeout_seconds: Annotated[int, Field(ge=60, le=604_800)] = 86_400
    # Taken and not used: a run is checked after each node, and its worker's life is the queue's affair.
    heartbeat_seconds: Annotated[int, Field(ge=1, le=60)] = 5
    checkpoint_every_node: bool = True


def _whole(value: Any) -> Any:
    """The number, which some clients write as text. For Python, and so for a Literal, true and 1.0 are 1 as well."""
    if value == "1":
        return 1
    if type(value) is not int:
        raise ValueError("must be 1")
    return value


class GraphSpec(_Part):
    spec_version: Annotated[
        Literal[1], BeforeValidator(_whole), WithJsonSchema({"enum": [1, "1"], "description": '1, or the text "1".'})
    ]
    entry: NodeId
    nodes: Annotated[dict[NodeId, Node], Field(max_length=200)]
    edges: Annotated[list[Edge], Field(max_length=1000)] = []
    tools: Tools = Tools()
    limits: Limits = Limits()
