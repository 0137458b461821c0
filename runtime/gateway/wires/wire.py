"""What the gateway knows of a wire."""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.usage_meter import UsageMeter

Body = Mapping[str, Any]
StreamParser = Callable[[Body], bool]
"""Takes an event of note; whether it is the last one. Raises what the provider says has gone wrong."""


@dataclass(frozen=True, slots=True)
class AnswerMetadata:
    """What an answer that is made here is told by: its id, and when in Unix time."""

    id: str
    created_at: int


class Wire(Protocol):
    """Who speaks it is relayed what was asked; all others are asked for a chat completion, which is told in its words.

    path: below the provider's address. limit: the field that bounds an answer's tokens. provider: who speaks it.
    notable: what is found in events of note.
    headers: what the caller says to the provider beside the request.
    """

    path: str
    limit: str
    provider: str
    notable_pattern: "re.Pattern[bytes]"

    @property
    def headers(self) -> Mapping[str, str]: ...

    def build_relay_request(self, body: Body, model: Model) -> dict[str, Any]:
        """The request as it is passed on."""
        ...

    def build_parser(self, meter: UsageMeter) -> StreamParser:
        """What listens to the events of one answer, and counts into `outcome` what was used."""
        ...

    def check_answer(self, answer: Body) -> None:
        """Raises what has gone wrong where an answer in one piece says so."""
        ...

    def build_chat_request(self, body: Body, model: Model) -> dict[str, Any]:
        """The request as one for a chat completion; RequestRefused for what that has no words for."""
        ...

    def render_answer(self, completion: Body, body: Body, metadata: AnswerMetadata) -> dict[str, Any]:
        """A chat completion as an answer to the request `body`."""
        ...

    def render_events(
        self, chunks: AsyncGenerator[dict[str, Any], None], body: Body, metadata: AnswerMetadata
    ) -> AsyncGenerator[bytes, None]:
        """The chunks of a chat completion as the events of such an answer. Closes them when it is closed."""
        ...
