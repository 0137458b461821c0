"""The port to a provider of integrations: services' toolkits, the accounts that people connect, calls of tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

Effect = Literal["read", "external"]
"""What a tool does at the service: `read` changes nothing there."""

CURATED: Mapping[str, str] = {
    "gmail": "Gmail",
    "google-calendar": "Google Calendar",
    "slack": "Slack",
    "google-sheets": "Google Sheets",
    "notion": "Notion",
    "github": "GitHub",
    "hubspot": "HubSpot",
    "outlook": "Outlook",
    "google-drive": "Google Drive",
    "discord": "Discord",
}
"""The toolkits that are listed without a search, in their order: their names for people, by slug."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A permission that a toolkit asks people for. words: what it lets the app do, for people."""

    name: str
    words: str


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A service as a provider offers it.

    needs_credentials: whether it works only with an OAuth client of the app's own.
    scopes: those that are asked for where the app names none.
    """

    slug: str
    name: str
    description: str = ""
    auth_schemes: tuple[str, ...] = ("OAUTH2",)
    needs_credentials: bool = False
    scopes: tuple[Scope, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolFacts:
    """One tool of a toolkit. parameters: JSON Schema.

    repeatable: whether the service does it once, however often a call comes with the same idempotency key.
    version: which one of a provider that has several.
    """

    name: str
    toolkit: str
    description: str
    parameters: Mapping[str, Any]
    effect: Effect = "external"
    scopes: tuple[str, ...] = ()
    repeatable: bool = False
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """An OAuth client: an app's own, or the operator's."""

    client_id: str
    client_secret: str = field(repr=False)


def parse_client(text: str) -> tuple[str, Client]:
    """Parses an OAuth client such as `gmail=ID:SECRET`. Raises ValueError."""
    slug, _, pair = text.partition("=")
    client_id, _, client_secret = pair.rpartition(":")
    if slug not in CURATED or not client_id or not client_secret:
        raise ValueError("give each client as TOOLKIT=ID:SECRET, with a toolkit such as `gmail`")
    return slug, Client(client_id, client_secret)


@dataclass(frozen=True, slots=True)
class Setting:
    """A toolkit as an app has enabled it. reference: what the provider calls it."""

    app_id: str
    toolkit: str
    scopes: tuple[str, ...]
    client: Client | None = None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """What a service has given for an account: tokens, which are stored sealed. expires_at: of the access token."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class LinkOrder:
    """What is needed to send somebody to a service's consent page.

    user: our name of the user at the provider. state: comes back to the callback. verifier: of PKCE.
    """

    setting: Setting
    user: str
    callback_url: str
    state: str
    verifier: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """Where a browser is sent. external_id: the provider's id of the account that will be connected, if it has one."""

    url: str
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    """An account that was connected. account_id: the service's; None where it does not say.

    account_name: what people call it, such as an address or the name of a workspace.
    """

    account_id: str | None
    account_name: str
    scopes: tuple[str, ...]
    grant: Grant | None = None
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """A connected account, for a call or its end. made: what earlier calls of the simulator have left behind."""

    id: str
    user: str
    account_name: str
    grant: Grant | None = None
    external_id: str | None = None
    made: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a service has answered. made: what the simulator remembers of it."""

    data: Any
    made: Mapping[str, Any] | None = None


class IntegrationError(Exception):
    """The root of a provider's errors. Its text is a sentence for the caller, without secrets."""


class ConnectFailed(IntegrationError):
    """The account was not connected."""


class ConnectionLost(IntegrationError):
    """The service does not accept the account's grant any more: its user must connect it again."""


class ToolUnknown(IntegrationError):
    """The provider has no such tool."""


class ToolFailed(IntegrationError):
    """The service has refused the call: its parameters, or what they name, are at fault."""


class ProviderBusy(IntegrationError):
    """The provider or the service did not answer, or cannot do it now.

    seconds: after which the same call may succeed. was_sent: whether the call may have been done all the same.
    is_limit: whether a rate limit of the service is the reason.
    """

    def __init__(
        self, why: str, seconds: float | None = None, *, was_sent: bool = False, is_limit: bool = False
    ) -> None:
        super().__init__(why)
        self.seconds = seconds
        self.was_sent = was_sent
        self.is_limit = is_limit


class IntegrationProvider(Protocol):
    """A provider. Every method may raise ProviderBusy."""

    @property
    def name(self) -> str: ...

    @property
    def is_simulated(self) -> bool: ...

    async def list_toolkits(self, search: str) -> Sequence[Toolkit]:
        """Lists the toolkits that a search finds; with an empty one, the curated ones that it has."""
        ...

    async def find_toolkit(self, slug: str) -> Toolkit | None: ...

    async def list_tools(self, toolkit: str) -> Sequence[ToolFacts]: ...

    async def find_tool(self, toolkit: str, name: str) -> ToolFacts:
        """Returns a tool of a toolkit. Raises ToolUnknown."""
        ...

    async def enable(self, setting: Setting) -> str | None:
        """Prepares a toolkit for an app, and returns what the provider calls it. Called again after every change."""
        ...

    async def disable(self, setting: Setting) -> None: ...

    async def begin(self, order: LinkOrder) -> Link:
        """Returns the service's consent page. Raises ConnectFailed."""
        ...

    async def finish(self, order: LinkOrder, query: Mapping[str, str], external_id: str | None) -> Connected:
        """Returns the account that was connected. query: of the callback. external_id: what `begin` has answered.

        Raises ConnectFailed, also where the account is not the order's user's.
        """
        ...

    async def refresh(self, setting: Setting, grant: Grant) -> Grant:
        """Returns a new grant for one that is about to expire. Raises ConnectionLost."""
        ...

    async def revoke(self, setting: Setting, connection: Connection) -> None:
        """Takes the account's grant back at the service."""
        ...

    async def execute(
        self, setting: Setting, connection: Connection, tool: ToolFacts, params: Mapping[str, Any], key: str
    ) -> Outcome:
        """Calls a tool. key: the idempotency key. Raises ToolFailed, ConnectionLost."""
        ...
