"""What a model is and what it costs. Money is integer nano-dollars everywhere: 1 USD is 10**9 of them."""

from dataclasses import dataclass
from typing import Literal, Self

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

    def marked_up(self, percent: int) -> Self:
        """The price with a markup, each part rounded to a whole nano-dollar, half up. `percent` is held to 0..200."""
        factor = 100 + min(max(percent, 0), MAX_MARKUP)
        return type(self)(
            prompt=_scaled(self.prompt, factor),
            completion=_scaled(self.completion, factor),
            cached=None if self.cached is None else _scaled(self.cached, factor),
            unit=None if self.unit is None else _scaled(self.unit, factor),
        )


def _scaled(nanos: int, factor: int) -> int:
    return (nanos * factor + 50) // 100


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
    def upstream(self) -> str:
        """What the provider itself calls the model: LiteLLM's name without its prefix."""
        return self.litellm.partition("/")[2]
