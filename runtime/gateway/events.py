"""Server-sent events of a model's answer, told apart without being read: most are passed on as they came."""

from collections.abc import AsyncIterator

from baobab.runtime.gateway.errors import UpstreamMalformed

LARGEST = 8 * 2**20
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b":\n\n"
"""In the place of an event without data: what a provider remarks beside its answer is not passed on."""


async def split_events(chunks: AsyncIterator[bytes], largest: int = LARGEST) -> AsyncIterator[bytes]:
    """Whole events, each with the blank line that ends it. UpstreamMalformed for one of more bytes than `largest`."""
    buffer = bytearray()
    async for chunk in chunks:
        # What is held is never gone through again: it may come in a million pieces.
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
    """What follows `data:` in an event of one line of data; None for comments and anything else."""
    if event.startswith(b"data:"):
        return event[5:].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def encode_event(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"
