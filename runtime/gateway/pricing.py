"""Prices out of LiteLLM's price map, exactly: its dollars are read as decimals and end as whole nano-dollars."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from baobab.runtime.gateway.model import Modality, Price

_PER_UNIT = 9  # dollars to nano-dollars
_PER_MILLION = 15  # dollars a token to nano-dollars a million tokens
_MOST = 1_000_000  # dollars; nothing has such a price
_LEAST = Decimal("1e-18")  # dollars; nothing is as cheap, and not free
_ABOVE = re.compile(
    r"(input_cost|output_cost|cache_read_input|cache_creation_input)_(per_token|token_cost)_above_(\d+)k_tokens"
)
_SIZE_FIELD = re.compile(r"output_cost_per_(?:second|image)_([0-9.]+[pkPK])")
# They search on their own account and charge each search, which no price by tokens holds.
_SEARCHES = re.compile(r"search-preview|search-api|deep-research")


@dataclass(frozen=True, slots=True)
class Tier:
    """The price of a call whose prompt has more tokens than `above`."""

    above: int
    price: Price


@dataclass(frozen=True, slots=True)
class MediaRates:
    """What images and videos cost beyond their `Price`.

    by_size: nano-dollars a unit where the map tells sizes apart, by the size in small letters: `1080p`, `4k`. given,
    written, made: nano-dollars per 1_000_000 tokens of images in the prompt, of text in the answer and of images in
    it; `made` is None where images are not counted in tokens.
    """

    by_size: Mapping[str, int]
    given: int
    written: int
    made: int | None


def parse_price(key: str, entry: Mapping[str, Any], modality: Modality) -> Price | None:
    """What the entry costs; None if that is not known, nothing, or more than a `Price` can say."""
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
    """Of an image or video model. What the map does not tell costs as much as what it resembles."""
    made = to_nanos_per_million(entry.get("output_cost_per_image_token"))
    given = to_nanos_per_million(entry.get("input_cost_per_image_token")) or to_nanos_per_million(
        entry.get("input_cost_per_token")
    )
    sizes = (
        (found[1].lower(), to_nanos(cost)) for field, cost in entry.items() if (found := _SIZE_FIELD.fullmatch(field))
    )
    return MediaRates(
        by_size={size: cost for size, cost in sizes if cost},
        given=given or 0,
        written=to_nanos_per_million(entry.get(_COMPLETION)) or made or 0,
        made=made or None,
    )


def parse_tiers(entry: Mapping[str, Any], base: Price) -> tuple[Tier, ...]:
    """The dearer prices of long prompts, the shortest prompt first. Each holds for every token of the call."""
    if brackets := _parse_brackets(entry):
        return tuple(tier for tier in brackets if tier.above > 0)
    starts = {int(found[3]) for field in entry if (found := _ABOVE.fullmatch(field))}
    return tuple(Tier(start * 1000, _parse_tier_price(entry, start, base)) for start in sorted(starts))


def to_nanos(dollars: object, places: int = _PER_UNIT) -> int | None:
    """Dollars, as a number's text, in units of 10**-`places`, half up. None for what is no price: text, below zero."""
    try:
        amount = Decimal(str(dollars))
    except InvalidOperation:
        return None
    # Bounded before it is written out in digits: lists of strange servers come this way too.
    if not amount.is_finite() or not 0 <= amount <= _MOST:
        return None
    return int(amount.scaleb(places).quantize(1, ROUND_HALF_UP)) if amount > _LEAST else 0


def to_nanos_per_million(dollars: object) -> int | None:
    """Dollars a token in nano-dollars a million tokens."""
    return to_nanos(dollars, _PER_MILLION)


def _parse_chat_price(key: str, entry: Mapping[str, Any]) -> Price | None:
    brackets = _parse_brackets(entry)
    price = brackets[0].price if brackets else _parse_token_price(entry)
    if price is None or not price.prompt or not price.completion:
        return None
    return None if _SEARCHES.search(key) or _has_other_costs(entry) else price


def _has_other_costs(entry: Mapping[str, Any]) -> bool:
    """Whether a plain call costs more than its tokens: sounds and films in the answer, a fee, dearer thoughts."""
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
        # A write without a price is one that costs what the prompt does, and not one that costs nothing.
        cache_write=to_nanos_per_million(entry.get(_WRITE)) or None,
        cache_write_hour=to_nanos_per_million(entry.get(_WRITE_HOUR)) or None,
    )


def _parse_cache_price(entry: Mapping[str, Any], field: str) -> int | None:
    return to_nanos_per_million(entry[field]) if field in entry else None


def _parse_tier_price(entry: Mapping[str, Any], start: int, base: Price) -> Price:
    def read_part(field: str, otherwise: int | None) -> int | None:
        found = to_nanos_per_million(entry.get(f"{field}_above_{start}k_tokens"))
        return otherwise if found is None else found

    return Price(
        prompt=read_part("input_cost_per_token", base.prompt) or 0,
        completion=read_part(_COMPLETION, base.completion) or 0,
        cached=read_part(_READ, base.cached),
        cache_write=read_part(_WRITE, base.cache_write) or None,
        cache_write_hour=read_part(_WRITE_HOUR, base.cache_write_hour) or None,
    )


def _parse_brackets(entry: Mapping[str, Any]) -> list[Tier]:
    """Some vendors give a table in place of a price: from how many tokens of prompt each row holds."""
    rows = [row for row in entry.get("tiered_pricing") or () if "range" in row]
    priced_rows = [(int(Decimal(str(row["range"][0]))), _parse_token_price(row)) for row in rows]
    return sorted(
        (Tier(start, price) for start, price in priced_rows if price is not None), key=lambda tier: tier.above
    )
