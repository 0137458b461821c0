"""The graph of an agent, version 1, as data. What a field means to a run is in docs/graph-spec.md.

These models define the shape of a graph; `validation.py` checks what holds between its parts (edges that lead
somewhere, tools that exist). Every text, list and object is bounded.
"""

import ast
import inspect
import sys
from functools import cache, lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from baobab.tools.core.schema import portable

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
DenialPolicy = Literal["fail", "tell"]
OnError = Annotated[
    Literal["fail", "tell"],
    Field(
        description="What an error of the tool does: `fail` ends the run; `tell` writes "
        '`{"error": {"code", "message"}}` in place of the result and goes on.'
    ),
]
Arguments = Annotated[dict[str, JsonValue], Field(max_length=100)]


_ANY_JSON: Any = JsonValue


def _is_optional(field: FieldInfo | None) -> bool:
    return field is not None and not field.is_required() and field.annotation is not _ANY_JSON


class _Part(BaseModel):
    # The string below a field becomes its description in the JSON Schema of a graph (graph_schema).
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        for part in cls.__mro__:
            for name, text in _read_field_texts().get(part.__name__, {}).items():
                field = cls.model_fields[name]
                schema["properties"][field.alias or name].setdefault("description", text)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _leave_out_null(cls, raw: Any) -> Any:
        """Drops null values of optional fields, except where null is a value like any other."""
        if not isinstance(raw, dict) or None not in raw.values():
            return raw
        fields = {info.alias or name: info for name, info in cls.model_fields.items()}
        absent = {name for name, value in raw.items() if value is None and _is_optional(fields.get(name))}
        return {name: value for name, value in raw.items() if name not in absent}


class UserRole(_Part):
    """Users of the app who have a role."""

    role: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NODE_ID)]


Who = Literal["starter", "user", "member", "admin"] | UserRole


class Persons(_Part):
    """This many different people must approve."""

    persons: Annotated[int, Field(ge=2, le=5)]
    of: Who


NamedApprovers = Who | Persons
"""Who may approve the calls that wait; admins of the organisation always may."""


class Override(_Part):
    """Narrows the use of a tool: `read_write` makes calls wait for approval, `developer_only` keeps it from users."""

    mode_override: Mode | None = None
    """`read_write`: each call waits for a person. The other direction is not possible."""
    exposed_to_override: Exposure | None = None
    """`developer_only`: not available in runs of the app's users."""


ToolKey = tuple[str, str | None, str]
"""The identity of a tool that is referred to: source, server and name."""


class ToolRef(Override):
    source: Literal["builtin", "function", "mcp"]
    """`builtin`: a tool of this server; `mcp`: of a tool server of the app."""
    name: ToolName
    server_id: ServerId | None = None
    """With `mcp`: the name or the id of the tool server."""

    @property
    def key(self) -> ToolKey:
        return self.source, self.server_id, self.name

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.source == "mcp" and self.server_id is None:
            raise ValueError("a tool of source mcp needs a server_id")
        if self.source != "mcp" and self.server_id is not None:
            raise ValueError("only a tool of source mcp has a server_id")
        return self


class Retry(_Part):
    attempts: Annotated[int, Field(ge=1, le=20)] = 3
    """How often the model is asked in all; 1 for once."""
    wait_seconds: Annotated[int, Field(ge=1, le=600)] = 1
    """The wait before the second attempt. Each further wait is twice as long, at most ten minutes."""


class LlmNode(_Part):
    type: Literal["llm"]
    """Asks a model, which may call tools."""
    output_key: OutputKey
    """The answer becomes state.OUTPUT_KEY."""
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    """Left out, the agent's or the app's default."""
    system_prompt: Text = ""
    """A template."""
    input_template: Text | None = None
    """The user's message, a template such as `{{ input.question }}`; left out, the input as JSON."""
    tools: Annotated[list[ToolRef], Field(max_length=128)] = []
    """The tools that the model may call; each must be listed in the graph's `tools` too."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    output_schema: dict[str, JsonValue] | None = None
    """JSON Schema: the answer is JSON that matches it."""
    retry: Retry = Retry()
    """How often a model whose provider fails is asked, and how long the run waits in between."""
    on_denied: DenialPolicy = "fail"
    """What a refused approval does: `fail` ends the run, `tell` tells the model."""
    approvers: NamedApprovers | None = None
    """Who may approve the calls that wait; left out, those that the agent names."""
    remembers: bool = False
    """Continues the conversation of earlier runs with the same thread_id."""
    remembers_messages: Annotated[int, Field(ge=1, le=1000)] = 100
    remembers_characters: Annotated[int, Field(ge=1000, le=1_000_000)] = 100_000


EditableField = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=NODE_ID)]


AskPath = Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=NODE_ID)]


class Ask(_Part):
    """How a call is shown to the person who decides about it."""

    title: Annotated[str, StringConstraints(min_length=1, max_length=300, pattern=NODE_ID)] | None = None
    """What the call does, in words of yours and then values, such as `Answer {{ input.subject }}`."""
    show: Annotated[list[AskPath], Field(max_length=20)] = []
    """The values to show first, in their order, such as `arguments.changes.answer` or `input.message`."""


class _Acting(_Part):
    run_as: Literal["app"] | None = None
    """`app`: the call uses the app's right, once `approvers` other than the starter agree."""
    edit: Annotated[list[EditableField], Field(max_length=50)] = []
    """With `run_as`: the values that whoever approves may change, such as `patch.amount`."""
    ask: Ask | None = None
    """What a person who decides about the call reads first."""


class ToolNode(_Acting):
    type: Literal["tool"]
    """Calls one tool, without a model."""
    tool_ref: ToolRef
    then: NodeId | None = None
    """With the tool `interrupt`: the node that writes next, which the answer approves."""
    args_template: Arguments = {}
    """The tool's arguments without app_id; texts are templates."""
    output_key: OutputKey | None = None
    """The result becomes state.OUTPUT_KEY."""
    on_denied: DenialPolicy = "fail"
    """`tell` writes {"error": ...} instead of the result."""
    on_error: OnError = "fail"
    """`tell` writes {"error": ...} for the edges to decide about."""
    approvers: NamedApprovers | None = None
    """Who may approve the calls that wait; left out, those that the agent names."""


class MapNode(_Acting):
    type: Literal["map"]
    """Calls one tool for each item of a list."""
    over: Text
    """One placeholder that names a list: `{{ state.rows }}`."""
    tool_ref: ToolRef
    output_key: OutputKey
    args_template: Arguments = {}
    """As in a tool node; `{{ item }}` is the item of the list."""
    on_denied: DenialPolicy = "fail"
    on_error: OnError = "fail"
    """`tell` writes {"error": ...} for the edges to decide about."""
    approvers: NamedApprovers | None = None
    """Who may approve the calls that wait; left out, those that the agent names."""


class AgentNode(_Part):
    """`approvers` applies to the child run, where its own agent names none."""

    type: Literal["agent"]
    """Runs another agent of the app."""
    agent: AgentName
    output_key: OutputKey
    input_template: Arguments = {}
    """The input of the agent; texts are templates."""
    on_error: OnError = "fail"
    """`tell` writes {"error": ...} for the edges to decide about."""
    approvers: NamedApprovers | None = None
    """Who may approve the calls that wait; left out, those that the agent names."""


class EndNode(_Part):
    type: Literal["end"]
    """Ends the run."""
    output_template: JsonValue = "{{ state }}"
    """What the run returns: any JSON whose texts are templates."""


Node = Annotated[LlmNode | ToolNode | MapNode | AgentNode | EndNode, Field(discriminator="type")]


class Edge(_Part):
    """The edges of a node are tried in their order; one without `when` is always taken."""

    from_: NodeId = Field(alias="from")
    to: NodeId
    when: dict[str, JsonValue] | None = None
    """A JSON-Logic rule over `state` and `input`; the first edge of a node whose rule holds is taken."""


class ToolServer(_Part):
    server_id: ServerId
    tools: Annotated[list[ToolName], Field(max_length=256)] = []
    tool_overrides: Annotated[dict[ToolName, Override], Field(max_length=256)] = {}


class Tools(_Part):
    """The tools that nodes may use. The agent cannot use a tool that is not listed here."""

    builtin: Annotated[list[ToolName], Field(max_length=128)] = []
    """Tools of this server, such as `kv_get`, `interrupt`."""
    mcp_servers: Annotated[list[ToolServer], Field(max_length=32)] = []
    functions: Annotated[list[ToolName], Field(max_length=128)] = []
    """Not supported in this version."""


class Limits(_Part):
    max_steps: Annotated[int, Field(ge=1, le=200)] = 50
    max_tool_calls: Annotated[int, Field(ge=0, le=500)] = 50
    max_parallel_tools: Annotated[int, Field(ge=1, le=16)] = 4
    timeout_seconds: Annotated[int, Field(ge=5, le=3600)] = 300
    human_timeout_seconds: Annotated[int, Field(ge=60, le=604_800)] = 86_400
    # Accepted and ignored: every node gets a checkpoint, and the lease of the run's job shows whether its worker lives.
    heartbeat_seconds: Annotated[int, Field(ge=1, le=60)] = 5
    checkpoint_every_node: bool = True


def _parse_version(value: Any) -> Any:
    """Parses the version, which some clients write as text. Refuses true and 1.0, which a Literal takes for 1."""
    if value == "1":
        return 1
    if type(value) is not int:
        raise ValueError("must be 1")
    return value


class GraphSpec(_Part):
    spec_version: Annotated[
        Literal[1],
        BeforeValidator(_parse_version),
        WithJsonSchema({"enum": [1, "1"], "description": '1, or the text "1".'}),
    ]
    entry: NodeId
    """Id of the first node."""
    nodes: Annotated[dict[NodeId, Node], Field(max_length=200)]
    """The nodes by id; at least one of type `end`."""
    edges: Annotated[list[Edge], Field(max_length=1000)] = []
    """Every node needs an edge that leaves it, except those of type `end`."""
    tools: Tools = Tools()
    """The tools that nodes may use."""
    limits: Limits = Limits()


@lru_cache(maxsize=256)
def parse_graph(text: str) -> GraphSpec:
    """Parses a graph that was valid when its agent was saved. All runs of the agent share the result, which is only
    read.

    text: as JSON, with its keys sorted. Raises pydantic's ValidationError where an earlier version accepted it.
    """
    return GraphSpec.model_validate_json(text)


@cache
def _read_field_texts() -> dict[str, dict[str, str]]:
    """Returns the strings below the fields of this module, by class and field. Pydantic's own way of reading them took
    a twentieth of a server's start; the schema is only needed later.
    """
    texts: dict[str, dict[str, str]] = {}
    for part in ast.parse(inspect.getsource(sys.modules[__name__])).body:
        if isinstance(part, ast.ClassDef):
            texts[part.name] = {
                field.target.id: inspect.cleandoc(below.value.value)
                for field, below in pairwise(part.body)
                if isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            }
    return texts


@cache
def graph_schema() -> dict[str, Any]:
    """Returns the JSON Schema of a graph for people and models that write one: with descriptions, and no references."""
    schema: dict[str, Any] = _simplify_schema(portable(GraphSpec.model_json_schema()))
    return schema


def _simplify_schema(node: Any) -> Any:
    """Removes keywords that only repeat what others say."""
    if isinstance(node, list):
        return [_simplify_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {
        word: _simplify_schema(value) for word, value in node.items() if word not in ("discriminator", "propertyNames")
    }
    if plain.get("pattern") == NODE_ID:
        del plain["pattern"]
    if set(values := plain.get("patternProperties", {})) == {NODE_ID}:
        del plain["patternProperties"]
        plain["additionalProperties"] = values[NODE_ID]
    return plain
