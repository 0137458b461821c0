"""What a model is and what it costs. Money is integer nano-dollars everywhere: 1 USD is 10**9 of them."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Modality = Literal["chat", "embedding", "image", "video"]

MAX_MARKUP = 200
"""The largest percentage that may be added to what a provider charges."""


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a call is the sum of the parts: tokens of the prompt, of the completion, and units.

    Where a model is sold by the unit, its completion costs nothing beside: images and seconds are not paid twice.
    """

    prompt: int  # nano-dollars per 1_000_000 prompt tokens
    completion: int  # nano-dollars per 1_000_000 completion tokens
    cached: int | None = None  # per 1_000_000 cached prompt tokens, where the vendor sells them cheaper
    unit: int | None = None  # nano-dollars per image or per second of video
    cache_write: int | None = None  # per 1_000_000 prompt tokens written to the vendor's cache, where that costs more
    cache_write_hour: int | None = None  # the same for those that are to be kept for an hour

    def marked_up(self, percent: int) -> Self:
        """The price with a markup, each part rounded to a whole nano-dollar, half up. `percent` is held to 0..200."""
        factor = 100 + min(max(percent, 0), MAX_MARKUP)
        parts: dict[str, Any] = {
            part: None if nanos is None else (nanos * factor + 50) // 100 for part, nanos in asdict(self).items()
        }
        return type(self)(**parts)


@dataclass(frozen=True, slots=True)
class Model:
    id: str  # "<vendor>/<model>", e.g. "openai/gpt-4o-mini"
    name: str  # display name
    modality: Modality
    price: Price
    context_window: int | None
    max_output: int | None
    litellm: str  # LiteLLM's own name of it, "" for built-in models
    provider: str  # LiteLLM's provider name: openai, anthropic, ...; "baobab" for built-in
    features: frozenset[str]  # tools, vision, json_schema, streaming ...

    @property
    def upstream_name(self) -> str:
        """What the provider itself calls the model: LiteLLM's name without its prefix."""
        return self.litellm.partition("/")[2]
