"""Small files in the call itself, as models read and write them."""

import base64
from typing import Any

import httpx
import pytest

from tests.tools.files.conftest import ANN, BEN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def put(app: FilesApp, content: str, user: str | None = None, **fields: Any) -> httpx.Response:
    body = {"filename": "a.md", "contentType": "text/markdown", "content": content, **fields}
    return await app.request("POST", "/objects", user, json=body)


async def test_a_text_is_written_and_read_in_one_call_each(app: FilesApp) -> None:
    response = await put(app, "# Ärger\n", ANN)
    assert response.status_code == 201, response.text
    assert response.json()["size_bytes"] == 9
    read = (await app.request("GET", f"/objects/{response.json()['id']}/text", ANN)).json()
    assert (read["text"], read["next_offset"]) == ("# Ärger\n", None)
    assert (await app.request("GET", f"/objects/{response.json()['id']}/text", BEN)).status_code == 404
    assert (await app.fetch(response.json()["id"])).content == "# Ärger\n".encode()


async def test_bytes_are_written_as_base64(app: FilesApp) -> None:
    raw = bytes(range(256))
    response = await put(app, base64.b64encode(raw).decode(), encoding="base64")
    assert (await app.fetch(response.json()["id"])).content == raw
    refusal = await app.request("GET", f"/objects/{response.json()['id']}/text")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_INVALID_TYPE")
    for wrong in ("not base64!", "YQ", "YQ==="):
        assert (await put(app, wrong, encoding="base64")).status_code == 400


async def test_content_beyond_a_mebibyte_is_refused_and_names_the_other_way(app: FilesApp) -> None:
    largest = base64.b64encode(b"x" * 2**20).decode()
    assert (await put(app, largest, encoding="base64")).status_code == 201
    refusal = await put(app, "x" * (2**20 + 1))
    error = refusal.json()["error"]
    assert (refusal.status_code, error["code"]) == (413, "QUOTA_FILE_SIZE_EXCEEDED")
    assert "/upload" in error["remediation"]
    assert (await app.read_usage())["files_count"] == 1


@pytest.mark.parametrize("limit", [4, 5, 7, 64])
async def test_a_long_text_is_read_in_parts_that_cut_no_character(app: FilesApp, limit: int) -> None:
    text = "aé木😀" * 20
    file_id = (await put(app, text)).json()["id"]
    parts, offset = [], 0
    while offset is not None:
        part = (await app.request("GET", f"/objects/{file_id}/text?offset={offset}&limit={limit}")).json()
        parts.append(part["text"])
        offset = part["next_offset"]
    assert "".join(parts) == text


async def test_a_text_takes_room_like_any_file(app: FilesApp) -> None:
    await app.set_storage(storageLimitBytes=10)
    assert (await put(app, "x" * 10)).status_code == 201
    assert (await put(app, "x")).status_code == 402
    assert len(await app.read_keys()) == 1
