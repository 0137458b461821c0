"""Makes small copies of strangers' pictures."""

import json
from typing import IO

from baobab.runtime.documents.child_process import ChildFailed, ChildTookTooLong, run_child
from baobab.runtime.documents.document import UnreadableDocument

MEDIA_TYPE = "image/webp"
MOST_SOURCE = 20 * 2**20
"""The most bytes of a picture that can have a thumbnail."""
_SIDE = 320
_MOST_PIXELS = 50_000_000
_SECONDS = 10
_MEMORY = 640 * 2**20
_MOST_ANSWER = 2**20


async def draw_thumbnail(source: IO[bytes]) -> bytes:
    """Returns the picture in WebP, with sides of at most 320 pixels.

    source: an open file, which is read from its present position. Raises UnreadableDocument.
    """
    options = {
        "side": _SIDE,
        "pixels": _MOST_PIXELS,
        "source_bytes": MOST_SOURCE,
        "memory_bytes": _MEMORY,
        "seconds": _SECONDS,
    }
    try:
        answer = await run_child("thumbnail", options, source, seconds=_SECONDS, most=_MOST_ANSWER)
    except (ChildTookTooLong, ChildFailed) as exc:
        raise UnreadableDocument("The picture is damaged, or takes too much to draw.") from exc
    line, _, picture = answer.partition(b"\n")
    try:
        refusal_reason = json.loads(line).get("refused")
    except (ValueError, AttributeError) as exc:
        raise UnreadableDocument("The picture is damaged.") from exc
    if refusal_reason is not None or not _is_webp(picture):
        raise UnreadableDocument(str(refusal_reason or "The picture is damaged.")[:500])
    return picture


def _is_webp(picture: bytes) -> bool:
    """Returns whether the bytes begin like WebP. A picture may have taken over the child, so its answer is
    untrusted.
    """
    return picture[:4] == b"RIFF" and picture[8:12] == b"WEBP"
