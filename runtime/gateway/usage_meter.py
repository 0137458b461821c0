"""Counts what a call to a model has used, as far as that is known when the call ends."""

import re
from dataclasses import dataclass, field
from typing import Any

from baobab.runtime.gateway.model import Model

_CHARACTERS_OF_A_TOKEN = 4
# The text that a model has written, in any field of an event: JSON strings, found without parsing the event.
_WRITTEN_TEXT = re.compile(
    rb'"(?:content|reasoning|reasoning_content|thinking|refusal|arguments|text|delta|partial_json)"\s*+:\s*+'
    rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"',
    re.DOTALL,
)
# Only deltas among the named events have new text; others repeat all of it.
_NAMED_EVENTS = (b"event: response.", b"event: message_", b"event: content_block_", b"event: ping")
_ESCAPE_OVERHEAD = 3
"""About how many bytes an escape such as `\\u00fc` is longer than the same character in UTF-8."""
_MAX_TOKENS = 10**8
"""A count of tokens above this is certainly wrong, and its sums would not fit into the credits."""


@dataclass(slots=True)
class UsageMeter:
    """The usage of one call.

    prompt, completion: tokens, as the model's provider counts them.
    reasoning: the tokens of the completion that are not shown.
    cached, cache_write, cache_write_hour: the tokens of the prompt that were read from the provider's cache, and those
    that were written to it for some minutes or for an hour.

    If the provider does not count, or the stream ended before it did, the tokens are estimated from what was sent and
    received; the prompt's only if the provider did not count them at the beginning.
    """

    prompt: int = 0
    completion: int = 0
    reasoning: int = 0
    cached: int = 0
    cache_write: int = 0
    cache_write_hour: int = 0
    is_counted: bool = False
    served_model: Model | None = None
    """The model that answered, as its provider sells it; the price may differ from the other providers'."""
    api_base: str = ""
    """The provider's address; empty if only LiteLLM knows it."""
    may_drop: bool = False
    """Whether optional parameters that the model does not take may be left out of the request."""
    dropped_parameters: list[str] = field(default_factory=list)
    """The parameters that were left out, except those with default values."""
    has_begun: bool = False
    """Whether the provider has begun to answer; only then the call costs something."""
    has_ended: bool = False
    """Whether a stream has reached its end, so that the count is complete."""
    events: int = 0
    written_bytes: int = 0
    """The events of a stream so far, and the bytes of the model's text in them."""
    is_prompt_counted: bool = False
    """Whether the provider has counted the prompt's tokens at the beginning of the stream."""
    _written_before: int = 0
    """The bytes of text before the provider's last count."""

    def count_usage(self, usage: Any) -> None:
        """Takes the counts from the provider's `usage`; anything but such an object is ignored."""
        if not isinstance(usage, dict):
            return
        prompt = _read_count(usage.get("prompt_tokens", usage.get("input_tokens")))
        completion = _read_count(usage.get("completion_tokens", usage.get("output_tokens", 0)))
        total = _read_count(usage.get("total_tokens"))
        if prompt is None or completion is None:
            return
        details = _read_object(usage, "prompt_tokens_details") or _read_object(usage, "input_tokens_details")
        if "prompt_tokens" in usage or details:
            # DeepSeek and Moonshot have the cached tokens beside the prompt's details.
            cached_tokens = _read_first(details, "cached_tokens") or _read_first(
                usage, "prompt_cache_hit_tokens", "cached_tokens"
            )
            cache_written = _read_first(details, "cache_write_tokens", "cache_creation_tokens")
            written_for_hour = _read_first(
                _read_object(details, "cache_creation_token_details"), "ephemeral_1h_input_tokens"
            )
        else:
            # Anthropic does not include tokens read from or written to its cache in the prompt's.
            cached_tokens = _read_first(usage, "cache_read_input_tokens")
            cache_written = _read_first(usage, "cache_creation_input_tokens")
            written_for_hour = _read_first(_read_object(usage, "cache_creation"), "ephemeral_1h_input_tokens")
            prompt += cached_tokens + cache_written
        details = _read_object(usage, "completion_tokens_details") or _read_object(usage, "output_tokens_details")
        reasoning = _read_first(details, "reasoning_tokens")
        if total is not None and total == prompt + completion + reasoning:
            # xAI does not include the reasoning tokens in the completion's, and charges them the same.
            completion += reasoning
        self.prompt, self.completion, self.is_counted = prompt, completion, True
        self._written_before = self.written_bytes
        self.reasoning = min(reasoning, completion)
        self.cached = min(cached_tokens, prompt)
        cache_written = min(cache_written, prompt - self.cached)
        self.cache_write_hour = min(written_for_hour, cache_written)
        self.cache_write = cache_written - self.cache_write_hour

    def count_prompt(self, usage: Any) -> None:
        """Takes the counts from the beginning of a stream, which has the whole prompt but almost no answer yet."""
        self.count_usage(usage)
        self.is_prompt_counted, self.is_counted = self.is_counted, False

    def reset_counts(self) -> None:
        """Discards the counts of an answer that nobody receives."""
        self.has_begun = self.is_counted = self.has_ended = self.is_prompt_counted = False
        self.events = self.written_bytes = self._written_before = 0

    def record_event(self, event: bytes) -> None:
        """Counts an event of a stream and its text. Comments and the end marker are not counted."""
        if not event.startswith(b"data: {") and b"\ndata: {" not in event and not event.startswith(b"data:{"):
            return
        if event.startswith(_NAMED_EVENTS) and b"delta" not in event.partition(b"\n")[0]:
            return
        self.events += 1
        self.record_written(event)

    def record_written(self, payload: bytes) -> None:
        """Counts the bytes of the model's text in this JSON."""
        for text in _WRITTEN_TEXT.findall(payload):
            self.written_bytes += len(text) - _ESCAPE_OVERHEAD * text.count(b"\\u")

    def estimate_usage(self, sent_characters: int) -> None:
        """Estimates what the provider has not counted, from the request's characters and the answer's events or bytes.

        Most providers send one event per token; some put many tokens into one. For a stream that was left early, the
        text after the provider's last count is added to it.
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
