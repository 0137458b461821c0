"""`baobab/film`: a video model that makes every feature run without a provider's key.

A film shows what the built-in pictures do, and a bar that grows from left to right while it runs. The same request has
the same film, always; it has no sound.
"""

from collections.abc import Iterator

from baobab.runtime.gateway.builtin import h264, mp4
from baobab.runtime.gateway.builtin.scene import INK, Scene

MODEL = "baobab/film"
LONGEST = 10
"""Seconds."""

_RATE = 12  # frames a second
_SIDE = 16


def film(scene: Scene, seconds: int) -> bytes:
    """The film as an MP4 file. Both sides of the scene are even."""
    luma, blue, red = _limited(scene.colours())
    across, down = -(-scene.width // _SIDE), -(-scene.height // _SIDE)
    tint = bytes([blue]) * 64 + bytes([red]) * 64
    blocks = [block.translate(luma) + tint for block in _blocks(scene.rows(), across, down)]
    full = bytes([INK] * 256).translate(luma) + tint
    # The last row of blocks that is shown whole.
    bar = (scene.height // _SIDE - 1) * across
    count = seconds * _RATE
    frames = [h264.key_frame(blocks)]
    grown = 0
    for number in range(1, count):
        grows = range(grown, across * (number + 1) // count)
        frames.append(h264.change(number, {bar + place: full for place in grows}, len(blocks)))
        grown += len(grows)
    parameters = (h264.sequence(scene.width, scene.height), h264.picture())
    return mp4.film(scene.width, scene.height, _RATE, parameters, frames)


def _blocks(rows: list[bytearray], across: int, down: int) -> Iterator[bytes]:
    """The shades of each block in reading order; the edges go on beyond the scene, unseen."""
    width, height = across * _SIDE, down * _SIDE
    wide = [bytes(row.ljust(width, row[-1:])) for row in rows]
    wide += wide[-1:] * (height - len(wide))
    for top in range(0, height, _SIDE):
        part = wide[top : top + _SIDE]
        for left in range(0, width, _SIDE):
            yield b"".join(row[left : left + _SIDE] for row in part)


def _limited(colours: list[tuple[int, int, int]]) -> tuple[bytes, int, int]:
    """Luma of each shade and the two chromas of them all, by BT.601; the middle shade gives the tint."""
    shades = [round(16 + (65.738 * red + 129.057 * green + 25.064 * blue) / 256) for red, green, blue in colours]
    red, green, blue = colours[len(colours) // 2]
    bluish = round(128 + (-37.945 * red - 74.494 * green + 112.439 * blue) / 256)
    reddish = round(128 + (112.439 * red - 94.154 * green - 18.285 * blue) / 256)
    return bytes(shades).ljust(256, b"\x10"), bluish, reddish
