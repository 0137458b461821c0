"""The toolset of images and videos."""

from baobab.runtime.gateway.errors import (
    ModelNotFound,
    RequestRefused,
    UpstreamBusy,
    UpstreamFailed,
    WrongEndpoint,
)
from baobab.tools.ai.clones import MEDIA
from baobab.tools.ai.errors import ModelNotAllowed
from baobab.tools.ai.media.errors import (
    MEDIA_ENVELOPE,
    BadReference,
    ContentUnavailable,
    IndexOutOfRange,
    InvalidIndex,
    JobNotCompleted,
    JobNotFound,
    NotSubmitter,
    UnsupportedParameter,
)
from baobab.tools.ai.media.schemas import GenerationJob, Submitted
from baobab.tools.ai.media.tables import generation_jobs
from baobab.tools.core import AppMigrating, AppTable, RateLimited, Toolset, Unavailable
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted
from baobab.tools.core.waiting import Waits

SUBMITTING = (
    ModelNotFound,
    ModelNotAllowed,
    WrongEndpoint,
    UnsupportedParameter,
    BadReference,
    RequestRefused,
    CreditsExhausted,
    BudgetExhausted,
    UpstreamFailed,
    UpstreamBusy,
    AppMigrating,
)
POLLING = (JobNotFound, AppMigrating)
DOWNLOADING = (*POLLING, NotSubmitter, InvalidIndex, IndexOutOfRange, JobNotCompleted, ContentUnavailable)

media = Toolset(
    "media",
    "An app's images and videos: submit, poll and download them.",
    base="/v1/{app_id}",
    envelope=MEDIA_ENVELOPE,
    raises=(RateLimited, Unavailable),
    # The durable jobs stay behind; in the app's new region the sweep resumes unfinished ones (jobs.py).
    app_tables=(AppTable(generation_jobs, copied_as={"worker": None}),),
    clones=MEDIA,
)


def _is_over(job: GenerationJob) -> bool:
    return job["status"] not in ("pending", "processing", "in_progress", "queued")


def _add_end(result: Submitted, job: GenerationJob) -> Submitted:
    return {**result, "status": job["status"], "content_urls": job["content_urls"], "error": job["error"]}


def wait_for_job(reads: str) -> Waits:
    """Waits for the end of the job that a request has started. reads: the tool that reads such jobs."""
    return Waits(_is_over, reads, lambda result: {"job_id": result["job_id"]}, _add_end)


UNTIL_OVER = Waits(_is_over)
