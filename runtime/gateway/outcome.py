"""What came of a call to a model: what it used, as far as that is known when it ends."""

import re
from dataclasses import dataclass, field
from typing import Any

from baobab.runtime.gateway.model import Model

_CHARACTERS_OF_A_TOKEN = 4
# What a model has written, in whichever field of an event: JSON strings, told apart without reading the event.
_WRITTEN = re.compile(
    rb'"(?:content|reasoning|reasoning_content|thinking|refusal|arguments|text|delta|partial_json)"\s*+:\s*+'
    rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"',
    re.DOTALL,
)
# Of the events that have names, only those of deltas have something new in them: others repeat it when it is whole.
_NAMED = (b"event: response.", b"event: message_", b"event: content_block_", b"event: ping")
_ESCAPED = 3
"""What `\\u00fc` is longer in JSON than the same character is in UTF-8, about."""
_ABSURD = 10**8
"""Tokens that no call has: who says so cannot count, and the sum would be beyond what credits reckon with."""


@dataclass(slots=True)
class Outcome:
    """prompt, completion: tokens as the model's provider counts them.

    reasoning: those of the completion that nobody is shown.
    cached, cache_write, cache_write_hour: those of the prompt that were read from the provider's cache, or written to
    it, to be kept for minutes or for an hour.

    Where it does not count, or the stream was left before it did, they are estimated from what was sent and received;
    the prompt is not, where the provider has counted that at the beginning.
    """

    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0
    cache_write: int = 0
    cache_write_hour: int = 0
    counted: bool = False
    served: Model | None = None
    """The model as whoever answered sells it: others may sell it at another price."""
    address: str = ""
    """Where it was asked; empty where LiteLLM knows it alone."""
    drops: bool = False
    """Whether optional parameters that the model does not take may be left out of the request."""
    dropped: list[str] = field(default_factory=list)
    """Those that were, without such as make no difference."""
    begun: bool = False
    """Whether the provider has begun to answer: only then there is something to pay."""
    ended: bool = False
    """Whether a stream has come to its end: what is counted is then all."""
    events: int = 0
    written: int = 0
    """Events of a stream that have come, and the bytes that the model has written in them."""
    prompt_counted: bool = False
    """Whether the prompt's tokens are what the provider has said at the beginning of a stream."""
    _written_before: int = 0
    """The bytes that had been written when the provider last counted."""

    def count(self, usage: Any) -> None:
        """What the provider says, in the wire's `usage`; anything else is no count."""
        if not isinstance(usage, dict):
            return
        prompt = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
        completion = _count(usage.get("completion_tokens", usage.get("output_tokens", 0)))
        total = _count(usage.get("total_tokens"))
        if prompt is None or completion is None:
            return
        details = _object(usage, "prompt_tokens_details") or _object(usage, "input_tokens_details")
        if "prompt_tokens" in usage or details:
            # DeepSeek and Moonshot count it beside the prompt's details.
            read = _some(details, "cached_tokens") or _some(usage, "prompt_cache_hit_tokens", "cached_tokens")
            written = _some(details, "cache_write_tokens", "cache_creation_tokens")
            kept = _some(_object(details, "cache_creation_token_details"), "ephemeral_1h_input_tokens")
        else:
            # Anthropic counts beside the prompt what its cache had of it, or has now.
            read = _some(usage, "cache_read_input_tokens")
            written = _some(usage, "cache_creation_input_tokens")
            kept = _some(_object(usage, "cache_creation"), "ephemeral_1h_input_tokens")
            prompt += read + written
        details = _object(usage, "completion_tokens_details") or _object(usage, "output_tokens_details")
        thought = _some(details, "reasoning_tokens")
        if total is not None and total == prompt + completion + thought:
            # xAI counts beside the completion what nobody is shown, and charges it as the rest.
            completion += thought
        self.prompt, self.completion, self.counted = prompt, completion, True
        self._written_before = self.written
        self.reasoning = min(thought, completion)
        self.cached = min(read, prompt)
        written = min(written, prompt - self.cached)
        self.cache_write_hour = min(kept, written)
        self.cache_write = written - self.cache_write_hour

    def count_prompt(self, usage: Any) -> None:
        """What the provider says at the beginning of a stream: all of its prompt, and next to nothing of its answer."""
        self.count(usage)
        self.prompt_counted, self.counted = self.counted, False

    def forget(self) -> None:
        """That answer is nobody's: whoever is asked next begins anew."""
        self.begun = self.counted = self.ended = self.prompt_counted = False
        self.events = self.written = self._written_before = 0

    def saw(self, event: bytes) -> None:
        """An event of a stream has come. Comments and the end are none."""
        if not event.startswith(b"data: {") and b"\ndata: {" not in event and not event.startswith(b"data:{"):
            return
        if event.startswith(_NAMED) and b"delta" not in event.partition(b"\n")[0]:
            return
        self.events += 1
        self.wrote(event)

    def wrote(self, told: bytes) -> None:
        """What the model has written is in this JSON."""
        for text in _WRITTEN.findall(told):
            self.written += len(text) - _ESCAPED * text.count(b"\\u")

    def estimate(self, sent: int) -> None:
        """Where nobody has counted: from the characters of the request, and of the answer from its events or its bytes.

        Most providers send an event for a token; some put many into one. What was written after the last count of a
        stream that was left is added to that.
        """
        if self.counted:
            if not self.ended and self.written > self._written_before:
                self.completion += -(-(self.written - self._written_before) // _CHARACTERS_OF_A_TOKEN)
                self._written_before = self.written
            return
        if not self.prompt_counted:
            self.prompt = -(-sent // _CHARACTERS_OF_A_TOKEN)
        self.completion = max(self.completion, self.events, -(-self.written // _CHARACTERS_OF_A_TOKEN))


def _object(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _some(holder: dict[str, Any], *names: str) -> int:
    return next((count for name in names if (count := _count(holder.get(name)))), 0)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _ABSURD else None
