"""Opens pictures. Their text is recognised by another task (recognise_task.py), page by page."""

from __future__ import annotations

import copy
import io
import struct
from typing import Any

from PIL import (
    BmpImagePlugin,
    Image,
    ImageChops,
    ImageMode,
    ImagePalette,
    ImageSequence,
    MpoImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder

READ_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF")
ERRORS = (OSError, ValueError, SyntaxError, LookupError, TypeError, struct.error, Image.DecompressionBombError)
# Pillow imports these late, when no file can be opened any more.
IMPORTED = (
    copy,
    BmpImagePlugin,
    ImageChops,
    ImageMode,
    ImagePalette,
    ImageSequence,
    MpoImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
Image.preinit()
# Its own limit is higher than what a caller may ask for, and is no refusal in our words.
Image.MAX_IMAGE_PIXELS = None


def open_picture(source: bytes, formats: tuple[str, ...], most_pixels: int) -> Image.Image:
    """Opens a picture without decoding it. Raises Refused, and any of ERRORS if it is none of these formats."""
    picture = Image.open(io.BytesIO(source), formats=formats)
    require_pixels(picture, most_pixels)
    return picture


def require_pixels(picture: Image.Image, most_pixels: int) -> None:
    """Raises Refused if a picture is too large."""
    if picture.width * picture.height > most_pixels:
        raise Refused(f"The picture has more than {most_pixels} pixels.")


def read_document(source: bytes, builder: TextBuilder, options: dict[str, Any]) -> None:
    """Says which pages a picture has: those of a TIFF. Of a picture that moves, the first frame is read."""
    try:
        picture = open_picture(source, READ_FORMATS, options["picture_pixels"])
        frames = getattr(picture, "n_frames", 1) if picture.format == "TIFF" else 1
    except ERRORS as exc:
        raise Refused("The picture is damaged.") from exc
    if frames > 1:
        builder.require_pages(frames)
    builder.pictures = list(range(1, frames + 1)) if frames > 1 else [0]
