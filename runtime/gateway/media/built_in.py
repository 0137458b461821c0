"""The built-in image and video models as jobs: `start_job` only records the plan, and `check_job` carries it out."""

import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any

from pydantic_core import from_json, to_json

from baobab.runtime.gateway.builtin import picture
from baobab.runtime.gateway.builtin.threads import THREADS
from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.media.model import MediaRequest, Progress, Rendering
from baobab.runtime.gateway.model import Model, Price

PROVIDER = "baobab"
_FILM = "baobab/film"
"""A video model for which no provider's key is needed: each request gives the same short film."""
_FILM_SECONDS = 5
_FREE = Price(0, 0, unit=0)
_SIZE = re.compile(r"(\d{1,5})[xX](\d{1,5})")
_RATIO = re.compile(r"(\d{1,3}):(\d{1,3})")
_SIDES = {"1K": 1024, "2K": 2048, "4K": 4096}
_SMALLEST = 64
_MOST_IMAGES = 10
_SAID = 400
"""The characters of a prompt that are kept: more than a picture has room for."""


def list_models() -> list[Model]:
    """Returns the built-in image model and the built-in video model."""
    return [
        _build_model(picture.MODEL, "Baobab picture (built in, for trying things out)", "image"),
        _build_model(_FILM, "Baobab film (built in, for trying things out)", "video"),
    ]


def count_units(model: Model, request: MediaRequest) -> int:
    """Returns the number of images or seconds. Raises RequestRefused for values that the model does not take."""
    job_plan = _plan_job(model, request)
    return int(job_plan["count"])


def start_job(model: Model, request: MediaRequest) -> Progress:
    """Returns a job in progress, whose handle holds the plan. No work is done yet."""
    return Progress("in_progress", to_json(_plan_job(model, request)).decode())


async def check_job(model: Model, handle: str) -> Progress:
    """Carries out the plan in the handle and returns the completed job."""
    if model.modality == "video":
        return Progress("completed", "", (Rendering("video/mp4", read_film()),), units=_FILM_SECONDS)
    plan = from_json(handle)
    width, height, texts, count = plan["width"], plan["height"], plan["said"], plan["count"]
    with THREADS.reserve_place():
        # One after the other, so that other requests run between them.
        draws = (partial(picture.draw_png, width, height, texts, f"{plan['seed']}/{index}") for index in range(count))
        files = [await THREADS.run_work(draw) for draw in draws]
    return Progress("completed", "", tuple(Rendering("image/png", file) for file in files), units=count)


def _build_model(id_: str, name: str, modality: Any) -> Model:
    return Model(
        id=id_,
        name=name,
        modality=modality,
        price=_FREE,
        context_window=None,
        max_output=None,
        litellm="",
        provider=PROVIDER,
        features=frozenset(),
    )


def _plan_job(model: Model, request: MediaRequest) -> dict[str, Any]:
    """Plans what is made; its `count` is the number of images or seconds."""
    parameters = request.parameters
    if model.modality == "video":
        _check_film(parameters)
        return {"count": _FILM_SECONDS}
    width, height = _read_size(parameters)
    count = _check_number("n", parameters.get("n", 1), _MOST_IMAGES)
    texts = [f"{model.id}: built-in model", request.prompt[:_SAID]]
    if ignored_images := len(parameters.get("input_images") or ()):
        texts.append(f"({ignored_images} image{'s' * (ignored_images > 1)} not seen)")
    return {"width": width, "height": height, "said": texts, "seed": str(parameters.get("seed", 0)), "count": count}


def _read_size(parameters: Mapping[str, Any]) -> tuple[int, int]:
    size, ratio = parameters.get("size"), parameters.get("aspect_ratio")
    if size is not None and (size_match := _SIZE.fullmatch(size)):
        if ratio is not None:
            raise _field_error("aspect_ratio", "Send either a size in pixels or an aspect ratio.")
        width, height = int(size_match[1]), int(size_match[2])
    else:
        longest = _SIDES.get((size or "1K").upper())
        ratio_match = _RATIO.fullmatch(ratio or "1:1")
        if longest is None:
            raise _field_error("size", "`size` must be like 1024x1024, or 1K, 2K or 4K.")
        if ratio_match is None or "0" in (ratio_match[1], ratio_match[2]):
            raise _field_error("aspect_ratio", "`aspect_ratio` must be like 16:9.")
        across, down = int(ratio_match[1]), int(ratio_match[2])
        width, height = (longest * side // max(across, down, 1) for side in (across, down))
    if not (_SMALLEST <= width <= picture.LARGEST and _SMALLEST <= height <= picture.LARGEST):
        raise _field_error("size", f"A side must have {_SMALLEST} to {picture.LARGEST} pixels.")
    return width, height


def _check_film(parameters: Mapping[str, Any]) -> None:
    """Refuses parameters that ask for another film than the only one."""
    for name, only in (("duration", _FILM_SECONDS), ("resolution", "180p"), ("aspect_ratio", "16:9")):
        if parameters.get(name, only) != only:
            raise _field_error(name, f"The built-in film is always the same: `{name}` can only be {only}.")
    if parameters.get("generate_audio"):
        raise _field_error("generate_audio", "The built-in film has no sound.")


def _check_number(name: str, value: Any, most: int) -> int:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value != int(value) or not 1 <= value <= most:
        raise _field_error(name, f"`{name}` must be a whole number from 1 to {most}.")
    return int(value)


def _field_error(name: str, text: str) -> RequestRefused:
    return RequestRefused(text, details={"param": name})


@cache
def read_film() -> bytes:
    """Returns the film of `baobab/film` as an MP4 file."""
    return files("baobab.runtime.gateway.builtin").joinpath("film.mp4").read_bytes()
