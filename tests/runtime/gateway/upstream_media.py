"""The part of the upstream that makes images and videos, on the wires of OpenAI, Google, fal and Runway.

By the model's name, besides what `upstream.py` says of failures:

    url            images as addresses
    elsewhere      images at an address of a machine's own
    text           files that are texts
    nothing        an answer without images
    no-usage       tell no usage
    failing        a video that fails, for a reason that holds what nobody may see
    expired        a video that expires
"""

import base64
import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from email.policy import HTTP
from typing import Any

from aiohttp import web

from baobab.runtime.gateway.builtin.picture import draw_png
from baobab.runtime.gateway.media.built_in import read_film

PICTURE = draw_png(64, 64, ("upstream",), "0")
FILM = read_film()
TEXT = b"This is neither an image nor a video."
SECRETS = ("sk-live-1234567890abcdef", "https://internal.example.com/x", "org-acme-17", "ops@acme.example")
REASON = f"The prompt was blocked; see {SECRETS[1]} or write to {SECRETS[3]} ({SECRETS[2]}, {SECRETS[0]})."
USAGE = {
    "input_tokens": 60,
    "input_tokens_details": {"text_tokens": 10, "image_tokens": 50},
    "output_tokens": 1000,
    "total_tokens": 1060,
}
_LOOKS = 2
"""How often a video is looked after before it is done."""


_PATHS = re.compile(
    r"/(images|videos|files|tasks|operations|requests)/|/videos$|:(generateContent|predict)|[-_]to[-_]video$"
)
_IN_PATH = re.compile(r"/models/(?:.*-image-)?([^/]*):")


def is_media(path: str) -> bool:
    return _PATHS.search(path) is not None


def model_of(path: str, fields: Mapping[str, Any]) -> str:
    """What tells how to behave: the model, or of one that stands in the path what it has after `-image-`."""
    results = _IN_PATH.search(path)
    return results[1] if results else str(fields.get("model", ""))


def fields_of(content_type: str, body: bytes) -> dict[str, Any]:
    """A request's fields, of JSON or of a form; a file is its bytes, and several of one name are a list."""
    if not content_type.startswith("multipart/"):
        return dict(json.loads(body or b"{}"))
    form = message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body, policy=HTTP)
    fields: dict[str, Any] = {}
    for part in form.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content: Any = part.get_payload(decode=True)
        if part.get_filename() is None:
            fields[str(name)] = content.decode()
        else:
            fields.setdefault(str(name), []).append(content)
    return fields


@dataclass
class MediaMaker:
    """looks: of each video, how often it was looked after."""

    looks: dict[str, int] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def answer(
        self, method: str, path: str, fields: Mapping[str, Any], url: str, name: str
    ) -> web.StreamResponse | None:
        """The answer to what is asked for, None to anything else. url: of this upstream. name: of the behaviour."""
        if method == "POST":
            return self._begin_job(path, fields, url, name)
        if path.startswith("/files/"):
            return _send_file(path.rpartition("/")[2])
        if path.startswith("/v1/videos/") and path.endswith("/content"):
            return _send_file("text" if "/text-" in path else "film.mp4")
        status = self._video_status(path, url)
        return None if status is None else web.json_response(status)

    def _video_status(self, path: str, url: str) -> dict[str, Any] | None:
        """How far a video is, on each of the wires."""
        match path.split("/")[1:]:
            case ["v1", "videos", id_]:
                return self._video(id_)
            case ["v1beta", "operations", id_]:
                return self._operation(id_, url)
            case [*_, "requests", id_, "status"]:
                return {"status": "COMPLETED" if self._is_done(id_) else "IN_PROGRESS"}
            case [*_, "requests", id_]:
                return {"video": {"url": f"{url}/files/film.mp4"}} if self._is_done(id_) else {}
            case [*_, "tasks", id_]:
                is_done = self._is_done(id_)
                output = {"output": [f"{url}/files/film.mp4"]} if is_done else {}
                return {"id": id_, "status": "SUCCEEDED" if is_done else "RUNNING", **output}
        return None

    def _begin_job(self, path: str, fields: Mapping[str, Any], url: str, name: str) -> web.StreamResponse | None:
        if path in ("/v1/images/generations", "/v1/images/edits"):
            return web.json_response(_build_images(fields, url, name))
        if path.endswith(":generateContent"):
            return web.json_response(_build_candidates(name))
        id_ = f"{name}-{next(self._numbers)}"
        if path == "/v1/videos":
            size, seconds = fields.get("size", "720x1280"), fields["seconds"]
            video = {"id": id_, "object": "video", "status": "queued", "created_at": 1}
            return web.json_response({**video, "model": fields["model"], "size": size, "seconds": seconds})
        if path.endswith(":predictLongRunning"):
            return web.json_response({"name": f"operations/{id_}"})
        if path.endswith(("-to-video", "_to_video")):
            return web.json_response({"request_id": id_, "id": id_, "status": "PENDING"})
        return None

    def _is_done(self, id_: str) -> bool:
        self.looks[id_] = self.looks.get(id_, 0) + 1
        return self.looks[id_] >= _LOOKS

    def _video(self, id_: str) -> dict[str, Any]:
        video = {"id": id_, "object": "video", "created_at": 1, "model": "sora", "seconds": "4", "size": "1280x720"}
        if not self._is_done(id_):
            return {**video, "status": "in_progress", "progress": 50}
        if id_.startswith("failing"):
            return {**video, "status": "failed", "error": {"code": "blocked", "message": REASON}}
        return {**video, "status": "expired" if id_.startswith("expired") else "completed", "progress": 100}

    def _operation(self, id_: str, url: str) -> dict[str, Any]:
        if not self._is_done(id_):
            return {"name": f"operations/{id_}", "done": False}
        samples = [] if id_.startswith("nothing") else [{"video": {"uri": f"{url}/files/film.mp4"}}]
        return {
            "name": f"operations/{id_}",
            "done": True,
            "response": {"generateVideoResponse": {"generatedSamples": samples}},
        }


def _build_images(fields: Mapping[str, Any], url: str, name: str) -> dict[str, Any]:
    encoded_picture = base64.b64encode(TEXT if name == "text" else PICTURE).decode()
    places = {"url": f"{url}/files/picture.png", "elsewhere": "https://169.254.169.254/latest/picture.png"}
    image = {"url": places[name]} if name in places else {"b64_json": encoded_picture}
    data = [] if name == "nothing" else [image] * int(fields.get("n", 1))
    return {"created": 1, "data": data, **({} if name == "no-usage" else {"usage": USAGE})}


def _build_candidates(name: str) -> dict[str, Any]:
    data = base64.b64encode(TEXT if name == "text" else PICTURE).decode()
    parts = [{"text": "Here it is."}, {"inlineData": {"mimeType": "image/png", "data": data}}]
    usage = {
        "promptTokenCount": 10,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
        "candidatesTokenCount": 1300,
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}, {"modality": "TEXT", "tokenCount": 10}],
        "totalTokenCount": 1310,
    }
    return {"candidates": [{"content": {"parts": parts}}], "usageMetadata": usage}


def _send_file(name: str) -> web.StreamResponse:
    content = {"picture.png": PICTURE, "film.mp4": FILM}.get(name, TEXT)
    # Of a type that says nothing, as the stores of many are.
    return web.Response(body=content, content_type="application/octet-stream")
