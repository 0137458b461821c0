"""The types that requests for images and videos share."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, WithJsonSchema, with_config
from typing_extensions import TypedDict

from baobab.tools.ai.media.references import LONGEST_URL, MOST_IMAGES
from baobab.tools.core import Text


# Unknown fields are refused, not ignored.
@with_config(ConfigDict(extra="forbid"))
class ImageReference(TypedDict):
    url: Annotated[str, Text(LONGEST_URL)]


Prompt = Annotated[str, Text(32_000, min_length=1), Field(description="What the image or video shows.")]
ImageUrl = Annotated[str, Text(LONGEST_URL)]
ImageUrls = Annotated[list[ImageUrl | ImageReference], Field(max_length=MOST_IMAGES)]
Word = Annotated[str, Text(40, min_length=1)]
Seed = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
JobId = Annotated[str, Text(100), Field(description="The job's id.", examples=["0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"])]
Index = Annotated[int | Annotated[str, Text(100)], Field(description="The number of the file, from 0.")]
Bytes = Annotated[Any, WithJsonSchema({"type": "string", "format": "binary"})]
"""A file; over MCP, a text that says where the file is."""


class GenerationJob(TypedDict):
    job_id: str
    status: str
    model: str
    polling_url: str
    content_urls: list[str]
    error: str | None
    created_at: datetime
    charged_credits_usd: float | None
    settled_at: datetime | None


class Submitted(TypedDict):
    job_id: str
    status: Annotated[str, Field(description="`pending`, or later with `wait_seconds`.")]
    polling_url: str
    content_urls: NotRequired[Annotated[list[str], Field(description="With `wait_seconds`: where the files are.")]]
    error: NotRequired[Annotated[str | None, Field(description="With `wait_seconds`: why it failed.")]]


@with_config(ConfigDict(extra="forbid"))
class FrameImage(TypedDict):
    url: ImageUrl
    frame: Literal["first", "last"]


@with_config(ConfigDict(extra="forbid"))
class FrameReference(TypedDict):
    """A frame in the form of a message part."""

    type: Literal["image_url"]
    image_url: ImageReference
    frame_type: Literal["first_frame", "last_frame", "first", "last"]
