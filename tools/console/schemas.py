"""The schemas of the console tools' answers."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import JsonObject, NotSecret


class SignedInToConsole(TypedDict):
    session: Annotated[str, Field(description="What the cookie carries; it is kept as a digest only.")]
    expires_at: datetime


class ConsoleSession(TypedDict):
    id: str
    by_key: Annotated[bool, Field(description="Whether an API key signed in, and not a person.")]
    created_at: datetime
    last_seen_at: datetime
    expires_at: datetime
    user_agent: str
    ip: str


class ConsoleSessions(TypedDict):
    """Newest first."""

    sessions: list[ConsoleSession]


class ConsoleSessionsEnded(TypedDict):
    ended: Annotated[int, Field(description="How many sessions ended by this.")]


class PasskeyBegun(TypedDict):
    options: Annotated[JsonObject, Field(description="What `navigator.credentials.create` is asked for.")]
    state: Annotated[str, NotSecret("it is sealed"), Field(description="Belongs to the answer of the browser.")]


class AccountPasskey(TypedDict):
    id: str
    name: str
    created_at: datetime
    last_used_at: datetime | None


class AccountPasskeys(TypedDict):
    """Newest first."""

    passkeys: list[AccountPasskey]


class AccountPasskeyRemoved(TypedDict):
    removed: str
