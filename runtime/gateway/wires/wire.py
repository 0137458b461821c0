"""The interface of a wire format for the gateway."""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.usage_meter import UsageMeter

Body = Mapping[str, Any]
StreamParser = Callable[[Body], bool]
"""Takes a notable event and returns whether it is the last one. Raises the error that the provider reports."""


@dataclass(frozen=True, slots=True)
class AnswerMetadata:
    """The id of an answer that is built here, its Unix time in seconds, and the origin of its reasoning."""

    id: str
    created_at: int
    origin: str = ""


class Wire(Protocol):
    """A wire format. Requests are relayed to its provider; other providers get chat completions, which are translated.

    path: below the provider's address. limit: the field that limits an answer's tokens. provider: the provider that
    speaks it. notable_pattern: matches the events that must be parsed. headers: the caller's headers for the provider.
    """

    path: str
    limit: str
    provider: str
    notable_pattern: "re.Pattern[bytes]"

    @property
    def headers(self) -> Mapping[str, str]: ...

    def build_relay_request(self, body: Body, model: Model) -> dict[str, Any]:
        """Builds the request that is passed on to the provider."""
        ...

    def build_parser(self, meter: UsageMeter) -> StreamParser:
        """Builds a parser for the events of one answer, which counts the usage in `meter`."""
        ...

    def check_answer(self, answer: Body) -> None:
        """Raises the error that an answer in one piece reports, if there is one."""
        ...

    def build_chat_request(self, body: Body, model: Model) -> dict[str, Any]:
        """Builds the request for a chat completion. Raises RequestRefused for what that cannot express."""
        ...

    def render_answer(self, completion: Body, body: Body, metadata: AnswerMetadata) -> dict[str, Any]:
        """Renders a chat completion as an answer to the request `body`."""
        ...

    def render_events(
        self, chunks: AsyncGenerator[dict[str, Any], None], body: Body, metadata: AnswerMetadata
    ) -> AsyncGenerator[bytes, None]:
        """Renders the chunks of a chat completion as events. Closing the result closes the chunks."""
        ...
