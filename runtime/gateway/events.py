"""Server-sent events of a model's answer, told apart without being read: most are passed on as they came."""

from collections.abc import AsyncIterator

from baobab.runtime.gateway.errors import UpstreamMalformed

LARGEST = 8 * 2**20
DONE = b"data: [DONE]\n\n"


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole events, each with the blank line that ends it. UpstreamMalformed for one without an end."""
    held = b""
    async for chunk in chunks:
        held = held + chunk if held else chunk
        if b"\r" in held:
            held = held.replace(b"\r\n", b"\n")
        while (end := held.find(b"\n\n")) >= 0:
            yield held[: end + 2]
            held = held[end + 2 :]
        if len(held) > LARGEST:
            raise UpstreamMalformed
    if held.strip():
        yield held + b"\n\n"


def data(event: bytes) -> bytes | None:
    """What follows `data:` in an event of one line of data; None for comments and anything else."""
    if event.startswith(b"data:"):
        return event[5:].strip()
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def framed(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"
