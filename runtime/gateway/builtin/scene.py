"""What the built-in pictures and films show: slanted bands, and a box that says who made it and of what."""

from collections.abc import Sequence
from colorsys import hls_to_rgb
from dataclasses import dataclass
from hashlib import blake2b

from baobab.runtime.gateway.builtin.lettering import ACROSS, DOWN, lettered, lines

SHADES = 64
BOX, INK = SHADES, SHADES + 1
"""Shades of the bands are 0 to 63, the darkest first; then come the box and the letters in it."""

_LETTERS_A_LINE, _LINES = 26, 9
_MOST_READ = 400


@dataclass(frozen=True, slots=True)
class Scene:
    """All that decides a picture: the same scene looks the same, always. width, height: dots."""

    width: int
    height: int
    said: tuple[str, ...]
    seed: str

    def rows(self) -> list[bytearray]:
        """One byte for each dot, its shade; the top row first."""
        digest = self._digest()
        slope, period = 1 + digest[0] % 3, max(32, self.width * (2 + digest[1] % 3) // 4)
        wave = bytes(_shade(x, period) for x in range(period))
        band = wave * (2 + self.width // period)
        starts = [(y * slope + digest[2]) % period for y in range(self.height)]
        rows = [bytearray(band[start : start + self.width]) for start in starts]
        self._write(rows)
        return rows

    def colours(self) -> list[tuple[int, int, int]]:
        """Red, green and blue of each shade."""
        hue = int.from_bytes(self._digest()[4:6]) / 65536
        bands = [hls_to_rgb(hue, 0.25 + 0.5 * shade / SHADES, 0.55) for shade in range(SHADES)]
        return [_bytes(*colour) for colour in (*bands, hls_to_rgb(hue, 0.1, 0.5), (1.0, 1.0, 1.0))]

    def _write(self, rows: list[bytearray]) -> None:
        scale = max(1, min(self.width // (_LETTERS_A_LINE * ACROSS), self.height // (_LINES * DOWN)))
        across, down = ACROSS * scale, DOWN * scale
        fitting = _wrapped(self.said, max(1, self.width // across - 2), max(1, self.height // down - 1))
        if not fitting:
            return
        width = min(self.width, (max(map(len, fitting)) + 1) * across)
        height = min(self.height, len(fitting) * down + 2 * scale)
        left, top = (self.width - width) // 2, (self.height - height) // 2
        for row in rows[top : top + height]:
            row[left : left + width] = bytes([BOX]) * width
        for number, line in enumerate(fitting):
            for index, dots in enumerate(lettered(line)):
                ink = b"".join(bytes([INK if dot == "#" else BOX]) * scale for dot in dots)
                start = left + across // 2
                room = min(len(ink), left + width - start)
                first = top + 2 * scale + number * down + index * scale
                for row in rows[first : min(first + scale, self.height)]:
                    row[start : start + room] = ink[:room]

    def _digest(self) -> bytes:
        return blake2b("\0".join((self.seed, *self.said)).encode(), digest_size=8).digest()


def _shade(x: int, period: int) -> int:
    """Up and down again, so that the bands have no edges."""
    return (SHADES - 1) * min(x, period - x) * 2 // period


def _wrapped(said: Sequence[str], width: int, most: int) -> list[str]:
    found: list[str] = []
    for text in said:
        found += lines(text[:_MOST_READ], width, most - len(found))
    return found


def _bytes(red: float, green: float, blue: float) -> tuple[int, int, int]:
    return round(red * 255), round(green * 255), round(blue * 255)
