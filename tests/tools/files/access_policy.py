"""The callers that may call the tools of files, and the arguments for it (tests/tools/access.py)."""

import base64
import io
from typing import Any
from urllib.parse import parse_qs, urlsplit

from PIL import Image

from tests.tools.access import ADMINS, PUBLIC, RUNNERS, Caller, World

USERS = "401 403 403 ok  403 ok  403 403 ok  ok  ok  ok  403 403"
"""Those who run the app, and its users: files of their own, which the arguments below make."""

POLICY = {
    "files_upload": USERS,
    "files_list": USERS,
    "files_own_text_list": RUNNERS,
    "files_own_text": ADMINS,
    "files_usage": USERS,
    "files_download": USERS,
    "files_delete": USERS,
    "files_update": USERS,
    "files_copy": USERS,
    "files_folders": USERS,
    "files_delete_many": USERS,
    "files_put": USERS,
    "files_read": USERS,
    "files_write_named": USERS,
    "files_read_named": USERS,
    # They ask for what a client of tus says in headers, which the matrix sends as parameters.
    "files_upload_begin": USERS,
    "files_upload_status": USERS,
    "files_upload_append": USERS,
    # The signed address is what counts.
    "files_store": PUBLIC,
    "files_content": PUBLIC,
    "files_thumbnail": PUBLIC,
    "files_picture": PUBLIC,
    # Whether the file is published is what counts.
    "files_published": PUBLIC,
    "files_locate": USERS,
}


async def _make_file(world: World, caller: Caller) -> dict[str, Any]:
    """A file that the caller may see, if it may see any."""
    by = world.callers["user" if caller.name == "user" else "owner"].headers
    body = {"filename": "a.txt", "contentType": "text/plain", "content": "hello"}
    response = await world.request("POST", f"/storage/{world.app}/objects", by, **body)
    return {"app_id": world.app, "object_id": response["id"]}


async def for_files_write_named(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "key": "b.txt", "content_base64": "aGk="}


async def for_files_read_named(world: World, caller: Caller) -> dict[str, Any]:
    await _make_file(world, caller)
    return {"app_id": world.app, "key": "a.txt"}


for_files_download = for_files_delete = for_files_read = for_files_locate = for_files_copy = _make_file


async def for_files_delete_many(world: World, caller: Caller) -> dict[str, Any]:
    file = await _make_file(world, caller)
    return {"app_id": world.app, "ids": [file["object_id"]]}


async def for_files_published(world: World, caller: Caller) -> dict[str, Any]:
    by = world.callers["owner"].headers
    body = {"filename": "a.txt", "contentType": "text/plain", "content": "hello"}
    file = await world.request("POST", f"/storage/{world.app}/objects", by, **body)
    await world.request("PATCH", f"/storage/{world.app}/objects/{file['id']}", by, published=True)
    return {"app_id": world.app, "object_id": file["id"]}


async def for_files_upload_begin(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "upload_length": "9", "tus_resumable": "1.0.0"}


for_files_upload_status = _make_file


async def for_files_update(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _make_file(world, caller), "public": False}


async def for_files_upload_append(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _make_file(world, caller), "upload_offset": "5", "tus_resumable": "1.0.0"}


async def for_files_content(world: World, caller: Caller) -> dict[str, Any]:
    file = await _make_file(world, caller)
    by = world.callers["user" if caller.name == "user" else "owner"].headers
    path = f"/storage/{world.app}/download/{file['object_id']}"
    answer = await world.baobab.client.get(path, headers=by)
    return {**file, **_read_query(answer.json()["downloadUrl"])}


async def for_files_thumbnail(world: World, caller: Caller) -> dict[str, Any]:
    return await _make_picture(world, "", "thumbnailUrl")


async def for_files_picture(world: World, caller: Caller) -> dict[str, Any]:
    return await _make_picture(world, "?picture_size=160&picture_format=png", "pictureUrl")


async def _make_picture(world: World, query: str, field: str) -> dict[str, Any]:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    content = base64.b64encode(file.getvalue()).decode()
    body = {"filename": "a.png", "contentType": "image/png", "content": content, "encoding": "base64"}
    by = world.callers["owner"].headers
    response = await world.request("POST", f"/storage/{world.app}/objects", by, **body)
    answer = await world.baobab.client.get(f"/storage/{world.app}/download/{response['id']}{query}", headers=by)
    return {"app_id": world.app, "object_id": response["id"], **_read_query(answer.json()[field])}


async def for_files_store(world: World, caller: Caller) -> dict[str, Any]:
    # The matrix sends an empty object as the body, and no type.
    body = {"filename": "a.bin", "contentType": "application/octet-stream", "sizeBytes": len("{}")}
    by = world.callers["owner"].headers
    response = await world.request("POST", f"/storage/{world.app}/upload", by, **body)
    return {"app_id": world.app, "object_id": response["objectId"], **_read_query(response["uploadUrl"])}


def _read_query(url: str) -> dict[str, Any]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
