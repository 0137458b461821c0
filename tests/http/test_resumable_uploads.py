"""Uploads by the protocol tus 1.0, over real connections that break."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from baobab.storage.sql.tables import metadata
from tests.conftest import Baobab
from tests.http.live_server import serve_installation
from tests.jobs import run_due_jobs, run_job
from tests.servers import TIMEOUT_SECONDS

TUS = {"tus-resumable": "1.0.0"}
MEGABYTE = 2**20


@pytest.fixture
async def live(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Baobab]:
    async with serve_installation(tmp_path / "data", settings) as served_baobab:
        yield served_baobab


@pytest.fixture
async def app(live: Baobab) -> str:
    app_id = await live.create_app()
    body = {"maxFileSizeMb": 64, "storageLimitBytes": 64 * MEGABYTE}
    await live.client.patch(f"/v1/{app_id}/config/storage", json=body, headers=live.owner)
    return app_id


def encode_metadata(**values: str) -> str:
    return ",".join(f"{name} {base64.b64encode(value.encode()).decode()}" for name, value in values.items())


async def begin(live: Baobab, app: str, size: int, **values: str) -> httpx.Response:
    headers = {**live.owner, **TUS, "upload-length": str(size), "upload-metadata": encode_metadata(**values)}
    return await live.client.post(f"/storage/{app}/uploads", headers=headers)


async def begin_path(live: Baobab, app: str, size: int, **values: str) -> str:
    response = await begin(live, app, size, **values)
    assert response.status_code == 201, response.text
    return f"/storage/{app}/{response.headers['location']}"


async def append(live: Baobab, path: str, offset: int, content: Any) -> httpx.Response:
    headers = {**live.owner, **TUS, "upload-offset": str(offset), "content-type": "application/offset+octet-stream"}
    return await live.client.patch(path, content=content, headers=headers)


async def read_offset(live: Baobab, path: str) -> int:
    answer = await live.client.head(path, headers={**live.owner, **TUS})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    return int(answer.headers["upload-offset"])


async def list_files(live: Baobab, app: str) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = (await live.client.get(f"/storage/{app}/objects", headers=live.owner)).json()
    return files


async def read_digest(live: Baobab, app: str) -> str:
    """The digest of the only file of an app, as it is downloaded."""
    (file,) = await list_files(live, app)
    download = (await live.client.get(f"/storage/{app}/download/{file['id']}", headers=live.owner)).json()
    path = download["downloadUrl"].partition("8000")[2]
    return hashlib.sha256((await live.client.get(path)).content).hexdigest()


async def test_a_file_arrives_in_pieces_and_is_there_with_the_last_one(live: Baobab, app: str) -> None:
    path = await begin_path(live, app, 10, filename="Ünï.txt", filetype="text/plain", public="true")
    assert await read_offset(live, path) == 0
    first = await append(live, path, 0, b"01234")
    assert (first.status_code, first.headers["upload-offset"], first.headers["tus-resumable"]) == (204, "5", "1.0.0")
    assert await list_files(live, app) == []
    assert (await append(live, path, 5, b"56789")).status_code == 204
    (file,) = await list_files(live, app)
    assert (file["filename"], file["content_type"], file["size_bytes"]) == ("Ünï.txt", "text/plain", 10)
    assert file["public"] is True
    assert await read_offset(live, path) == 10
    assert await read_digest(live, app) == hashlib.sha256(b"0123456789").hexdigest()
    await run_due_jobs(live.application)
    objects = live.application.services.regions["local"].objects
    assert len(await objects.list(f"{app}/", "", 10)) == 1


async def test_what_came_before_the_connection_broke_stays(live: Baobab, app: str) -> None:
    content = bytes(range(256)) * 4096 * 20
    path = await begin_path(live, app, len(content))
    url = live.client.base_url
    _, writer = await asyncio.open_connection(url.host, url.port)
    head = (
        f"PATCH {path} HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {len(content)}\r\nTus-Resumable: 1.0.0\r\n"
        f"Upload-Offset: 0\r\nContent-Type: application/offset+octet-stream\r\n"
        f"Authorization: {live.owner['authorization']}\r\n\r\n"
    )
    sent_length = 11 * MEGABYTE
    writer.write(head.encode() + content[:sent_length])
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await read_offset(live, path) < sent_length:
            await asyncio.sleep(0.01)
    assert await list_files(live, app) == []
    assert (await append(live, path, sent_length, content[sent_length:])).status_code == 204
    assert await read_digest(live, app) == hashlib.sha256(content).hexdigest()


async def test_of_two_requests_that_go_on_at_the_same_place_one_does(live: Baobab, app: str) -> None:
    path = await begin_path(live, app, 8)
    answers = await asyncio.gather(append(live, path, 0, b"aaaa"), append(live, path, 0, b"bbbb"))
    assert sorted(answer.status_code for answer in answers) == [204, 409]
    late = await append(live, path, 0, b"cccc")
    assert (late.status_code, late.json()["error"]["details"]) == (409, {"received_bytes": 4})
    ends = await asyncio.gather(append(live, path, 4, b"dddd"), append(live, path, 4, b"eeee"))
    assert sorted(answer.status_code for answer in ends) == [204, 409]
    assert len(await list_files(live, app)) == 1
    await run_due_jobs(live.application)
    objects = live.application.services.regions["local"].objects
    assert len(await objects.list(f"{app}/", "", 10)) == 1


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"tus-resumable": "0.2.2"}, 412),
        ({"tus-resumable": None}, 412),
        ({"content-type": "application/octet-stream"}, 415),
        ({"upload-offset": "1"}, 409),
        ({"upload-offset": None}, 409),
        ({"upload-offset": "-1"}, 400),
        ({"authorization": None}, 401),
    ],
)
async def test_a_request_that_does_not_fit_the_protocol_is_refused(
    live: Baobab, app: str, changes: dict[str, str | None], status: int
) -> None:
    path = await begin_path(live, app, 5)
    headers = {**live.owner, **TUS, "upload-offset": "0", "content-type": "application/offset+octet-stream", **changes}
    present_headers = {name: value for name, value in headers.items() if value is not None}
    assert (await live.client.patch(path, content=b"hello", headers=present_headers)).status_code == status
    assert await read_offset(live, path) == 0


@pytest.mark.parametrize(
    ("length", "metadata", "status"),
    [
        ("", "", 400),
        ("five", "", 400),
        ("-5", "", 400),
        ("9999999999999", "", 400),
        (str(65 * MEGABYTE), "", 413),
        ("5", "filename not-base64", 400),
        ("5", f"filename {base64.b64encode(b'../../etc/passwd').decode()}", 400),
        ("5", f"filename {base64.b64encode(bytes([255])).decode()}", 400),
        ("5", f"filetype {base64.b64encode(b'nothing').decode()}", 400),
    ],
)
async def test_an_upload_that_cannot_be_is_not_begun(
    live: Baobab, app: str, length: str, metadata: str, status: int
) -> None:
    headers = {**live.owner, **TUS, "upload-length": length, "upload-metadata": metadata}
    refusal = await live.client.post(f"/storage/{app}/uploads", headers=headers)
    assert refusal.status_code == status, refusal.text


async def test_more_bytes_than_announced_are_refused(live: Baobab, app: str) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"too long"

    path = await begin_path(live, app, 5)
    for body in (b"too long", content()):
        assert (await append(live, path, 0, body)).status_code == 400
    assert await read_offset(live, path) == 0


async def test_an_empty_file_needs_no_bytes(live: Baobab, app: str) -> None:
    path = await begin_path(live, app, 0, filename="empty")
    assert [file["filename"] for file in await list_files(live, app)] == ["empty"]
    assert (await append(live, path, 0, b"")).status_code == 204


async def test_an_upload_that_is_ended_leaves_nothing(live: Baobab, app: str) -> None:
    path = await begin_path(live, app, 10)
    await append(live, path, 0, b"01234")
    response = await live.client.delete(path, headers={**live.owner, **TUS})
    assert (response.status_code, response.headers["tus-resumable"]) == (204, "1.0.0")
    assert (await append(live, path, 5, b"56789")).status_code == 404
    await run_due_jobs(live.application)
    assert await live.application.services.regions["local"].objects.list(f"{app}/", "", 10) == []


async def test_a_file_whose_last_request_was_killed_is_completed_by_the_job(live: Baobab, app: str) -> None:
    path = await begin_path(live, app, 10)
    await append(live, path, 0, b"01234")
    objects = live.application.services.regions["local"].objects
    (key,) = await objects.list(f"{app}/", "", 10)
    # The object store has lost the first part for a moment: the last part is recorded, and the file not completed.
    await objects.delete(key)
    assert (await append(live, path, 5, b"56789")).status_code == 500
    assert await list_files(live, app) == []

    async def content() -> AsyncIterator[bytes]:
        yield b"01234"

    await objects.put(key, content(), content_type="application/octet-stream", max_bytes=5)
    files = metadata.tables["files"]
    services = live.application.services
    async with services.database.writing(lock=app) as connection:
        await connection.execute(update(files).values(reserved_until=services.clock.now()))
    await run_job(live.application, "files_complete")
    assert await read_digest(live, app) == hashlib.sha256(b"0123456789").hexdigest()


async def test_the_path_says_which_version_it_speaks(live: Baobab, app: str) -> None:
    answer = await live.client.options(f"/storage/{app}/uploads")
    assert (answer.headers["tus-version"], answer.headers["tus-resumable"]) == ("1.0.0", "1.0.0")
    extensions = {"creation", "creation-with-upload", "creation-defer-length", "expiration", "termination"}
    assert set(answer.headers["tus-extension"].split(",")) == extensions


async def test_an_upload_begins_with_its_first_bytes(live: Baobab, app: str) -> None:
    content = bytes(range(256)) * 8192
    of_bytes = {**live.owner, **TUS, "content-type": "application/offset+octet-stream"}

    async def begin_with(size: int, first: Any, **headers: str) -> httpx.Response:
        all_headers = {**of_bytes, "upload-length": str(size), **headers}
        return await live.client.post(f"/storage/{app}/uploads", content=first, headers=all_headers)

    half = await begin_with(len(content), content[: MEGABYTE + 7])
    assert (half.status_code, half.headers["upload-offset"]) == (201, str(MEGABYTE + 7)), half.text
    path = f"/storage/{app}/{half.headers['location']}"
    assert await read_offset(live, path) == MEGABYTE + 7
    assert (await append(live, path, MEGABYTE + 7, content[MEGABYTE + 7 :])).status_code == 204
    assert await read_digest(live, app) == hashlib.sha256(content).hexdigest()
    whole = await begin_with(5, b"hello")
    assert (whole.headers["upload-offset"], len(await list_files(live, app))) == ("5", 2)
    too_much = await begin_with(4, b"hello")
    assert (too_much.status_code, too_much.json()["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")
    other = await begin_with(5, b"hello", **{"content-type": "text/plain"})
    assert (other.status_code, other.json()["error"]["code"]) == (415, "VALIDATION_INVALID_TYPE")
    # What was refused holds no room.
    assert (await begin_with(64 * MEGABYTE - len(content) - 5, b"x")).status_code == 201


async def test_a_key_that_must_ask_is_told_that_bytes_cannot_wait(live: Baobab, app: str) -> None:
    body = {"name": "agent", "approval": "write", "toolsets": ["files"]}
    created_body = (await live.client.post("/api-keys", json=body, headers=live.owner)).json()
    agent = {"authorization": f"Bearer {created_body['key']}"}
    path = await begin_path(live, app, 5)
    headers = {**agent, **TUS, "upload-offset": "0", "content-type": "application/offset+octet-stream"}
    refusal = await live.client.patch(path, content=b"hello", headers=headers)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "APPROVAL_OF_STREAM"), refusal.text
    assert await read_offset(live, path) == 0
    waiting = (await live.client.get("/v1/approvals?status=pending", headers=live.owner)).json()
    assert waiting["approvals"] == []
    rule = f"/api-keys/{created_body['key_id']}/asks/files_upload_append"
    response = await live.client.put(rule, json={"ask": "never"}, headers=live.owner)
    assert response.status_code == 200, response.text
    assert (await live.client.patch(path, content=b"hello", headers=headers)).status_code == 204
    assert [file["size_bytes"] for file in await list_files(live, app)] == [5]


async def test_a_client_behind_a_proxy_that_blocks_patch_names_it_in_a_header(live: Baobab, app: str) -> None:
    path = await begin_path(live, app, 5, filename="a.txt")
    headers = {**live.owner, **TUS, "content-type": "application/offset+octet-stream", "upload-offset": "0"}
    override = {"x-http-method-override": "PATCH"}
    answer = await live.client.post(path, content=b"hello", headers={**headers, **override})
    assert (answer.status_code, answer.headers["upload-offset"]) == (204, "5")
    assert (await live.client.post(path, content=b"", headers=headers)).status_code == 405
    # The header counts where tus is spoken, and never for the sake of another method.
    object_path = f"/storage/{app}/objects/{path.rpartition('/')[2]}"
    for target, method, expected_status in (
        (object_path, "POST", 405),
        (path, "GET", 200),
        (f"/storage/{app}/uploads", "POST", 412),
    ):
        answer = await live.client.request(method, target, headers={**live.owner, **override})
        assert answer.status_code == expected_status, (target, method)
    removal = await live.client.post(path, headers={**live.owner, **TUS, "x-http-method-override": "DELETE"})
    assert (removal.status_code, removal.headers["tus-resumable"]) == (204, "1.0.0")


async def test_a_client_reads_the_metadata_that_it_sent_again(live: Baobab, app: str) -> None:
    values = {"filename": "年次報告.txt", "filetype": "text/plain", "metadata": '{"album": "summer"}', "own": "x"}
    path = await begin_path(live, app, 5, **values)
    for offset, content in ((0, b"he"), (2, b"llo")):
        answer = await live.client.head(path, headers={**live.owner, **TUS})
        assert answer.headers["upload-metadata"] == encode_metadata(**values)
        assert (await append(live, path, offset, content)).status_code == 204
    answer = await live.client.head(path, headers={**live.owner, **TUS})
    assert answer.headers["upload-metadata"] == encode_metadata(**values)
    listed_file = (await live.client.get(f"/storage/{app}/objects", headers=live.owner)).json()[0]
    assert (listed_file["filename"], listed_file["metadata"]) == ("年次報告.txt", {"album": "summer"})
    bare_path = await begin_path(live, app, 5)
    assert "upload-metadata" not in (await live.client.head(bare_path, headers={**live.owner, **TUS})).headers


@pytest.mark.parametrize("sent_text", ["filename eA==\r\nset-cookie: a=b", "filename eA==,é eA=="])
async def test_metadata_cannot_become_another_header(live: Baobab, app: str, sent_text: str) -> None:
    query = {"upload_metadata": sent_text, "upload_length": "5"}
    answer = await live.client.post(f"/storage/{app}/uploads", params=query, headers={**live.owner, **TUS})
    assert answer.status_code == 400


async def begin_recording(live: Baobab, app: str, **headers: str) -> httpx.Response:
    return await live.client.post(
        f"/storage/{app}/uploads", headers={**live.owner, **TUS, "upload-defer-length": "1", **headers}
    )


async def say_length(live: Baobab, path: str, offset: int, length: int, content: bytes = b"") -> httpx.Response:
    headers = {"upload-offset": str(offset), "upload-length": str(length)}
    kind = {"content-type": "application/offset+octet-stream"}
    return await live.client.patch(path, content=content, headers={**live.owner, **TUS, **headers, **kind})


async def test_a_recording_says_its_length_at_the_end(live: Baobab, app: str) -> None:
    path = f"/storage/{app}/{(await begin_recording(live, app)).headers['location']}"
    for number in range(3):
        assert (await append(live, path, 5 * number, b"01234")).status_code == 204
    answer = await live.client.head(path, headers={**live.owner, **TUS})
    assert (answer.headers["upload-offset"], answer.headers["upload-defer-length"]) == ("15", "1")
    assert "upload-length" not in answer.headers
    assert await list_files(live, app) == []
    refusal = await say_length(live, path, 15, 14)
    assert (refusal.status_code, refusal.json()["error"]["details"]) == (400, {"received_bytes": 15})
    assert (await say_length(live, path, 15, 17, b"5")).status_code == 204
    answer = await live.client.head(path, headers={**live.owner, **TUS})
    assert (answer.headers["upload-length"], answer.headers["upload-offset"]) == ("17", "16")
    assert (await say_length(live, path, 16, 18, b"6")).status_code == 400, "it is said once"
    assert (await append(live, path, 16, b"6")).status_code == 204
    assert await read_digest(live, app) == hashlib.sha256(b"01234" * 3 + b"56").hexdigest()


async def test_a_recording_of_which_all_has_arrived_ends_with_its_length_alone(live: Baobab, app: str) -> None:
    path = f"/storage/{app}/{(await begin_recording(live, app)).headers['location']}"
    assert (await append(live, path, 0, b"all")).status_code == 204
    assert (await say_length(live, path, 3, 3)).status_code == 204
    assert await read_digest(live, app) == hashlib.sha256(b"all").hexdigest()


async def test_a_recording_that_has_not_said_its_length_is_not_taken_for_whole(live: Baobab, app: str) -> None:
    path = f"/storage/{app}/{(await begin_recording(live, app)).headers['location']}"
    assert (await append(live, path, 0, b"part")).status_code == 204
    files = metadata.tables["files"]
    async with live.application.services.regions["local"].database.writing(lock=None) as connection:
        soon = live.application.services.clock.now() + timedelta(seconds=1)
        await connection.execute(update(files).values(reserved_until=soon))
    await run_job(live.application, "files_complete")
    assert await list_files(live, app) == []
    assert (await append(live, path, 4, b" two")).status_code == 204
    assert (await say_length(live, path, 8, 8)).status_code == 204
    assert await read_digest(live, app) == hashlib.sha256(b"part two").hexdigest()


async def test_a_recording_reserves_room_as_it_comes_and_no_more_than_there_is(live: Baobab, app: str) -> None:
    path = f"/storage/{app}/{(await begin_recording(live, app)).headers['location']}"
    assert (await append(live, path, 0, bytes(40 * MEGABYTE))).status_code == 204
    refusal = await begin(live, app, 30 * MEGABYTE)
    details = refusal.json()["error"]["details"]
    assert (details["current_usage_bytes"], details["limit_bytes"]) == (40 * MEGABYTE, 64 * MEGABYTE)
    assert (await begin(live, app, 20 * MEGABYTE)).status_code == 201
    refusal = await append(live, path, 40 * MEGABYTE, bytes(8 * MEGABYTE))
    assert refusal.json()["error"]["code"] == "QUOTA_STORAGE_EXCEEDED"
    refusal = await say_length(live, path, 40 * MEGABYTE, 65 * MEGABYTE)
    assert refusal.json()["error"]["details"]["max_file_size_bytes"] == 64 * MEGABYTE
    assert (await say_length(live, path, 40 * MEGABYTE, 40 * MEGABYTE)).status_code == 204


async def test_a_length_is_said_or_put_off_and_not_both(live: Baobab, app: str) -> None:
    for headers in ({"upload-length": "5"}, {"upload-defer-length": "2"}):
        assert (await begin_recording(live, app, **headers)).status_code == 400
