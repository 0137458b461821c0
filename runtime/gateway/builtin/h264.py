"""H.264 as little as a film needs: a first frame of uncompressed blocks, then frames that change some of them.

Baseline profile, levels as of ITU-T H.264 (the numbers of clauses are those of its edition 14). Every browser plays it.
A block is 16 by 16 dots: 256 bytes of luma, then 64 each of the two chromas, all in limited range (16 to 235).
"""

import re
from collections.abc import Mapping, Sequence

PROFILE, COMPATIBLE, LEVEL = 66, 0xC0, 40
"""Constrained baseline, 4: frames of up to 8192 blocks, which holds 1920 by 1080."""

_PARAMETERS, _PICTURE_PARAMETERS, _KEY, _CHANGE = 0x67, 0x68, 0x65, 0x41
_I_SLICES, _P_SLICES = 7, 5
_UNCOMPRESSED = 25
_BEFORE_INTRA = 5  # in a slice of changes the kinds of uncompressed and other intra blocks begin after five of its own


class _Bits:
    """Bits in the order in which they are sent."""

    def __init__(self) -> None:
        self._whole = bytearray()
        self._rest = ""

    def fixed(self, value: int, width: int) -> None:
        self._rest += f"{value:0{width}b}"

    def counted(self, *values: int) -> None:
        """ue(v), clause 9.1: as many zeros as the number has bits after its first, then the number."""
        for value in values:
            digits = f"{value + 1:b}"
            self._rest += "0" * (len(digits) - 1) + digits

    def block(self, samples: bytes) -> None:
        """Whole bytes, on the next boundary of one."""
        self._align()
        self._whole += samples

    def ended(self) -> bytes:
        """All of it with the trailing bits of clause 7.3.2.11."""
        self._rest += "1"
        self._align()
        return bytes(self._whole)

    def _align(self) -> None:
        self._rest += "0" * (-len(self._rest) % 8)
        self._whole += int(self._rest or "0", 2).to_bytes(len(self._rest) // 8)
        self._rest = ""


def sequence(width: int, height: int) -> bytes:
    """The sequence parameter set: dots of a frame; odd ones cannot be had."""
    across, down = -(-width // 16), -(-height // 16)
    bits = _Bits()
    for value in (PROFILE, COMPATIBLE, LEVEL):
        bits.fixed(value, 8)
    # Its id; frame numbers of 4 bits; frames shown in the order in which they come; one frame to refer to.
    bits.counted(0, 0, 2, 1)
    bits.fixed(0, 1)
    bits.counted(across - 1, down - 1)
    bits.fixed(0b11, 2)
    crop = ((across * 16 - width) // 2, (down * 16 - height) // 2)
    bits.fixed(any(crop), 1)
    if any(crop):
        bits.counted(0, crop[0], 0, crop[1])
    bits.fixed(0, 1)
    return _unit(_PARAMETERS, bits)


def picture() -> bytes:
    """The picture parameter set."""
    bits = _Bits()
    # Two ids; no arithmetic coding, order as it is; one group of slices; one frame to refer to, each way.
    bits.counted(0, 0)
    bits.fixed(0, 2)
    bits.counted(0, 0, 0)
    bits.fixed(0, 3)
    # Quantisers as they are, three times "no change"; each slice says itself that nothing is smoothed.
    bits.counted(0, 0, 0)
    bits.fixed(0b100, 3)
    return _unit(_PICTURE_PARAMETERS, bits)


def key_frame(blocks: Sequence[bytes]) -> bytes:
    """A whole frame, of all its blocks in reading order."""
    bits = _Bits()
    bits.counted(0, _I_SLICES, 0)
    bits.fixed(0, 4)
    bits.counted(0)
    bits.fixed(0, 2)
    _quality(bits)
    for block in blocks:
        bits.counted(_UNCOMPRESSED)
        bits.block(block)
    return _unit(_KEY, bits)


def change(number: int, blocks: Mapping[int, bytes], count: int) -> bytes:
    """The frame before with other blocks at some places. number: of the frame, from 1. count: blocks of a frame."""
    bits = _Bits()
    bits.counted(0, _P_SLICES, 0)
    bits.fixed(number % 16, 4)
    bits.fixed(0, 3)
    _quality(bits)
    at = 0
    for place in sorted(blocks):
        bits.counted(place - at, _BEFORE_INTRA + _UNCOMPRESSED)
        bits.block(blocks[place])
        at = place + 1
    if at < count:
        bits.counted(count - at)
    return _unit(_CHANGE, bits)


def _quality(bits: _Bits) -> None:
    """The quantiser as it is, and nothing is smoothed at the edges of blocks."""
    bits.counted(0, 1)


def _unit(kind: int, bits: _Bits) -> bytes:
    """A unit of the stream. Three bytes that would look like the start of another are kept apart, clause 7.4.1."""
    return bytes([kind]) + re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", bits.ended())
