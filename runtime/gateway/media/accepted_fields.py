"""The fields that each image and video model takes beside a prompt. All other fields are refused."""

import re
from dataclasses import dataclass

from baobab.runtime.gateway.media.model import AcceptedFields
from baobab.runtime.gateway.model import Modality, Model


@dataclass(frozen=True, slots=True)
class _Row:
    """The fields of models of `modality` whose id matches `ids`, separated by spaces, as `AcceptedFields` lists
    them.
    """

    modality: Modality
    ids: str
    top_level: str
    provider: str = ""


_VIDEO = "aspect_ratio duration resolution"

# The first row that matches counts.
_ROWS = (
    _Row("image", r"baobab/picture", "aspect_ratio input_images n seed size"),
    _Row("video", r"baobab/film", f"{_VIDEO} generate_audio input_images seed"),
    # GPT image
    _Row(
        "image",
        r"openai/(chat)?gpt-image-.*",
        "input_images mask n size",
        "background input_fidelity moderation output_compression output_format quality",
    ),
    # Gemini image
    _Row("image", r"google/gemini-.*", "aspect_ratio input_images size"),
    _Row("image", r"google/imagen-.*", "aspect_ratio n"),
    # Seedream
    _Row("image", r"bytedance/seedream-.*", "input_images size", "optimize_prompt_options output_format"),
    # Wan
    _Row("image", r"alibaba/wan-2\.6-t2i", "negative_prompt seed size", "prompt_extend"),
    _Row("image", r"alibaba/wan-2\.6-image", "input_images negative_prompt seed size", "prompt_extend"),
    _Row(
        "image",
        r"alibaba/wan-.*",
        "input_images seed size",
        "bbox_list color_palette enable_sequential thinking_mode",
    ),
    # Pruna
    _Row(
        "image",
        r"prunaai/.*",
        "aspect_ratio input_images seed size",
        "disable_safety_checker extra_fields height turbo width",
    ),
    # Other vendors, with the fields that LiteLLM is known to pass on to them.
    _Row("image", r"black-forest-labs/.*", "seed size"),
    _Row("image", r"recraft/.*", "n size", "style"),
    _Row("image", r"runwayml/.*", "seed size"),
    _Row("image", r"stabilityai/.*", "aspect_ratio negative_prompt seed"),
    _Row("image", r".*", "size"),
    _Row("video", r"google/veo-.*", f"{_VIDEO} input_images"),
    _Row(
        "video", r"(bytedance/seedance-|minimax/).*reference-to-video", f"{_VIDEO} generate_audio input_references seed"
    ),
    _Row(
        "video",
        r"(bytedance/seedance-|minimax/).*image-to-video",
        f"{_VIDEO} frame_images generate_audio input_images seed",
    ),
    _Row("video", r"(bytedance|kwaivgi|pixverse|minimax)/.*", f"{_VIDEO} generate_audio seed"),
    _Row("video", r"runwayml/.*", "aspect_ratio duration input_images seed"),
    _Row("video", r"openai/sora-.*", f"{_VIDEO} input_images"),
    _Row("video", r".*", _VIDEO),
)


def find_accepted_fields(model: Model) -> AcceptedFields:
    for row in _ROWS:
        if row.modality == model.modality and re.fullmatch(row.ids, model.id):
            return AcceptedFields(tuple(sorted(row.top_level.split())), tuple(sorted(row.provider.split())))
    raise ValueError(f"{model.id} makes neither images nor videos")
