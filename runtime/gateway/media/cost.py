"""What images and videos cost: before they are made the most that they can, afterwards what was used."""

from collections.abc import Mapping
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.media.model import MediaRequest
from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.pricing import MediaRates

_MILLION = 1_000_000
# Tokens of one image that was made, by its quality; the largest known have four fifths of these.
_MOST_MADE = {"low": 512, "medium": 4096}
_MOST_MADE_OTHERWISE = 16_384
# Where an image has a price of its own too: its largest size has about so many.
_MOST_MADE_OF_PRICED = 2048
_MOST_GIVEN = 8192


def second_price(model: Model, rates: MediaRates | None, resolution: str | None) -> int:
    """Nano-dollars for a second of video. RequestRefused for a resolution whose price is not known."""
    base = model.price.unit or 0
    if rates is None or not rates.by_size or resolution is None:
        return base
    found = rates.by_size.get(resolution.lower())
    # A list that holds the usual price is the whole list; another names only what is dearer than usual.
    if found is None and base in rates.by_size.values():
        raise RequestRefused(f"The resolution is one of {', '.join(rates.by_size)}.", details={"param": "resolution"})
    return base if found is None else found


def max_image_cost(model: Model, rates: MediaRates | None, request: MediaRequest, images: int) -> int:
    """Nano-dollars that so many images can cost."""
    base = images * (model.price.unit or 0)
    if rates is None or rates.made is None:
        return base
    if model.price.unit is not None:
        made = _MOST_MADE_OF_PRICED
    else:
        made = _MOST_MADE.get(str(request.provider.get("quality")), _MOST_MADE_OTHERWISE)
    given = len(request.parameters.get("input_images") or ()) + ("mask" in request.parameters)
    # A token has at least a byte.
    text = len(request.prompt.encode()) * model.price.prompt
    return max(base, _round_up(text + given * _MOST_GIVEN * rates.given + images * made * rates.made))


def image_cost(model: Model, rates: MediaRates | None, usage: Any) -> int | None:
    """Nano-dollars by the tokens that an answer says were used; None where it says none, or they have no price."""
    if rates is None or rates.made is None:
        return None
    entered, left = _read_count(usage, "input_tokens"), _read_count(usage, "output_tokens")
    if not left:
        return None
    # What is not told apart costs what the dearer of the two does.
    drawn = _read_part(usage, "input_tokens_details", "text_tokens", entered)
    written = _read_part(usage, "output_tokens_details", "text_tokens", left)
    return _round_up(
        drawn * model.price.prompt
        + (entered - drawn) * max(rates.given, model.price.prompt)
        + written * rates.written
        + (left - written) * rates.made
    )


def _read_part(usage: Any, details: str, name: str, most_: int) -> int:
    counts = usage.get(details) if isinstance(usage, Mapping) else None
    return min(_read_count(counts, name), most_)


def _read_count(counts: Any, name: str) -> int:
    found = counts.get(name) if isinstance(counts, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 10**8 else 0


def _round_up(millionths: int) -> int:
    return -(-millionths // _MILLION)
