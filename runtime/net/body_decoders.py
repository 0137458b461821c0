"""Decoders of the bodies that services answer, by their Content-Encoding, with a bound for each decoded piece."""

import zlib
from collections.abc import Iterator

from baobab.runtime.net.addresses import EgressUnavailable

PIECE_BYTES = 64 * 1024
"""The largest decoded piece, in bytes."""


class IdentityDecoder:
    """Returns a body that is not compressed, as it arrives."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def finish(self) -> None:
        """Does nothing: the transfer itself fails where the body is incomplete."""


class InflateDecoder:
    """Decompresses in bounded steps: aiohttp's own decompression yields whatever one read expands to."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inflate = zlib.decompressobj(wbits)
        self._has_started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        if not self._has_started and self._wbits == zlib.MAX_WBITS and not _is_zlib(data):
            self._inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        self._has_started = True
        while data:
            if self._inflate.eof:
                # A body may consist of several gzip members.
                self._inflate = zlib.decompressobj(self._wbits)
            yield from self._inflate_member(data)
            data = self._inflate.unused_data

    def _inflate_member(self, data: bytes) -> Iterator[bytes]:
        while True:
            try:
                piece = self._inflate.decompress(data, PIECE_BYTES)
            except zlib.error as exc:
                raise EgressUnavailable("The compressed answer of the service is damaged.") from exc
            if piece:
                yield piece
            data = self._inflate.unconsumed_tail
            if self._inflate.eof or (not data and len(piece) < PIECE_BYTES):
                return

    def finish(self) -> None:
        if self._has_started and not self._inflate.eof:
            raise EgressUnavailable("The compressed answer of the service is incomplete.")


def _is_zlib(data: bytes) -> bool:
    """Returns whether a body begins as zlib's format does, which `deflate` means. Some servers send the bare stream
    (RFC 9110, 8.4.1.2).
    """
    return data[0] & 0x0F == zlib.DEFLATED and (len(data) == 1 or (data[0] << 8 | data[1]) % 31 == 0)


def build_decoder(encoding: str) -> IdentityDecoder | InflateDecoder:
    """Returns the decoder for a Content-Encoding. Raises EgressUnavailable for one that is not supported."""
    match encoding.strip().lower():
        case "" | "identity":
            return IdentityDecoder()
        case "gzip" | "x-gzip":
            return InflateDecoder(zlib.MAX_WBITS | 16)
        case "deflate":
            return InflateDecoder(zlib.MAX_WBITS)
        case _:
            raise EgressUnavailable("The service compressed its answer in a way that is not supported.")
