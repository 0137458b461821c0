"""What a function may ask of the server while it runs: the port that the domain of functions implements."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import JsonValue

from baobab.runtime.functions.answer import FunctionAnswer
from baobab.runtime.functions.program import FunctionRequest

Acting = tuple[Literal["user"], str] | tuple[Literal["anon"]] | None
"""Whose rights a host call asks for: None for those of the caller, or what `asUser` and `asAnon` name."""


class HostRefusal(Exception):
    """The host refuses a call. The program gets an Error with this message, `code` and `remediation`."""

    def __init__(self, code: str, message: str, remediation: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.remediation = remediation


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """A request that a program made with `fetch`. redirect: `follow`, `error` or `manual`."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: AsyncIterator[bytes] | None
    redirect: str = "follow"


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The answer to a `fetch`. url: the last address, after redirects. The body is closed (`aclose`) when the program
    stops to read it.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: AsyncIterator[bytes] | None
    url: str | None = None
    redirected: bool = False


class Host(Protocol):
    """What an invocation may do. One object for each; whatever a program sends arrives here unchecked."""

    async def call(self, member: str, arguments: list[JsonValue], acting: Acting) -> JsonValue:
        """Does what a member of `ctx` says, such as `db.query`, `kv.get` or `ai.meetings.create`.

        arguments: as the program gave them, trailing `undefined` left out; bytes are `{"$base64": text}`, in the answer
        too. `step.begin [name]` answers `{"done": false}`, or `{"done": true, "value": ...}`. `step.end [name,
        {"value": ...}]` answers null, or `{"value": ...}` where the step had ended before. What `step.end [name,
        {"error": text}]` answers is not read. Raises HostRefusal.
        """

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Sends a request of the program. Raises HostRefusal."""

    async def invoke(self, name: str, request: FunctionRequest) -> FunctionAnswer:
        """Calls another function of the same app. Raises HostRefusal."""
