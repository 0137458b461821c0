"""What came of a call to a model: what it used, as far as that is known when it ends."""

import re
from dataclasses import dataclass, field
from typing import Any

from baobab.runtime.gateway.model import Model

_CHARACTERS_OF_A_TOKEN = 4
# What a model has written, in whichever field of an event: JSON strings, told apart without reading the event.
_WRITTEN_TEXT = re.compile(
    rb'"(?:content|reasoning|reasoning_content|thinking|refusal|arguments|text|delta|partial_json)"\s*+:\s*+'
    rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"',
    re.DOTALL,
)
# Of the events that have names, only those of deltas have something new in them: others repeat it when it is whole.
_NAMED_EVENTS = (b"event: response.", b"event: message_", b"event: content_block_", b"event: ping")
_ESCAPE_OVERHEAD = 3
"""What `\\u00fc` is longer in JSON than the same character is in UTF-8, about."""
_MAX_TOKENS = 10**8
"""Tokens that no call has: who says so cannot count, and the sum would be beyond what credits reckon with."""


@dataclass(slots=True)
class UsageMeter:
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
    is_counted: bool = False
    served_model: Model | None = None
    """The model as whoever answered sells it: others may sell it at another price."""
    api_base: str = ""
    """Where it was asked; empty where LiteLLM knows it alone."""
    may_drop: bool = False
    """Whether optional parameters that the model does not take may be left out of the request."""
    dropped_parameters: list[str] = field(default_factory=list)
    """Those that were, without such as make no difference."""
    has_begun: bool = False
    """Whether the provider has begun to answer: only then there is something to pay."""
    has_ended: bool = False
    """Whether a stream has come to its end: what is counted is then all."""
    events: int = 0
    written_bytes: int = 0
    """Events of a stream that have come, and the bytes that the model has written in them."""
    is_prompt_counted: bool = False
    """Whether the prompt's tokens are what the provider has said at the beginning of a stream."""
    _written_before: int = 0
    """The bytes that had been written when the provider last counted."""

    def count_usage(self, usage: Any) -> None:
        """What the provider says, in the wire's `usage`; anything else is no count."""
        if not isinstance(usage, dict):
            return
        prompt = _read_count(usage.get("prompt_tokens", usage.get("input_tokens")))
        completion = _read_count(usage.get("completion_tokens", usage.get("output_tokens", 0)))
        total = _read_count(usage.get("total_tokens"))
        if prompt is None or completion is None:
            return
        details = _read_object(usage, "prompt_tokens_details") or _read_object(usage, "input_tokens_details")
        if "prompt_tokens" in usage or details:
            # DeepSeek and Moonshot count it beside the prompt's details.
            read = _read_first(details, "cached_tokens") or _read_first(
                usage, "prompt_cache_hit_tokens", "cached_tokens"
            )
            written = _read_first(details, "cache_write_tokens", "cache_creation_tokens")
            kept = _read_first(_read_object(details, "cache_creation_token_details"), "ephemeral_1h_input_tokens")
        else:
            # Anthropic counts beside the prompt what its cache had of it, or has now.
            read = _read_first(usage, "cache_read_input_tokens")
            written = _read_first(usage, "cache_creation_input_tokens")
            kept = _read_first(_read_object(usage, "cache_creation"), "ephemeral_1h_input_tokens")
            prompt += read + written
        details = _read_object(usage, "completion_tokens_details") or _read_object(usage, "output_tokens_details")
        thought = _read_first(details, "reasoning_tokens")
        if total is not None and total == prompt + completion + thought:
            # xAI counts beside the completion what nobody is shown, and charges it as the rest.
            completion += thought
        self.prompt, self.completion, self.is_counted = prompt, completion, True
        self._written_before = self.written_bytes
        self.reasoning = min(thought, completion)
        self.cached = min(read, prompt)
        written = min(written, prompt - self.cached)
        self.cache_write_hour = min(kept, written)
        self.cache_write = written - self.cache_write_hour

    def count_prompt(self, usage: Any) -> None:
        """What the provider says at the beginning of a stream: all of its prompt, and next to nothing of its answer."""
        self.count_usage(usage)
        self.is_prompt_counted, self.is_counted = self.is_counted, False

    def reset_counts(self) -> None:
        """That answer is nobody's: whoever is asked next begins anew."""
        self.has_begun = self.is_counted = self.has_ended = self.is_prompt_counted = False
        self.events = self.written_bytes = self._written_before = 0

    def record_event(self, event: bytes) -> None:
        """An event of a stream has come. Comments and the end are none."""
        if not event.startswith(b"data: {") and b"\ndata: {" not in event and not event.startswith(b"data:{"):
            return
        if event.startswith(_NAMED_EVENTS) and b"delta" not in event.partition(b"\n")[0]:
            return
        self.events += 1
        self.record_written(event)

    def record_written(self, payload: bytes) -> None:
        """What the model has written is in this JSON."""
        for text in _WRITTEN_TEXT.findall(payload):
            self.written_bytes += len(text) - _ESCAPE_OVERHEAD * text.count(b"\\u")

    def estimate_usage(self, sent_characters: int) -> None:
        """Where nobody has counted: from the characters of the request, and of the answer from its events or its bytes.

        Most providers send an event for a token; some put many into one. What was written after the last count of a
        stream that was left is added to that.
        """
        if self.is_counted:
            if not self.has_ended and self.written_bytes > self._written_before:
                self.completion += -(-(self.written_bytes - self._written_before) // _CHARACTERS_OF_A_TOKEN)
                self._written_before = self.written_bytes
            return
        if not self.is_prompt_counted:
            self.prompt = -(-sent_characters // _CHARACTERS_OF_A_TOKEN)
        self.completion = max(self.completion, self.events, -(-self.written_bytes // _CHARACTERS_OF_A_TOKEN))


def _read_object(holder: dict[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _read_first(holder: dict[str, Any], *names: str) -> int:
    return next((count for name in names if (count := _read_count(holder.get(name)))), 0)


def _read_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_TOKENS else None
