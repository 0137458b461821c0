"""A film as an MP4 file: one track of H.264, its index in front so that it plays while it still comes."""

from collections.abc import Sequence
from struct import pack

from baobab.runtime.gateway.builtin import h264

_UNITY = pack(">9I", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
_MILLISECONDS = 1000


def film(width: int, height: int, rate: int, parameters: tuple[bytes, bytes], frames: Sequence[bytes]) -> bytes:
    """The file. rate: frames a second. parameters: of the sequence and of its pictures. The first frame is whole."""
    samples = [pack(">I", len(frame)) + frame for frame in frames]
    kind = _box(b"ftyp", b"isom", pack(">I", 512), b"isomiso2avc1mp41")
    # Where the samples begin depends on how long the index is, which does not depend on where they begin.
    index = _index(width, height, rate, parameters, [len(sample) for sample in samples], 0)
    index = _index(width, height, rate, parameters, [len(sample) for sample in samples], len(kind) + len(index) + 8)
    return kind + index + _box(b"mdat", *samples)


def _index(
    width: int, height: int, rate: int, parameters: tuple[bytes, bytes], sizes: Sequence[int], start: int
) -> bytes:
    lasts = len(sizes) * _MILLISECONDS // rate
    return _box(
        b"moov",
        _full(
            b"mvhd",
            0,
            pack(">4I", 0, 0, _MILLISECONDS, lasts),
            pack(">IH10x", 0x10000, 0x100),
            _UNITY,
            bytes(24),
            pack(">I", 2),
        ),
        _box(
            b"trak",
            _full(
                b"tkhd", 3, pack(">5I", 0, 0, 1, 0, lasts), bytes(16), _UNITY, pack(">II", width << 16, height << 16)
            ),
            _box(
                b"mdia",
                _full(b"mdhd", 0, pack(">4IHH", 0, 0, rate, len(sizes), 0x55C4, 0)),
                _full(b"hdlr", 0, bytes(4), b"vide", bytes(12), b"Baobab\0"),
                _box(
                    b"minf",
                    _full(b"vmhd", 1, bytes(8)),
                    _box(b"dinf", _full(b"dref", 0, pack(">I", 1), _full(b"url ", 1))),
                    _samples(width, height, parameters, sizes, start),
                ),
            ),
        ),
    )


def _samples(width: int, height: int, parameters: tuple[bytes, bytes], sizes: Sequence[int], start: int) -> bytes:
    return _box(
        b"stbl",
        _full(b"stsd", 0, pack(">I", 1), _described(width, height, parameters)),
        _full(b"stts", 0, pack(">3I", 1, len(sizes), 1)),
        _full(b"stss", 0, pack(">2I", 1, 1)),
        _full(b"stsc", 0, pack(">4I", 1, 1, len(sizes), 1)),
        _full(b"stsz", 0, pack(">2I", 0, len(sizes)), pack(f">{len(sizes)}I", *sizes)),
        _full(b"stco", 0, pack(">2I", 1, start)),
    )


def _described(width: int, height: int, parameters: tuple[bytes, bytes]) -> bytes:
    """How to decode the samples: sizes before each unit are four bytes long."""
    sequence, picture = parameters
    decoder = _box(
        b"avcC",
        bytes([1, h264.PROFILE, h264.COMPATIBLE, h264.LEVEL, 0xFF, 0xE1]),
        pack(">H", len(sequence)) + sequence,
        bytes([1]),
        pack(">H", len(picture)) + picture,
    )
    frame = pack(">HH", width, height) + pack(">IIIH", 0x480000, 0x480000, 0, 1) + bytes(32) + pack(">Hh", 24, -1)
    return _box(b"avc1", bytes(6), pack(">H", 1), bytes(16), frame, decoder)


def _full(kind: bytes, flags: int, *parts: bytes) -> bytes:
    return _box(kind, pack(">I", flags), *parts)


def _box(kind: bytes, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return pack(">I", len(content) + 8) + kind + content
