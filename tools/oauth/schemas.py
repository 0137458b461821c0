"""The results of the tools of OAuth."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core.effects import Policy


class Family(TypedDict):
    """A toolset."""

    name: str
    description: str


class AskedFor(TypedDict):
    """A client's request, as a person should see it."""

    client_id: str
    client_name: Annotated[str, Field(description="What the client calls itself; nobody has checked that.")]
    client_document: Annotated[bool, Field(description="Whether the client's id is the address of its own document.")]
    redirect_host: Annotated[str, Field(description="Whom the key goes to: a host, or the scheme of a local program.")]
    scopes: list[str]
    families: Annotated[list[Family], Field(description="The toolsets that the key may be narrowed to.")]
    server: Annotated[str, Field(description="The host name of this server that the client used.")]
    expires_at: datetime


class Decided(TypedDict):
    """Where to send the browser now."""

    redirect_to: str


class PendingCode(TypedDict):
    """The request that a code is bound to."""

    redirect_uri: str
    redirect_given: bool
    code_challenge: str
    resource: str | None
    scopes: list[str]
    expires_at: datetime


class Exchanged(TypedDict):
    """The key that a code was exchanged for."""

    access_token: Annotated[
        str | None, Field(description="None where the code had been used: then the key of its first use is revoked.")
    ]
    refresh_token: str | None
    expires_in: int
    scope: str


class PendingRefresh(TypedDict):
    """The grant that a refresh token is bound to."""

    scope: str
    expires_at: datetime


class Program(TypedDict):
    """A program that has access as you by OAuth."""

    id: str
    client_name: str
    client_id: str
    redirect_host: str
    organization_id: str
    organization_name: str
    scope: str
    toolsets: Annotated[list[str] | None, Field(description="The toolsets that it may use; null is all.")]
    only_app_id: Annotated[str | None, Field(description="The only app that it may use; null for all that you may.")]
    only_app_name: str | None
    read_only: bool
    approval: Policy
    ends_at: Annotated[datetime | None, Field(description="When its access ends; null: when it is revoked.")]
    created_at: datetime
    last_used_at: datetime | None


class Programs(TypedDict):
    programs: list[Program]


class Revoked(TypedDict):
    revoked: bool
