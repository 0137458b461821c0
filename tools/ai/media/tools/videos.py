"""The video tools."""

from typing import Annotated, Any

from pydantic import Field

from baobab.tools.ai.media import content, job_status, submission
from baobab.tools.ai.media.schemas import (
    Bytes,
    FrameImage,
    FrameReference,
    GenerationJob,
    ImageUrls,
    Index,
    JobId,
    Prompt,
    Seed,
    Submitted,
    Word,
)
from baobab.tools.ai.media.toolset import DOWNLOADING, POLLING, SUBMITTING, UNTIL_OVER, media, wait_for_job
from baobab.tools.ai.model_choice import preview_model
from baobab.tools.ai.tools.chat import ModelName
from baobab.tools.ai.toolset import CALLED
from baobab.tools.core import AppId, Call, Guard, JsonObject, Rest
from baobab.tools.core.auth.access import OF_APP


@media.tool(
    "POST /videos/completions",
    access=OF_APP,
    effect="external",
    raises=SUBMITTING,
    audit=CALLED,
    rest=Rest(status=202, examples={"model": "baobab/film", "prompt": "A baobab in the wind", "duration": 5}),
    guard=Guard(preview=preview_model("video")),
    waits=wait_for_job("videos_job"),
)
async def videos_generate(
    call: Call,
    app_id: AppId,
    model: ModelName,
    prompt: Prompt,
    duration: Annotated[int, Field(ge=1, le=3600)] | None = None,
    resolution: Word | None = None,
    aspect_ratio: Word | None = None,
    generate_audio: bool | None = None,
    seed: Seed | None = None,
    input_images: ImageUrls | None = None,
    input_references: ImageUrls | None = None,
    frame_images: Annotated[list[FrameImage | FrameReference], Field(max_length=2)] | None = None,
    provider: JsonObject | None = None,
    **further: Any,
) -> Submitted:
    """Let a model make a video, at the expense of the app's organisation.

    This starts a job. Poll its polling_url every 30 seconds. Each model takes only some of the fields. If you send
    another one, the error lists the fields that the model takes.

    duration: the length in seconds; each model supports certain lengths.
    resolution: the resolution, such as 720p.
    aspect_ratio: the aspect ratio, such as 16:9, 9:16 or 1:1.
    generate_audio: whether the video has sound.
    seed: the same request with the same seed gives similar videos, if the model supports seeds.
    input_images: https URLs of images that the video begins with.
    input_references: https URLs of images of people or things that the video shows.
    frame_images: the first and the last frame: `{url, frame}`, or `{type: image_url, image_url: {url}, frame_type}`.
    provider: further fields that this model takes.
    """
    named_parameters = {
        "duration": duration,
        "resolution": resolution,
        "aspect_ratio": aspect_ratio,
        "generate_audio": generate_audio,
        "seed": seed,
        "input_images": input_images,
        "input_references": input_references,
        "frame_images": None if frame_images is None else [_frame(image) for image in frame_images],
    }
    parameters = {name: value for name, value in named_parameters.items() if value is not None} | further
    return await submission.submit(call, app_id, "video", model, prompt, parameters, provider)


@media.tool(
    "GET /videos/completions/{job_id}",
    access=OF_APP,
    effect="read",
    waits=UNTIL_OVER,
    raises=POLLING,
)
async def videos_job(call: Call, app_id: AppId, job_id: JobId) -> GenerationJob:
    """Read the status of a video job, and where its files are.

    The first poll after the job has ended charges its cost. If nobody polls a job for five minutes, its reserved
    credits are released; the job is still charged at the next poll after its end.
    """
    return await job_status.poll(call, app_id, "video", job_id)


@media.tool(
    "GET /videos/completions/{job_id}/content",
    access=OF_APP,
    effect="read",
    raises=DOWNLOADING,
    rest=Rest(media_type="video/mp4"),
)
async def videos_content(call: Call, app_id: AppId, job_id: JobId, index: Index = 0) -> Bytes:
    """Download a video of a completed job that you submitted.

    Over MCP, the answer is the video's address.
    """
    return await content.stream_content(call, app_id, "video", job_id, index)


def _frame(image: Any) -> FrameImage:
    """Converts a frame to the form that the models take."""
    if "image_url" not in image:
        return {"url": image["url"], "frame": image["frame"]}
    return {"url": image["image_url"]["url"], "frame": "last" if image["frame_type"].startswith("last") else "first"}
