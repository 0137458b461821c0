"""The task `recognise`: the text of a picture, or of one page of a TIFF or PDF."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pypdfium2 as pdfium
from PIL import Image, ImageOps

from baobab.runtime.documents.child import pictures
from baobab.runtime.documents.child.characters import CharacterReader
from baobab.runtime.documents.child.page_layout import add_lines
from baobab.runtime.documents.child.refusal import Refused
from baobab.runtime.documents.child.text_builder import TextBuilder

_POINTS, _DOTS = 72, 200
"""The units of an inch in a PDF, and those with which its page is drawn."""
_MOST_DRAWN, _MOST_SIDE = 2500, 4000
"""The longest side, in pixels, of a page that is drawn, and of a picture, which is made smaller otherwise."""
_load_reader = cache(CharacterReader)


def import_ahead(_options: dict[str, Any]) -> None:
    """Loads the networks. This module has already imported everything else."""
    _load_reader()


def prepare(source: bytes, options: dict[str, Any]) -> Callable[[], bytes]:
    """Loads the reader of text in pictures and returns a function that reads one picture or page.

    options: those of the task `parse`, with the media type that it found and a page, 0 if there are none.
    """
    reader = _load_reader()

    def recognise() -> bytes:
        builder = TextBuilder(options)
        try:
            is_pdf = options["media_type"] == "application/pdf"
            picture = _draw_page(source, options["page"]) if is_pdf else _decode(source, options)
        except (pdfium.PdfiumError, *pictures.ERRORS) as exc:
            raise Refused("The picture is damaged.") from exc
        add_lines(reader.read_lines(picture), builder, options["page"])
        return builder.encode(options["media_type"], may_be_empty=True)

    return recognise


def _draw_page(source: bytes, number: int) -> Image.Image:
    page = pdfium.PdfDocument(source)[number - 1]
    scale = min(_DOTS / _POINTS, _MOST_DRAWN / max(page.get_size()))
    image: Image.Image = page.render(scale=scale, rev_byteorder=True).to_pil()
    return image.convert("RGB")


def _decode(source: bytes, options: dict[str, Any]) -> Image.Image:
    picture = pictures.open_picture(source, pictures.READ_FORMATS, options["picture_pixels"])
    if options["page"] > 1:
        picture.seek(options["page"] - 1)
        # Each page has its own size.
        pictures.require_pixels(picture, options["picture_pixels"])
    picture.draft("RGB", (_MOST_SIDE, _MOST_SIDE))
    upright = ImageOps.exif_transpose(picture)
    if upright.mode.startswith("I"):
        # 16 bits, of which a conversion would keep the lower half.
        upright = upright.point(lambda value: value / 256)
    has_alpha = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
    if has_alpha:
        above = upright.convert("RGBA")
        upright = Image.new("RGBA", above.size, "white")
        upright.alpha_composite(above)
    opaque = upright.convert("RGB")
    opaque.thumbnail((_MOST_SIDE, _MOST_SIDE))
    return opaque
