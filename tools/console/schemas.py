"""The schemas of the console tools' answers."""

from datetime import datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict


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
