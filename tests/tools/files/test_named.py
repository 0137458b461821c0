"""Files by their names: written in place of earlier ones, and read by agents."""

import asyncio
import base64

import httpx
import pytest

from tests.jobs import run_due_jobs
from tests.tools.files.conftest import ANN, BEN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def write(app: FilesApp, content: bytes, user: str | None = None, key: str = "notes/today.md") -> httpx.Response:
    body = {"content_base64": base64.b64encode(content).decode(), "content_type": "text/markdown"}
    return await app.request("PUT", f"/named/{key}", user, json=body)


async def read(app: FilesApp, user: str | None = None, key: str = "notes/today.md") -> bytes | None:
    answer = await app.request("GET", f"/named/{key}", user)
    return base64.b64decode(answer.json()["content_base64"]) if answer.status_code == 200 else None


async def test_a_file_is_written_in_place_of_the_earlier_one(app: FilesApp) -> None:
    for content in (b"first", b"second one"):
        assert (await write(app, content)).status_code == 200
        assert await read(app) == content
    await run_due_jobs(app.baobab.application)
    usage = await app.read_usage()
    assert (usage["storage_used_bytes"], usage["files_count"], len(await app.read_keys())) == (10, 1, 1)


async def test_of_many_writes_at_once_one_stays(app: FilesApp) -> None:
    answers = await asyncio.gather(*(write(app, b"%d" % number) for number in range(8)))
    assert {answer.status_code for answer in answers} == {200}
    await run_due_jobs(app.baobab.application)
    assert (len(await app.list_ids()), len(await app.read_keys())) == (1, 1)
    assert (await app.read_usage())["files_count"] == 1


async def test_a_user_writes_over_their_own_files_only(app: FilesApp) -> None:
    for user, content in ((None, b"app"), (ANN, b"ann"), (BEN, b"ben")):
        assert (await write(app, content, user)).status_code == 200
    assert (await read(app, ANN), await read(app, BEN)) == (b"ann", b"ben")
    assert len(await app.list_ids()) == 3
    assert await read(app, ANN, "other") is None


async def test_a_write_that_does_not_fit_leaves_the_earlier_one(app: FilesApp) -> None:
    assert (await write(app, b"first")).status_code == 200
    await app.set_storage(storageLimitBytes=8)
    assert (await write(app, b"second one")).status_code == 402
    assert await read(app) == b"first"


async def test_the_bytes_of_a_large_file_are_at_an_address(app: FilesApp) -> None:
    assert (await write(app, b"x" * (256 * 1024 + 1))).status_code == 200
    answer = (await app.request("GET", "/named/notes/today.md")).json()
    assert (answer["content_base64"], answer["size_bytes"]) == (None, 256 * 1024 + 1)
    assert (await app.fetch(answer["id"])).status_code == 200


async def test_content_that_is_no_base64_is_refused(app: FilesApp) -> None:
    refusal = await app.request("PUT", "/named/a", json={"content_base64": "é"})
    assert refusal.status_code == 400
    assert (await app.request("PUT", "/named/../a", json={"content_base64": ""})).status_code in (400, 404, 405)


async def test_a_text_is_stored_and_read_as_it_is(app: FilesApp) -> None:
    answer = await app.request("PUT", "/named/notes/tea.md", json={"content": "Grüner Tee: 80 °C"})
    assert answer.json()["content_type"] == "text/plain; charset=utf-8", answer.text
    file = (await app.request("GET", "/named/notes/tea.md")).json()
    assert file["content"] == "Grüner Tee: 80 °C"
    assert base64.b64decode(file["content_base64"]).decode() == file["content"]


async def test_bytes_that_are_no_text_are_read_as_base64_only(app: FilesApp) -> None:
    assert (await write(app, b"\xff\xfe\x00")).status_code == 200
    file = (await app.request("GET", "/named/notes/today.md")).json()
    assert (file["content"], base64.b64decode(file["content_base64"])) == (None, b"\xff\xfe\x00")


@pytest.mark.parametrize("body", [{}, {"content": "a", "content_base64": "YQ=="}])
async def test_a_file_needs_its_content_once(app: FilesApp, body: dict[str, str]) -> None:
    answer = await app.request("PUT", "/named/notes/today.md", json=body)
    assert (answer.status_code, "content_base64" in answer.text) == (400, True)
    assert await read(app) is None
