"""The schemas of the answers about jobs."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from baobab.tools.core import JsonObject

JobStatus = Literal["waiting", "running", "failed", "cancelled", "completed"]


class JobEntry(TypedDict):
    id: str
    kind: str
    does: Annotated[str, Field(description="What jobs of this kind do; empty if not known here.")]
    status: JobStatus
    region: str
    app_id: str | None
    attempts: int
    most_attempts: Annotated[int | None, Field(description="After which it fails; null if not known here.")]
    created_at: datetime
    due_at: Annotated[datetime, Field(description="When a waiting job is tried next.")]
    finished_at: datetime | None
    error: Annotated[str | None, Field(description="Why the last attempt failed.")]
    cancelled_with: Annotated[
        str | None, Field(description="The tool that ends it; null for what must be done, or has ended.")
    ]


class JobDetail(JobEntry):
    arguments: JsonObject


class OneJob(TypedDict):
    job: JobDetail


class Jobs(TypedDict):
    """Unfinished ones by kind, the next that is due first; failed ones newest first."""

    jobs: list[JobEntry]
    next_cursor: str | None
    silent_regions: Annotated[list[str], Field(description="Regions whose jobs are missing: they do not answer.")]
