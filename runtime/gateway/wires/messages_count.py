"""Estimates the tokens of a request for a message if no provider can count them."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.usage_meter import UsageMeter
from baobab.runtime.gateway.wires.messages_request import build_chat_request

PICTURE = 1600
"""The tokens of a picture: Anthropic's count for the largest one."""


def estimate_tokens(body: Mapping[str, Any], model: Model) -> int:
    """Estimates one token per four bytes. Raises RequestRefused for a request that the model could not take."""
    request = build_chat_request({**body, "max_tokens": 1}, model)
    parts = [part for message in request["messages"] for part in _content_parts(message)]
    pictures = [part["image_url"] for part in parts if part["type"] == "image_url"]
    characters = len(to_json([request["messages"], request.get("tools", ()), request.get("response_format", ())]))
    meter = UsageMeter()
    meter.estimate_usage(characters - sum(len(picture["url"]) for picture in pictures))
    return meter.prompt + PICTURE * len(pictures)


def _content_parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []
