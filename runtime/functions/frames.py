"""The frames that a server and a process of a function exchange over a pipe."""

import struct
from collections.abc import Iterator
from enum import IntEnum

WINDOW = 2**18
"""How many bytes of a stream may be on their way: what the sender has without any credit from the receiver."""

PIECE = 2**16
CALL_BIT = 0x80000000
"""Set in the stream of a host call, whose number the process chooses."""

_HEAD = struct.Struct("<IBI")
_CREDIT = struct.Struct("<I")


class Kind(IntEnum):
    """What a frame says. LOAD to START come from the server; LOADED, LOG, CALL and DONE from the process."""

    LOAD = 1
    LOADED = 2
    START = 3
    HEAD = 4
    DATA = 5
    END = 6
    CANCEL = 7
    CREDIT = 8
    ERROR = 9
    LOG = 10
    CALL = 11
    ANSWER = 12
    DONE = 13


class BadFrame(Exception):
    """The process sent what the runner never sends: something else wrote to the pipe."""


def pack_frame(kind: Kind, stream: int, payload: bytes = b"") -> bytes:
    """Returns a frame's bytes."""
    return _HEAD.pack(len(payload), kind, stream) + payload


def pack_credit(stream: int, size: int) -> bytes:
    """Returns the frame that allows the other side to send as many bytes more."""
    return pack_frame(Kind.CREDIT, stream, _CREDIT.pack(size))


def read_credit(payload: bytes) -> int:
    """Returns how many bytes a CREDIT frame allows. Raises BadFrame."""
    if len(payload) != _CREDIT.size:
        raise BadFrame
    size: int = _CREDIT.unpack(payload)[0]
    return size


class FrameParser:
    """Cuts what comes from a process into frames."""

    def __init__(self, most: int) -> None:
        """most: the bytes that a payload may have."""
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, int, bytes]]:
        """Yields the frames that are whole by now: kind, stream, payload. Raises BadFrame."""
        self._buffer += data
        at = 0
        try:
            while len(self._buffer) - at >= _HEAD.size:
                size, kind, stream = _HEAD.unpack_from(self._buffer, at)
                if size > self._most or not Kind.LOAD <= kind <= Kind.DONE:
                    raise BadFrame
                if len(self._buffer) - at < _HEAD.size + size:
                    break
                begin = at + _HEAD.size
                at = begin + size
                yield Kind(kind), stream, bytes(self._buffer[begin:at])
        finally:
            del self._buffer[:at]
