"""What came of a call to a model: what it used, as far as that is known when it ends."""

import re
from dataclasses import dataclass
from typing import Any

from baobab.runtime.gateway.model import Model

_CHARACTERS_OF_A_TOKEN = 4
# What a model has written, in whichever field of an event: JSON strings, told apart without reading the event.
_WRITTEN = re.compile(
    rb'"(?:content|reasoning|reasoning_content|thinking|refusal|arguments|text)"\s*+:\s*+"([^"\\]*+(?:\\.[^"\\]*+)*+)"',
    re.DOTALL,
)
_ESCAPED = 3
"""What `\\u00fc` is longer in JSON than the same character is in UTF-8, about."""
_ABSURD = 10**8
"""Tokens that no call has: who says so cannot count, and the sum would be beyond what credits reckon with."""


@dataclass(slots=True)
class Outcome:
    """prompt, completion, cached: tokens as the model's provider counts them.

    Where it does not count, or the stream was left before it did, they are estimated from what was sent and received.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    counted: bool = False
    served: Model | None = None
    """The model as whoever answered sells it: others may sell it at another price."""
    begun: bool = False
    """Whether the provider has begun to answer: only then there is something to pay."""
    events: int = 0
    written: int = 0
    """Events of a stream that have come, and the bytes that the model has written in them."""

    def count(self, usage: Any) -> None:
        """What the provider says, in the wire's `usage`; anything else is no count."""
        if not isinstance(usage, dict):
            return
        prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens", 0))
        if prompt is None or completion is None:
            return
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
        self.prompt, self.completion, self.counted = prompt, completion, True
        self.cached = min(cached or 0, prompt)

    def saw(self, event: bytes) -> None:
        """An event of a stream has come. Comments and the end are none."""
        if not event.startswith(b"data: {") and b"\ndata: {" not in event and not event.startswith(b"data:{"):
            return
        self.events += 1
        for text in _WRITTEN.findall(event):
            self.written += len(text) - _ESCAPED * text.count(b"\\u")

    def estimate(self, sent: int) -> None:
        """Where nobody has counted: from the characters of the request, and of the answer from its events or its bytes.

        Most providers send an event for a token; some put many into one.
        """
        if not self.counted:
            self.prompt = -(-sent // _CHARACTERS_OF_A_TOKEN)
            self.completion = max(self.events, -(-self.written // _CHARACTERS_OF_A_TOKEN))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _ABSURD else None
