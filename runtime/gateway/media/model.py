"""The requests to image and video models, and the states of their jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MediaStatus = Literal["pending", "in_progress", "completed", "failed", "cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class AcceptedFields:
    """The fields that a model takes beside `model` and `prompt`: those of the request and of `provider`, sorted."""

    top_level: tuple[str, ...]
    provider: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MediaRequest:
    """A request. parameters: the accepted fields other than model, prompt and provider, with the schema's types."""

    prompt: str
    parameters: Mapping[str, Any]
    provider: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rendering:
    """One file of a finished job.

    content_type: image/png, image/jpeg, image/webp, image/gif or video/mp4, as detected from the bytes.
    source: the bytes themselves, or a handle that `Media.stream_content` reads.
    """

    content_type: str
    source: bytes | str


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a job.

    handle: lets `Media.check_job` check the job from any process; "" if the status is final. error: the message of a
    failure, without keys, hosts or names of accounts. units: the images made, or the seconds of video. cost:
    nano-dollars without markup if the upstream reports its usage; None if the price is by `units`.
    """

    status: MediaStatus
    handle: str
    renderings: tuple[Rendering, ...] = ()
    error: str | None = None
    units: int = 0
    cost: int | None = None
