"""A result that comes piece by piece, where the door can pass it on so."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stream:
    """The pieces are sent as they come. Who reads them closes them, whether at their end or before."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str = "text/event-stream"
    subject: str = ""
    """What it tells about, such as a run, where it may stay open for long: then there are bounds of how many are open,
    and whoever reads it is asked for the right to it again and again.
    """
