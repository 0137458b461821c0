"""Splits a model's answer into server-sent events without parsing them; most are passed on unchanged."""

from collections.abc import AsyncIterator

from baobab.runtime.gateway.errors import UpstreamMalformed

LARGEST = 8 * 2**20
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b":\n\n"
"""Replaces an event without data: a provider's comments are not passed on."""


async def split_events(chunks: AsyncIterator[bytes], largest: int = LARGEST) -> AsyncIterator[bytes]:
    """Yields whole events, each with its final blank line. Raises UpstreamMalformed for more bytes than `largest`."""
    buffer = bytearray()
    async for chunk in chunks:
        # The buffer is never scanned twice, because an event may arrive in a million pieces.
        if buffer.endswith(b"\r") and chunk.startswith(b"\n"):
            del buffer[-1]
        start = max(len(buffer) - 1, 0)
        buffer += chunk.replace(b"\r\n", b"\n")
        while (end := buffer.find(b"\n\n", start)) >= 0:
            if end > largest:
                raise UpstreamMalformed
            yield bytes(buffer[: end + 2])
            del buffer[: end + 2]
            start = 0
        if len(buffer) > largest:
            raise UpstreamMalformed
    if buffer.strip():
        yield bytes(buffer) + b"\n\n"


def event_data(event: bytes) -> bytes | None:
    """Returns the data of an event; None for an event without data, such as a comment."""
    if event.startswith(b"data:"):
        return event[5:].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def encode_event(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"
