"""Server-sent events of a model's answer, told apart without being read: most are passed on as they came."""

from collections.abc import AsyncIterator

from baobab.runtime.gateway.errors import UpstreamMalformed

LARGEST = 8 * 2**20
DONE = b"data: [DONE]\n\n"
KEPT_ALIVE = b":\n\n"
"""In the place of an event without data: what a provider remarks beside its answer is not passed on."""


async def events(chunks: AsyncIterator[bytes], largest: int = LARGEST) -> AsyncIterator[bytes]:
    """Whole events, each with the blank line that ends it. UpstreamMalformed for one of more bytes than `largest`."""
    held = bytearray()
    async for chunk in chunks:
        # What is held is never gone through again: it may come in a million pieces.
        if held.endswith(b"\r") and chunk.startswith(b"\n"):
            del held[-1]
        start = max(len(held) - 1, 0)
        held += chunk.replace(b"\r\n", b"\n")
        while (end := held.find(b"\n\n", start)) >= 0:
            if end > largest:
                raise UpstreamMalformed
            yield bytes(held[: end + 2])
            del held[: end + 2]
            start = 0
        if len(held) > largest:
            raise UpstreamMalformed
    if held.strip():
        yield bytes(held) + b"\n\n"


def data(event: bytes) -> bytes | None:
    """What follows `data:` in an event of one line of data; None for comments and anything else."""
    if event.startswith(b"data:"):
        return event[5:].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def framed(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"
