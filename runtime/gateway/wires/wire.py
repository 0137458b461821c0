"""What the gateway knows of a wire."""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.outcome import Outcome

Body = Mapping[str, Any]
Hearer = Callable[[Body], bool]
"""Takes an event of note; whether it is the last one. Raises what the provider says has gone wrong."""


@dataclass(frozen=True, slots=True)
class Made:
    """What an answer that is made here is told by: its id, and when in Unix time."""

    id: str
    at: int


class Wire(Protocol):
    """Who speaks it is relayed what was asked; all others are asked for a chat completion, which is told in its words.

    path: below the provider's address. limit: the field that bounds an answer's tokens. provider: who speaks it.
    notable: what is found in events of note.
    headers: what the caller says to the provider beside the request.
    """

    path: str
    limit: str
    provider: str
    notable: "re.Pattern[bytes]"

    @property
    def headers(self) -> Mapping[str, str]: ...

    def relayed(self, body: Body, model: Model) -> dict[str, Any]:
        """The request as it is passed on."""
        ...

    def hearer(self, outcome: Outcome) -> Hearer:
        """What listens to the events of one answer, and counts into `outcome` what was used."""
        ...

    def check(self, answer: Body) -> None:
        """Raises what has gone wrong where an answer in one piece says so."""
        ...

    def asked(self, body: Body, model: Model) -> dict[str, Any]:
        """The request as one for a chat completion; RequestRefused for what that has no words for."""
        ...

    def answered(self, completion: Body, body: Body, made: Made) -> dict[str, Any]:
        """A chat completion as an answer to the request `body`."""
        ...

    def telling(
        self, chunks: AsyncGenerator[dict[str, Any], None], body: Body, made: Made
    ) -> AsyncGenerator[bytes, None]:
        """The chunks of a chat completion as the events of such an answer. Closes them when it is closed."""
        ...
