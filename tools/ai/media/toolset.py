"""The toolset of images and videos."""

from baobab.runtime.gateway.errors import (
    ModelNotFound,
    RequestRefused,
    UpstreamBusy,
    UpstreamFailed,
    WrongEndpoint,
)
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
from baobab.tools.ai.media.tables import generation_jobs
from baobab.tools.core.app_data import AppTable
from baobab.tools.core.credits import BudgetExhausted, CreditsExhausted
from baobab.tools.core.errors import AppMigrating, RateLimited, Unavailable
from baobab.tools.core.toolset import Toolset

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
)
