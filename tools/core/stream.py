"""Streams: results that come piece by piece, over doors that can pass them on."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stream:
    """A result in pieces. The reader closes it, at its end or before."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str = "text/event-stream"
    subject: str = ""
    """What it tells about, such as a run, where it may stay open for long: then there are bounds of how many are open,
    and whoever reads it is asked for the right to it again and again.
    """
