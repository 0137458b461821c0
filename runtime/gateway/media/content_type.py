"""Detects a file's type by its first bytes, because what a server says of it proves nothing."""

DETECTION_BYTES = 16
"""The number of bytes that suffice to detect the type."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def detect_content_type(start: bytes) -> str | None:
    """Returns image/png, image/jpeg, image/webp, image/gif, video/mp4, or None for anything else."""
    for beginning, content_type in _BEGINNINGS:
        if start.startswith(beginning):
            return content_type
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return "video/mp4" if start[4:8] == b"ftyp" and start[8:12] not in _STILL else None


# Image formats in the same container as MP4; few browsers show them.
_STILL = frozenset((b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1"))
