"""`baobab/picture`: an image model with which every feature works without a provider's key.

It does not draw the prompt: it writes the prompt's first words, and that it is built in, over bands of colour. The same
request always gives the same pictures. Pillow is loaded with the first picture.
"""

import io
import textwrap
import unicodedata
from collections.abc import Sequence
from colorsys import hls_to_rgb
from hashlib import blake2b

MODEL = "baobab/picture"
LARGEST = 4096
"""The most pixels of a side."""

_MOST_READ = 400
_QUICK = 1


def draw_png(width: int, height: int, texts: Sequence[str], seed: str) -> bytes:
    """Draws the picture as a PNG file. texts: each begins a line."""
    from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

    digest = blake2b("\0".join((seed, *texts)).encode("utf-8", "replace"), digest_size=8).digest()
    hue = int.from_bytes(digest[:2]) / 65536
    picture = Image.new("P", (width, height), 0)
    colours = (_encode_colour(hue, 0.7), _encode_colour(hue, 0.45), _encode_colour(hue, 0.1), b"\xff\xff\xff")
    picture.putpalette(b"".join(colours))
    canvas = ImageDraw.Draw(picture)
    band = 16 + digest[2] % 64
    for left in range(-height, width, 2 * band):
        canvas.polygon([(left, 0), (left + band, 0), (left + band + height, height), (left + height, height)], fill=1)
    size = max(6, min(width // 18, height // 12))
    font = ImageFont.load_default(size)
    across = max(4, int(width / (size * 0.6)) - 2)
    wrapped_lines = [line for text in texts for line in textwrap.wrap(_strip_accents(text[:_MOST_READ]), across)]
    lines = wrapped_lines[: max(1, height // (size + 4) - 1)]
    text = "\n".join(lines)
    west, north, east, south = canvas.multiline_textbbox((width / 2, height / 2), text, font=font, anchor="mm")
    canvas.rectangle((west - size / 2, north - size / 2, east + size / 2, south + size / 2), fill=2)
    canvas.multiline_text((width / 2, height / 2), text, fill=3, font=font, anchor="mm")
    notes = PngImagePlugin.PngInfo()
    notes.add_text("Software", "baobab/picture, the built-in model")
    notes.add_text("Description", " ".join(lines))
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=_QUICK, pnginfo=notes)
    return file.getvalue()


def _strip_accents(text: str) -> str:
    """Removes accents, which Pillow's own font does not have."""
    return "".join(part for part in unicodedata.normalize("NFKD", text) if not unicodedata.combining(part))


def _encode_colour(hue: float, lightness: float) -> bytes:
    return bytes(round(part * 255) for part in hls_to_rgb(hue, lightness, 0.55))
