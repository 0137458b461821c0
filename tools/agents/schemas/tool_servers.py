"""Tool servers as callers name and see them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import ConfigDict, Discriminator, Field, Tag, with_config
from typing_extensions import TypedDict

from baobab.runtime.agents.remote.server import ToolServer, ToolState
from baobab.runtime.agents.spec.spec import Exposure, Mode
from baobab.tools.core import NameText, Secret, Text

ServerName = Annotated[str, Text(100, min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$")]
ServerId = Annotated[
    str,
    Text(36, min_length=1),
    Field(
        description="The tool server's `id`, as op:mcp_servers_list names it.",
        examples=["0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"],
    ),
]
ToolName = Annotated[str, NameText(128, min_length=1)]
Url = Annotated[str, Text(2000, min_length=8)]
Transport = Literal["streamable_http", "sse", "http"]
HeaderValue = Annotated[str, Secret(8000, min_length=1, pattern="^[ -~]+$")]
_Credential = Annotated[str, Secret(8000, min_length=1, pattern="^[!-~]+$")]
Digest = Annotated[str, Text(64, min_length=1)]


@with_config(ConfigDict(extra="forbid", strict=True))
class BearerToken(TypedDict):
    type: Literal["bearer"]
    token: _Credential


@with_config(ConfigDict(extra="forbid", strict=True))
class ClientCredentials(TypedDict):
    """Credentials with which a token is fetched when one is needed (OAuth 2, client credentials)."""

    type: Literal["oauth"]
    client_id: Annotated[str, Text(500, min_length=1, pattern="^[!-~]+$")]
    client_secret: _Credential
    token_url: Url
    scope: NotRequired[Annotated[str, Text(1000, pattern="^[ -~]*$")]]


def _type(value: Any) -> Any:
    return value.get("type") if isinstance(value, dict) else None


# Told apart by a function: a discriminator's mapping would refer to what schemas here do not have.
_TOLD_APART = Discriminator(
    _type, custom_error_type="auth_type", custom_error_message="must be an object of the type bearer or oauth"
)
Auth = Annotated[Annotated[BearerToken, Tag("bearer")] | Annotated[ClientCredentials, Tag("oauth")], _TOLD_APART]


@with_config(ConfigDict(extra="forbid", strict=True))
class Rule(TypedDict):
    """How a tool may be used. Left out: its calls wait for approval, and users of the app do not cause them."""

    mode: NotRequired[Mode]
    exposed_to: NotRequired[Exposure]


Acl = Annotated[dict[ToolName, Rule], Field(max_length=256)]


class Before(TypedDict):
    """A tool as it was accepted, if its server now describes it differently."""

    description: str
    input_schema: dict[str, Any]


class RemoteTool(TypedDict):
    """A tool as its server describes it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    mode: Mode
    exposed_to: Exposure
    state: Annotated[ToolState, Field(description="Only what is `accepted` is called.")]
    digest: Annotated[str, Field(description="Of what the server says of it; to accept just this.")]
    before: Before | None


class McpServer(TypedDict):
    """A tool server. Only the kind and the public parts of its credential are shown."""

    id: str
    app_id: str
    name: str
    url: str
    transport: Transport
    auth: dict[str, str] | None
    tool_acl: dict[str, Rule]
    tools: list[RemoteTool]
    status: Annotated[
        Literal["healthy", "unhealthy", "unknown"],
        Field(description="What the last probe found; a call that fails later does not change it."),
    ]
    problem: str | None
    last_health: Annotated[datetime | None, Field(description="When it was last asked.")]
    created_at: datetime
    updated_at: datetime


class OneMcpServer(TypedDict):
    mcp_server: McpServer


class McpServers(TypedDict):
    """An app's tool servers, by name."""

    mcp_servers: list[McpServer]


class Probe(TypedDict):
    ok: bool
    tools: NotRequired[list[RemoteTool]]
    problem: NotRequired[Annotated[str, Field(description="How many tools of the server are left out.")]]
    error: NotRequired[str]
    remediation: NotRequired[str]


class RemoteAnswer(TypedDict):
    """The answer of a tool of a tool server: text and data of a stranger."""

    text: str
    structured: Any
    parts: Annotated[list[dict[str, str]], Field(description="What is neither, such as images, without its bytes.")]


def server_of(row: Mapping[str, Any]) -> McpServer:
    fields = {name: row[name] for name in McpServer.__annotations__ if name != "tools"}
    return cast(McpServer, fields | {"tools": tools_of(row)})


def tools_of(row: Mapping[str, Any]) -> list[RemoteTool]:
    server = ToolServer.from_row(row)
    return [_tool(server, name) for name in sorted({*server.accepted_tools, *(server.seen_tools or {})})]


def _tool(server: ToolServer, name: str) -> RemoteTool:
    accepted_tool, state = server.accepted_tools.get(name), server.get_state(name)
    tool = (server.seen_tools or {}).get(name) or accepted_tool
    assert tool is not None
    offer = server.build_offer(tool)
    before: Before | None = None
    if state == "changed" and accepted_tool is not None:
        before = {"description": accepted_tool.description, "input_schema": dict(accepted_tool.input_schema)}
    return {
        "name": name,
        "description": tool.description,
        "input_schema": dict(tool.input_schema),
        "mode": offer.mode,
        "exposed_to": offer.exposed_to,
        "state": state,
        "digest": tool.digest,
        "before": before,
    }
