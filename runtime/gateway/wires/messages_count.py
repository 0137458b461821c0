"""How many tokens a request for a message has, about, where nobody can be asked."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from baobab.runtime.gateway.model import Model
from baobab.runtime.gateway.outcome import Outcome
from baobab.runtime.gateway.wires.messages_request import asked

PICTURE = 1600
"""Tokens of a picture: as many as the vendor of this wire counts for the largest."""


def estimated(body: Mapping[str, Any], model: Model) -> int:
    """A token for four bytes of the request. RequestRefused for what the model could not be asked."""
    request = asked({**body, "max_tokens": 1}, model)
    parts = [part for message in request["messages"] for part in _parts(message)]
    pictures = [part["image_url"] for part in parts if part["type"] == "image_url"]
    said = len(to_json([request["messages"], request.get("tools", ()), request.get("response_format", ())]))
    outcome = Outcome()
    outcome.estimate(said - sum(len(picture["url"]) for picture in pictures))
    return outcome.prompt + PICTURE * len(pictures)


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []
