"""What the tools of the system answer with."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict


class FoundSection(TypedDict):
    name: str
    section: str
    title: str
    excerpt: str


Choice = Annotated[
    Literal["run", "drop"] | None,
    Field(
        description="What becomes of the jobs from before the copy was made, which the original may have done: `run` "
        "does them here, too; `drop` leaves undone those of `waiting` with `dropped`, and does the rest. Needed if "
        "there are any."
    ),
]


class WaitingKind(TypedDict):
    """The jobs of one kind that wait in a copy from before it was made."""

    kind: str
    does: str
    jobs: int
    oldest: datetime
    dropped: Annotated[bool, Field(description="Whether `drop` leaves them undone. The others must be done.")]


class Installation(TypedDict):
    """Whether an installation lives or is a copy."""

    state: Literal["live", "copy"]
    since: Annotated[datetime | None, Field(description="Since when it is a copy.")]
    why: Annotated[str | None, Field(description="How that is known.")]
    waiting: Annotated[list[WaitingKind], Field(description="The jobs that wait from before, the most first.")]
