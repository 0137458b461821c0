"""Reads prices from LiteLLM's price map exactly: decimal dollars become whole nano-dollars."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from baobab.runtime.gateway.model import Modality, Price

_PER_UNIT = 9  # dollars to nano-dollars
_PER_MILLION = 15  # dollars a token to nano-dollars a million tokens
_MOST = 1_000_000  # dollars; nothing has such a price
_LEAST = Decimal("1e-18")  # dollars; anything cheaper counts as free
_ABOVE = re.compile(
    r"(input_cost|output_cost|cache_read_input|cache_creation_input)_(per_token|token_cost)_above_(\d+)k_tokens"
)
_SIZE_FIELD = re.compile(r"output_cost_per_(?:second|image)_([0-9.]+[pkPK])")
# These models search the web and charge for each search, which a price by tokens cannot express.
_SEARCHES = re.compile(r"search-preview|search-api|deep-research")


@dataclass(frozen=True, slots=True)
class Tier:
    """The price of a call whose prompt has more tokens than `above`."""

    above: int
    price: Price


@dataclass(frozen=True, slots=True)
class MediaRates:
    """The prices of images and videos beyond their `Price`.

    by_size: nano-dollars per unit by size in lower case (`1080p`, `4k`), if the map has prices by size. prompt_image,
    answer_text, answer_image: nano-dollars per 1_000_000 tokens of images in the prompt, of text in the answer and of
    images in the answer; `answer_image` is None if images are not counted in tokens.
    """

    by_size: Mapping[str, int]
    prompt_image: int
    answer_text: int
    answer_image: int | None


def parse_price(key: str, entry: Mapping[str, Any], modality: Modality) -> Price | None:
    """Reads the price of an entry; None if it is unknown, zero, or cannot be expressed as a `Price`."""
    match modality:
        case "chat":
            return _parse_chat_price(key, entry)
        case "embedding":
            return _parse_embedding_price(entry)
        case "image":
            return _parse_image_price(entry)
        case "video":
            second = to_nanos(entry.get("output_cost_per_second") or entry.get("output_cost_per_video_per_second"))
            return Price(prompt=0, completion=0, unit=second) if second else None


def parse_rates(entry: Mapping[str, Any]) -> MediaRates:
    """Reads the rates of an image or video model. A missing rate is replaced by the most similar one."""
    image_output_rate = to_nanos_per_million(entry.get("output_cost_per_image_token"))
    image_input_rate = to_nanos_per_million(entry.get("input_cost_per_image_token")) or to_nanos_per_million(
        entry.get("input_cost_per_token")
    )
    sizes = (
        (match[1].lower(), to_nanos(cost)) for field, cost in entry.items() if (match := _SIZE_FIELD.fullmatch(field))
    )
    return MediaRates(
        by_size={size: cost for size, cost in sizes if cost},
        prompt_image=image_input_rate or 0,
        answer_text=to_nanos_per_million(entry.get(_COMPLETION)) or image_output_rate or 0,
        answer_image=image_output_rate or None,
    )


def parse_tiers(entry: Mapping[str, Any], base: Price) -> tuple[Tier, ...]:
    """Reads the higher prices for long prompts, the shortest prompt first. Each holds for all tokens of the call."""
    if brackets := _parse_brackets(entry):
        return tuple(tier for tier in brackets if tier.above > 0)
    starts = {int(match[3]) for field in entry if (match := _ABOVE.fullmatch(field))}
    return tuple(Tier(start * 1000, _parse_tier_price(entry, start, base)) for start in sorted(starts))


def to_nanos(dollars: object, places: int = _PER_UNIT) -> int | None:
    """Converts dollars to units of 10**-`places`, rounded half up. None for what is no price: text, below zero."""
    try:
        amount = Decimal(str(dollars))
    except InvalidOperation:
        return None
    # Bounded before it is written out in digits, because lists of unknown servers are read here too.
    if not amount.is_finite() or not 0 <= amount <= _MOST:
        return None
    return int(amount.scaleb(places).quantize(1, ROUND_HALF_UP)) if amount > _LEAST else 0


def to_nanos_per_million(dollars: object) -> int | None:
    """Converts dollars per token to nano-dollars per million tokens."""
    return to_nanos(dollars, _PER_MILLION)


def _parse_chat_price(key: str, entry: Mapping[str, Any]) -> Price | None:
    brackets = _parse_brackets(entry)
    price = brackets[0].price if brackets else _parse_token_price(entry)
    if price is None or not price.prompt or not price.completion:
        return None
    return None if _SEARCHES.search(key) or _has_other_costs(entry) else price


def _has_other_costs(entry: Mapping[str, Any]) -> bool:
    """Returns whether a plain call costs more than its tokens: for audio or video, by a fee, or for dearer reasoning
    tokens.
    """
    answers = entry.get("supported_output_modalities") or ("text",)
    costs = (entry, *(entry.get("tiered_pricing") or ()))
    return (
        not {"audio", "video"}.isdisjoint(answers)
        or any(field in entry for field in ("output_cost_per_audio_token", "input_cost_per_request"))
        or any(cost.get("output_cost_per_reasoning_token") not in (None, cost.get(_COMPLETION)) for cost in costs)
    )


_COMPLETION = "output_cost_per_token"
_READ = "cache_read_input_token_cost"
_WRITE, _WRITE_HOUR = "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr"


def _parse_embedding_price(entry: Mapping[str, Any]) -> Price | None:
    prompt = to_nanos_per_million(entry.get("input_cost_per_token"))
    return Price(prompt, to_nanos_per_million(entry.get(_COMPLETION)) or 0) if prompt else None


def _parse_image_price(entry: Mapping[str, Any]) -> Price | None:
    prompt = to_nanos_per_million(entry.get("input_cost_per_token")) or 0
    if image := to_nanos(entry.get("output_cost_per_image")):
        return Price(prompt, 0, unit=image)
    if completion := to_nanos_per_million(entry.get("output_cost_per_image_token")):
        return Price(prompt, completion, _parse_cache_price(entry, _READ)) if prompt else None
    return None


def _parse_token_price(entry: Mapping[str, Any]) -> Price | None:
    prompt = to_nanos_per_million(entry.get("input_cost_per_token"))
    completion = to_nanos_per_million(entry.get(_COMPLETION))
    if prompt is None or completion is None:
        return None
    return Price(
        prompt,
        completion,
        _parse_cache_price(entry, _READ),
        # A cache write without a price costs as much as the prompt, not nothing.
        cache_write=to_nanos_per_million(entry.get(_WRITE)) or None,
        cache_write_hour=to_nanos_per_million(entry.get(_WRITE_HOUR)) or None,
    )


def _parse_cache_price(entry: Mapping[str, Any], field: str) -> int | None:
    return to_nanos_per_million(entry[field]) if field in entry else None


def _parse_tier_price(entry: Mapping[str, Any], start: int, base: Price) -> Price:
    def read_part(field: str, otherwise: int | None) -> int | None:
        nanos = to_nanos_per_million(entry.get(f"{field}_above_{start}k_tokens"))
        return otherwise if nanos is None else nanos

    return Price(
        prompt=read_part("input_cost_per_token", base.prompt) or 0,
        completion=read_part(_COMPLETION, base.completion) or 0,
        cached=read_part(_READ, base.cached),
        cache_write=read_part(_WRITE, base.cache_write) or None,
        cache_write_hour=read_part(_WRITE_HOUR, base.cache_write_hour) or None,
    )


def _parse_brackets(entry: Mapping[str, Any]) -> list[Tier]:
    """Reads the table that some vendors have instead of a price; each row holds from a number of prompt tokens on."""
    rows = [row for row in entry.get("tiered_pricing") or () if "range" in row]
    priced_rows = [(int(Decimal(str(row["range"][0]))), _parse_token_price(row)) for row in rows]
    return sorted(
        (Tier(start, price) for start, price in priced_rows if price is not None), key=lambda tier: tier.above
    )
