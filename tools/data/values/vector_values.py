"""Reads vectors from JSON, and packs them into the bytes in which SQLite stores them: 32-bit floats, little-endian."""

import math
import struct

_SMALLEST_NORMAL = 2**-126


def round_to_floats(values: list[float]) -> list[float]:
    """Returns the numbers as 32-bit floats can hold them, as Postgres rounds them. Raises ValueError if one is not
    finite.
    """
    numbers = [struct.unpack("<f", struct.pack("<f", value))[0] for value in values]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("it is not finite")
    return numbers


def pack_vector(numbers: list[float]) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def unpack_vector(packed_floats: bytes) -> list[float]:
    return [_shorten(number) for number in struct.unpack(f"<{len(packed_floats) // 4}f", packed_floats)]


def _shorten(number: float) -> float:
    """Returns the number with the fewest digits that is the same in 32 bits, as Postgres writes it."""
    packed_float = struct.pack("<f", number)
    # The smallest numbers of all have fewer digits.
    digit_counts = (6, 7, 8) if abs(number) >= _SMALLEST_NORMAL else range(1, 9)
    candidates = (float(f"{number:.{digits}g}") for digits in digit_counts)
    return next((short for short in candidates if struct.pack("<f", short) == packed_float), float(f"{number:.9g}"))
