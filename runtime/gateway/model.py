"""A model and its price. Money is integer nano-dollars everywhere: 1 USD is 10**9 of them."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Modality = Literal["chat", "embedding", "image", "video"]

MAX_MARKUP = 200
"""The largest percentage that may be added to what a provider charges."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model. A call costs the sum of its prompt tokens, its completion tokens and its units.

    If a model is sold by the unit, its completion tokens cost nothing: images and seconds are not paid twice.
    """

    prompt: int  # nano-dollars per 1_000_000 prompt tokens
    completion: int  # nano-dollars per 1_000_000 completion tokens
    cached: int | None = None  # per 1_000_000 cached prompt tokens, if the vendor sells them cheaper
    unit: int | None = None  # nano-dollars per image or per second of video
    cache_write: int | None = None  # per 1_000_000 prompt tokens written to the vendor's cache, if that costs more
    cache_write_hour: int | None = None  # the same for tokens that are kept for an hour

    def marked_up(self, percent: int) -> Self:
        """Returns the price with a markup, each part rounded half up to a nano-dollar. percent: limited to 0..200."""
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
    litellm: str  # LiteLLM's name of the model, "" for built-in models
    provider: str  # LiteLLM's provider name: openai, anthropic, ...; "baobab" for built-in
    features: frozenset[str]  # tools, vision, json_schema, streaming ...

    @property
    def upstream_name(self) -> str:
        """The provider's own name of the model: LiteLLM's name without its prefix."""
        return self.litellm.partition("/")[2]
