"""The task `thumbnail`: makes a small copy of a picture, in WebP."""

import io
import json
from collections.abc import Callable
from typing import Any

from PIL import AvifImagePlugin, ImageOps

from baobab.runtime.documents.child import pictures
from baobab.runtime.documents.child.refusal import Refused

_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF")
# More would be threads, which the process may not start.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def import_ahead(_options: dict[str, Any]) -> None:
    """Does nothing, because this module already imports everything that a thumbnail needs."""


def prepare(source: bytes, options: dict[str, Any]) -> Callable[[], bytes]:
    return lambda: draw_thumbnail(source, options["side"], options["pixels"])


def draw_thumbnail(source: bytes, side: int, most_pixels: int) -> bytes:
    """Returns a line of JSON followed by the picture, whose sides are at most `side` pixels. Raises Refused."""
    try:
        image = pictures.open_picture(source, _FORMATS, most_pixels)
        image.draft("RGB", (2 * side, 2 * side))
        image.thumbnail((side, side))
        upright = ImageOps.exif_transpose(image)
        has_alpha = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
        file = io.BytesIO()
        upright.convert("RGBA" if has_alpha else "RGB").save(file, "WEBP", quality=80, exif=b"", icc_profile=b"")
    except pictures.ERRORS as exc:
        raise Refused("The picture is damaged, or none of JPEG, PNG, GIF, WebP and AVIF.") from exc
    return json.dumps({}).encode() + b"\n" + file.getvalue()
