"""`baobab/picture`: an image model that makes every feature run without a provider's key.

It draws no prompt: it writes its first words, and that it is built in, over bands of colour. The same request has the
same pictures, always. A picture is a PNG of 8 bits with a palette.
"""

import zlib
from struct import pack

from baobab.runtime.gateway.builtin.scene import Scene

MODEL = "baobab/picture"
LARGEST = 4096
"""Dots of a side."""

_QUICK = 1


def png(scene: Scene) -> bytes:
    """The picture as a file."""
    head = pack(">IIBBBBB", scene.width, scene.height, 8, 3, 0, 0, 0)
    palette = bytes(part for colour in scene.colours() for part in colour)
    # Each row is led by its filter: none.
    raw = b"".join(b"\0" + row for row in scene.rows())
    chunks = (
        (b"IHDR", head),
        (b"PLTE", palette),
        (b"tEXt", b"Software\0baobab/picture, the built-in model"),
        (b"IDAT", zlib.compress(raw, _QUICK)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data))
