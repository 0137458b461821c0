"""What an image or video model is asked for, and what comes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MediaStatus = Literal["pending", "in_progress", "completed", "failed", "cancelled", "expired"]


@dataclass(frozen=True, slots=True)
class AcceptedFields:
    """What a model takes beside `model` and `prompt`: names of the request's fields and keys of `provider`, sorted."""

    top_level: tuple[str, ...]
    provider: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MediaRequest:
    """parameters: accepted fields other than model, prompt and provider, of the types that the schema says."""

    prompt: str
    parameters: Mapping[str, Any]
    provider: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rendering:
    """One file of a finished job.

    content_type: image/png, image/jpeg, image/webp, image/gif or video/mp4, as the bytes say, not the upstream.
    source: the bytes themselves, or an address or handle that `Media.content` reads.
    """

    content_type: str
    source: bytes | str


@dataclass(frozen=True, slots=True)
class Progress:
    """handle: what `Media.look` needs to ask again, from any process; "" where the status is the last one.

    error: what to tell of a failure, without keys, hosts or names of accounts. units: images made, or seconds rendered.
    cost: nano-dollars without markup where the upstream says what it used, None where the price counts `units`.
    """

    status: MediaStatus
    handle: str
    renderings: tuple[Rendering, ...] = ()
    error: str | None = None
    units: int = 0
    cost: int | None = None
