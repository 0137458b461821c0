"""The cost of images and videos: at most, before they are made; exactly, afterwards."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.media.model import MediaRequest
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.pricing import MediaRates

_MILLION = 1_000_000
# The most tokens of one generated image, by its quality; the largest known have four fifths of these.
_MOST_MADE = {"low": 512, "medium": 4096}
_MOST_MADE_OTHERWISE = 16_384
# The same for models that also have a price per image: its largest size has about this many.
_MOST_MADE_OF_PRICED = 2048
_MOST_GIVEN = 8192


def second_price(model: Model, rates: MediaRates | None, resolution: str | None) -> int:
    """Returns nano-dollars per second of video. Raises RequestRefused for a resolution without a known price."""
    base = model.price.unit or 0
    if rates is None or not rates.by_size or resolution is None:
        return base
    size_price = rates.by_size.get(resolution.lower())
    # A list that contains the usual price is complete; other lists name only the sizes that cost more.
    if size_price is None and base in rates.by_size.values():
        raise RequestRefused(
            f"`resolution` must be one of {', '.join(rates.by_size)}.", details={"param": "resolution"}
        )
    return base if size_price is None else size_price


def max_image_cost(model: Model, rates: MediaRates | None, request: MediaRequest, images: int) -> int:
    """Returns the most nano-dollars that so many images can cost."""
    base = images * (model.price.unit or 0)
    if rates is None or rates.answer_image is None:
        return base
    if model.price.unit is not None:
        tokens_per_image = _MOST_MADE_OF_PRICED
    else:
        tokens_per_image = _MOST_MADE.get(str(request.provider.get("quality")), _MOST_MADE_OTHERWISE)
    input_images = len(request.parameters.get("input_images") or ()) + ("mask" in request.parameters)
    # A token has at least a byte.
    text = len(request.prompt.encode()) * model.price.prompt
    return max(
        base,
        _round_up(
            text + input_images * _MOST_GIVEN * rates.prompt_image + images * tokens_per_image * rates.answer_image
        ),
    )


def image_cost(model: Model, rates: MediaRates | None, usage: Any) -> int | None:
    """Returns nano-dollars for the tokens in an answer's usage; None without usage, or without a price for tokens."""
    if rates is None or rates.answer_image is None:
        return None
    input_tokens, output_tokens = _read_count(usage, "input_tokens"), _read_count(usage, "output_tokens")
    if not output_tokens:
        return None
    # Tokens of an unknown kind cost as much as the dearer kind.
    input_text_tokens = _read_part(usage, "input_tokens_details", "text_tokens", input_tokens)
    output_text_tokens = _read_part(usage, "output_tokens_details", "text_tokens", output_tokens)
    return _round_up(
        input_text_tokens * model.price.prompt
        + (input_tokens - input_text_tokens) * max(rates.prompt_image, model.price.prompt)
        + output_text_tokens * rates.answer_text
        + (output_tokens - output_text_tokens) * rates.answer_image
    )


def _read_part(usage: Any, details: str, name: str, most_: int) -> int:
    counts = usage.get(details) if isinstance(usage, Mapping) else None
    return min(_read_count(counts, name), most_)


def _read_count(counts: Any, name: str) -> int:
    count = counts.get(name) if isinstance(counts, Mapping) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 10**8 else 0


def _round_up(millionths: int) -> int:
    return -(-millionths // _MILLION)
