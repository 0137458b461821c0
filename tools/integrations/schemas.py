"""The types that requests and answers about integrations share, with the names of documents 1 and 4."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from baobab.tools.core import JsonObject, NameText, NotSecret, Secret, Text, Uuid
from baobab.tools.core.simulators import Simulated

SLUG = r"^[a-z0-9][a-z0-9_-]*$"
ToolkitSlug = Annotated[str, Text(80, 1, SLUG), Field(description="The toolkit, by its slug.", examples=["gmail"])]
Search = Annotated[str, Text(200), Field(description="A part of the name; left out, the ten that most apps use.")]
DisplayName = Annotated[
    str, NameText(100, min_length=1), Field(description="What its users read; left out, the service's own name.")
]
ScopeName = Annotated[str, Text(300, min_length=1)]
ScopeNames = Annotated[list[ScopeName], Field(max_length=100)]
ProviderName = Annotated[str, Text(20, min_length=1)]
UserId = Annotated[Uuid, Field(description="The user of the app; left out with a user's own token.")]
RedirectUrl = Annotated[
    str,
    Text(2000, min_length=1),
    Field(
        description="Where the browser goes in the end, with `status` and `toolkit` or `message` in the query. Its"
        " origin must be among the app's allowed origins. Left out, our own page says how it ended.",
        examples=["http://localhost:3000/settings"],
    ),
]
Alias = Annotated[
    str, NameText(60, min_length=1), Field(description="A name for this account, to tell it from further ones.")
]
AccountRef = Annotated[
    str,
    Text(300, min_length=1),
    Field(description="Which account, if the user has several of the toolkit: its alias, its name or its id."),
]
ToolName = Annotated[
    str, Text(200, 1, r"^[A-Za-z0-9_]+$"), Field(description="The tool's name.", examples=["GMAIL_FETCH_EMAILS"])
]
Params = Annotated[JsonObject, Field(description="The tool's parameters; op:integrations_tools has their schema.")]
IdempotencyKey = Annotated[
    str,
    Text(200, min_length=1),
    NotSecret("it names one call"),
    Field(description="A name of yours for this one call: repeated with it, the call is made once."),
]
ConnectionId = Annotated[Uuid, Field(description="The connection's id.")]
CallId = Annotated[Uuid, Field(description="The call's id.")]
Status = Literal["active", "inactive", "expired"]


@with_config(ConfigDict(extra="forbid"))
class OAuthCredentials(TypedDict):
    """An OAuth client of the app's own at the service."""

    client_id: Annotated[str, Text(500, min_length=1), NotSecret("services show it to everybody")]
    client_secret: Annotated[str, Secret(1000, min_length=1)]
    auth_scheme: NotRequired[Annotated[Literal["OAUTH2"], Field(description="OAUTH2, the only one that is taken.")]]


class AvailableScope(TypedDict):
    scope: str
    words: Annotated[str, Field(description="What it lets the app do, for people.")]


class AvailableToolkit(TypedDict):
    toolkit: str
    displayName: str
    curated: bool
    description: str
    auth_schemes: list[str]
    requires_byo_credentials: Annotated[bool, Field(description="Whether it needs an OAuth client of the app's own.")]
    scopes: Annotated[list[AvailableScope], Field(description="What its users are asked for if the app names nothing.")]
    providers: Annotated[list[str], Field(description="The providers of this server that have it, first choice first.")]


class Available(Simulated):
    integrations: list[AvailableToolkit]


class ConfiguredToolkit(TypedDict):
    id: str
    app_id: str
    toolkit_slug: str
    display_name: str
    enabled: bool
    scopes: list[str]
    provider: str
    own_credentials: Annotated[bool, Field(description="Whether the app uses an OAuth client of its own.")]
    created_at: datetime


class Config(Simulated):
    app_id: str
    integrations: list[ConfiguredToolkit]


class Configured(Simulated):
    id: str
    app_id: str
    toolkit_slug: str
    enabled: Literal[True]


class Connecting(Simulated):
    authUrl: Annotated[str, Field(description="Send the user's browser here, within an hour.")]
    connectionRequestId: Annotated[str, Field(description="The id that the connection will have.")]


class SentBack(TypedDict):
    location: str


class ConnectionView(TypedDict):
    id: str
    app_user_id: str
    toolkit_slug: str
    status: Status
    connected_at: datetime | None
    last_used_at: datetime | None
    alias: str | None
    account_name: Annotated[str | None, Field(description="Whose account it is, as the service says.")]
    scopes: list[str]
    status_reason: Annotated[str | None, Field(description="Why it is not active.")]
    connect_url: Annotated[str | None, Field(description="Where its user connects again; null while it is active.")]
    simulated: bool


class Connections(TypedDict):
    connections: list[ConnectionView]


class ToolView(TypedDict):
    name: str
    description: str
    parameters: Annotated[dict[str, Any], Field(description="JSON Schema.")]
    toolkit: str
    read_only: Annotated[bool, Field(description="Whether it changes nothing at the service.")]
    scopes: list[str]


class Tools(Simulated):
    tools: list[ToolView]


class Executed(Simulated):
    successful: Literal[True]
    data: Annotated[Any, Field(description="What the service has answered.")]
    account: Annotated[str, Field(description="Whose account it was.")]
    call_id: str


class CallView(TypedDict):
    id: str
    app_user_id: str
    toolkit_slug: str
    tool: str
    account_name: str
    status: Literal["running", "succeeded", "failed", "unknown"]
    code: str | None
    message: str | None
    simulated: bool
    created_at: datetime
    ended_at: datetime | None


class Calls(TypedDict):
    calls: Annotated[list[CallView], Field(description="Newest first.")]
    next_cursor: str | None


class LinkView(Simulated):
    """What the page of a link shows."""

    toolkit: str
    display_name: str
    app_name: str
    user_name: str
    alias: str | None
    scopes: list[AvailableScope]


class LinkOpened(TypedDict):
    location: str
    browser: Annotated[str, NotSecret("the page keeps it as a cookie of the browser that opened the link")]


class Taken(TypedDict):
    """An answer that says nothing but that a webhook was taken."""

    ok: Literal[True]


Row = Any
"""A row of one of the tables."""
