"""Fetches the pictures that a request refers to by URL, under the egress rules, for providers that fetch none.

LiteLLM would fetch them without these rules, so it is set up not to (litellm_import.py).
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from baobab.runtime.gateway.errors import RequestRefused
from baobab.runtime.gateway.media.files import RemoteFiles
from baobab.runtime.gateway.upstream import Upstream

_FETCH_NONE = frozenset(("gemini",))
_REMOTE = ("http://", "https://")


async def inline_pictures(upstream: Upstream, body: Mapping[str, Any], files: RemoteFiles | None) -> Mapping[str, Any]:
    """Puts the pictures into the request if its provider does not fetch them. Raises RequestRefused."""
    messages = body.get("messages")
    if upstream.provider not in _FETCH_NONE or not isinstance(messages, list):
        return body
    urls = list(
        dict.fromkeys(url for message in messages for part in _content_parts(message) if (url := _remote_url(part)))
    )
    if not urls:
        return body
    if files is None:
        raise RequestRefused("The model takes no pictures by URL here.", details={"param": "messages"})
    images = await files.fetch_images(urls, "messages")
    data = {image.url: f"data:{image.content_type};base64,{b64encode(image.content).decode()}" for image in images}
    return {**body, "messages": [_inline_message(message, data) for message in messages]}


def _content_parts(message: Any) -> list[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else []


def _remote_url(part: Any) -> str | None:
    """Returns the URL of a part that is a remote picture; None for all other parts."""
    if not isinstance(part, dict) or part.get("type") != "image_url":
        return None
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) and url.lower().startswith(_REMOTE) else None


def _inline_message(message: Any, data: Mapping[str, str]) -> Any:
    parts = _content_parts(message)
    if not any(map(_remote_url, parts)):
        return message
    return {**message, "content": [_inline_part(part, data) for part in parts]}


def _inline_part(part: Any, data: Mapping[str, str]) -> Any:
    url = _remote_url(part)
    if url is None:
        return part
    image = part["image_url"]
    return {**part, "image_url": {**(image if isinstance(image, dict) else {}), "url": data[url]}}
