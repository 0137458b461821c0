"""Makes small copies of strangers' pictures, and of the first pages of their PDFs."""

import json
from typing import IO, Literal

from baobab.runtime.documents.child_process import ChildFailed, ChildTookTooLong, run_child
from baobab.runtime.documents.document import UnreadableDocument

PictureKind = Literal["webp", "avif", "jpeg", "png"]
MOST_SOURCE = 20 * 2**20
"""The most bytes of a file that can have small copies."""
MOST_DRAWN = 4 * 2**20
"""The most bytes of a small copy."""
_MOST_PIXELS = 50_000_000
_SECONDS = 10
_MEMORY = 640 * 2**20


async def draw_picture(
    source: IO[bytes], side: int, kind: PictureKind, *, is_square: bool = False, is_pdf: bool = False
) -> bytes:
    """Returns a copy of the picture with sides of at most so many pixels. It never becomes larger than it is.

    source: an open file, which is read from its present position. is_square: whether its middle is cut out as a square.
    Raises UnreadableDocument.
    """
    options = {
        "side": side,
        "kind": kind,
        "is_square": is_square,
        "is_pdf": is_pdf,
        "pixels": _MOST_PIXELS,
        "source_bytes": MOST_SOURCE,
        "memory_bytes": _MEMORY,
        "seconds": _SECONDS,
    }
    try:
        answer = await run_child("thumbnail", options, source, seconds=_SECONDS, most=MOST_DRAWN)
    except (ChildTookTooLong, ChildFailed) as exc:
        raise UnreadableDocument("The picture is damaged, or takes too much to draw.") from exc
    line, _, picture = answer.partition(b"\n")
    try:
        refusal_reason = json.loads(line).get("refused")
    except (ValueError, AttributeError) as exc:
        raise UnreadableDocument("The picture is damaged.") from exc
    if refusal_reason is not None or not _is_of_kind(picture, kind):
        raise UnreadableDocument(str(refusal_reason or "The picture is damaged.")[:500])
    return picture


def _is_of_kind(picture: bytes, kind: PictureKind) -> bool:
    """Returns whether the bytes begin as they should. A picture may have taken over the child, so its answer is
    untrusted.
    """
    if kind == "webp":
        return picture[:4] == b"RIFF" and picture[8:12] == b"WEBP"
    if kind == "avif":
        return picture[4:12] == b"ftypavif"
    return picture.startswith(b"\xff\xd8\xff" if kind == "jpeg" else b"\x89PNG\r\n\x1a\n")
