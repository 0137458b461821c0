"""The task `thumbnail`: makes a small copy of a picture, or of the first page of a PDF."""

import io
import json
from collections.abc import Callable
from typing import Any

from PIL import AvifImagePlugin, Image, ImageOps

from baobab.runtime.documents.child import pictures
from baobab.runtime.documents.child.refusal import Refused

_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "TIFF")
_SAVING: dict[str, dict[str, Any]] = {
    "webp": {"quality": 80, "exif": b"", "icc_profile": b""},
    "avif": {"quality": 60, "speed": 8, "exif": b"", "icc_profile": b""},
    "jpeg": {"quality": 82, "exif": b"", "icc_profile": b"", "comment": b""},
    "png": {"icc_profile": None},
}
"""How each kind is written: small, and without what a camera has noted."""
# More would be threads, which the process may not start.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


def import_ahead(options: dict[str, Any]) -> None:
    """Imports what draws a page, which is the only thing that this module does not import already."""
    if options["is_pdf"]:
        import pypdfium2  # noqa: F401, PLC0415 - pictures do without it, and it takes memory


def prepare(source: bytes, options: dict[str, Any]) -> Callable[[], bytes]:
    import_ahead(options)
    return lambda: draw(source, options)


def draw(source: bytes, options: dict[str, Any]) -> bytes:
    """Returns a line of JSON followed by the picture. Raises Refused.

    options: side, the most pixels of a side; is_square, whether the middle is cut out as a square; kind, a name of
    `_SAVING`; is_pdf; pixels, the most that the source may have.
    """
    side: int = options["side"]
    try:
        image = _draw_page(source, side) if options["is_pdf"] else _open(source, side, options)
        upright = ImageOps.exif_transpose(image)
        has_alpha = upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info
        picture = upright.convert("RGBA" if has_alpha else "RGB")
        if options["is_square"]:
            length = min(side, *picture.size)
            picture = ImageOps.fit(picture, (length, length))
        else:
            picture.thumbnail((side, side))
        if has_alpha and options["kind"] == "jpeg":
            above, picture = picture, Image.new("RGBA", picture.size, "white")
            picture.alpha_composite(above)
            picture = picture.convert("RGB")
        # Nothing that the source says about itself is kept.
        picture.info.clear()
        file = io.BytesIO()
        picture.save(file, options["kind"].upper(), **_SAVING[options["kind"]])
    except pictures.ERRORS as exc:
        raise Refused("The picture is damaged, or none of JPEG, PNG, GIF, WebP, AVIF and TIFF.") from exc
    return json.dumps({}).encode() + b"\n" + file.getvalue()


def _open(source: bytes, side: int, options: dict[str, Any]) -> Image.Image:
    image = pictures.open_picture(source, _FORMATS, options["pixels"])
    # Made smaller before anything else copies it. Of a square, the short side decides how much.
    longest = max(image.size) * side // min(image.size) + 1 if options["is_square"] else side
    # A JPEG is decoded at a fraction of its size; twice the side keeps it sharp.
    image.draft("RGB", (2 * longest, 2 * longest))
    image.thumbnail((longest, longest))
    return image


def _draw_page(source: bytes, side: int) -> Image.Image:
    """Draws the first page. Raises Refused."""
    import pypdfium2 as pdfium  # noqa: PLC0415 - as above

    try:
        page = pdfium.PdfDocument(source)[0]
        image: Image.Image = page.render(scale=2 * side / max(page.get_size()), rev_byteorder=True).to_pil()
    except (pdfium.PdfiumError, IndexError, ZeroDivisionError) as exc:
        raise Refused("The PDF is damaged, has no page, or is protected by a password.") from exc
    return image.convert("RGB")
