"""What a file is, told by its first bytes: what others say of it proves nothing."""

DETECTION_BYTES = 16
"""Bytes that are enough to tell."""

_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def detect_content_type(start: bytes) -> str | None:
    """image/png, image/jpeg, image/webp, image/gif, video/mp4, or None for anything else."""
    for beginning, content_type in _BEGINNINGS:
        if start.startswith(beginning):
            return content_type
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return "video/mp4" if start[4:8] == b"ftyp" and start[8:12] not in _STILL else None


# Pictures come in boxes of the same kind; few browsers show these.
_STILL = frozenset((b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1"))
