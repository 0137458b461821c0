"""The image tools."""

from typing import Annotated, Any

from pydantic import Field

from baobab.tools.ai.media import content, job_status, submission
from baobab.tools.ai.media.schemas import (
    Bytes,
    GenerationJob,
    ImageUrl,
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
from baobab.tools.core import AppId, Call, Guard, JsonObject, Rest, Text
from baobab.tools.core.auth.access import OF_APP


@media.tool(
    "POST /images/completions",
    access=OF_APP,
    effect="external",
    raises=SUBMITTING,
    audit=CALLED,
    rest=Rest(status=202, examples={"model": "baobab/picture", "prompt": "A baobab at dusk"}),
    guard=Guard(preview=preview_model("image")),
    waits=wait_for_job("images_job"),
)
async def images_generate(
    call: Call,
    app_id: AppId,
    model: ModelName,
    prompt: Prompt,
    size: Word | None = None,
    aspect_ratio: Word | None = None,
    n: Annotated[int, Field(ge=1, le=10)] | None = None,
    seed: Seed | None = None,
    input_images: ImageUrls | None = None,
    mask: ImageUrl | None = None,
    negative_prompt: Annotated[str, Text(10_000)] | None = None,
    provider: JsonObject | None = None,
    **further: Any,
) -> Submitted:
    """Let a model make images, at the expense of the app's organisation.

    This starts a job. Poll its polling_url every 2 to 5 seconds. Each model takes only some of the fields. If you send
    another one, the error lists the fields that the model takes.

    size: the size, such as 1024x1024, 1K, 2K or 4K.
    aspect_ratio: the aspect ratio, such as 16:9.
    n: the number of images.
    seed: the same request with the same seed gives similar images, if the model supports seeds.
    input_images: https URLs of images that the model uses as references.
    mask: https URL of an image whose transparent parts the model fills in.
    negative_prompt: what the image does not show.
    provider: further fields that this model takes.
    """
    named_parameters = {
        "size": size,
        "aspect_ratio": aspect_ratio,
        "n": n,
        "seed": seed,
        "input_images": input_images,
        "mask": mask,
        "negative_prompt": negative_prompt,
    }
    parameters = {name: value for name, value in named_parameters.items() if value is not None} | further
    return await submission.submit(call, app_id, "image", model, prompt, parameters, provider)


@media.tool(
    "GET /images/completions/{job_id}",
    access=OF_APP,
    effect="read",
    waits=UNTIL_OVER,
    raises=POLLING,
)
async def images_job(call: Call, app_id: AppId, job_id: JobId) -> GenerationJob:
    """Read the status of an image job, and where its files are.

    The first poll after the job has ended charges its cost.
    """
    return await job_status.poll(call, app_id, "image", job_id)


@media.tool(
    "GET /images/completions/{job_id}/content",
    access=OF_APP,
    effect="read",
    raises=DOWNLOADING,
    rest=Rest(media_type="image/*"),
)
async def images_content(call: Call, app_id: AppId, job_id: JobId, index: Index = 0) -> Bytes:
    """Download an image of a completed job that you submitted: PNG, JPEG or WebP, as Content-Type says.

    Over MCP, the answer is the image's address.
    """
    return await content.stream_content(call, app_id, "image", job_id, index)
