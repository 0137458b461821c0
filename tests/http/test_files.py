"""The bytes of files over real connections: streamed, cut, in ranges, and shown to browsers as harmless."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import Baobab
from tests.http.live_server import serve_installation
from tests.servers import TIMEOUT_SECONDS

GB = 2**30
MEGABYTE = bytes(2**20)


@pytest.fixture
async def live(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Baobab]:
    async with serve_installation(tmp_path / "data", settings) as served_baobab:
        yield served_baobab


@pytest.fixture
async def app(live: Baobab) -> str:
    app_id = await live.create_app()
    body = {"maxFileSizeMb": 2048, "storageLimitBytes": 4 * GB}
    await live.client.patch(f"/v1/{app_id}/config/storage", json=body, headers=live.owner)
    return app_id


async def announce(live: Baobab, app: str, size: int, content_type: str = "application/octet-stream") -> dict[str, Any]:
    body = {"filename": "a.bin", "contentType": content_type, "sizeBytes": size}
    answer = await live.client.post(f"/storage/{app}/upload", json=body, headers=live.owner)
    assert answer.status_code == 200, answer.text
    # The server does not know the port that the test has chosen.
    parts = urlsplit(answer.json()["uploadUrl"])
    return {**answer.json(), "path": f"{parts.path}?{parts.query}"}


async def put(live: Baobab, path: str, content: Any, content_type: str = "application/octet-stream") -> httpx.Response:
    return await live.client.put(path, content=content, headers={"content-type": content_type})


async def find_download(live: Baobab, app: str, file_id: str) -> str:
    answer = await live.client.get(f"/storage/{app}/download/{file_id}", headers=live.owner)
    parts = urlsplit(answer.json()["downloadUrl"])
    return f"{parts.path}?{parts.query}"


async def store(live: Baobab, app: str, content: bytes, content_type: str = "application/octet-stream") -> str:
    """Stores a file, and returns the path at which it can be read."""
    announcement = await announce(live, app, len(content), content_type)
    response = await put(live, announcement["path"], content, content_type)
    assert response.status_code == 200, response.text
    return await find_download(live, app, announcement["objectId"])


def list_bytes(live: Baobab, app: str) -> list[Path]:
    """The files in the object store that are unfinished, or of an app."""
    folder = live.application.settings.data / "objects" / "local"
    return [path for path in folder.rglob("*") if path.is_file() and {".drafts", app} & set(path.parts)]


async def test_a_large_file_goes_in_and_out_without_being_held_in_memory(live: Baobab, app: str) -> None:
    announcement = await announce(live, app, 64 * 2**20)

    async def content() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield MEGABYTE

    # What the first upload and the first download load is not held for a file.
    await live.client.get(await store(live, app, b"warm"))
    tracemalloc.start()
    try:
        assert (await put(live, announcement["path"], content())).status_code == 200
        received_bytes = 0
        path = await find_download(live, app, announcement["objectId"])
        async with live.client.stream("GET", path) as answer:
            assert answer.headers["content-length"] == str(64 * 2**20)
            async for piece in answer.aiter_raw():
                received_bytes += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert received_bytes == 64 * 2**20
    # Of the client in this process, too.
    assert peak < 16 * 2**20


async def test_an_upload_of_a_gigabyte_that_is_cut_in_the_middle_leaves_nothing(live: Baobab, app: str) -> None:
    announcement = await announce(live, app, GB)
    url = live.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = (
        f"PUT {announcement['path']} HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {GB}\r\n"
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    writer.write(head.encode())
    for _ in range(20):
        writer.write(MEGABYTE)
        await writer.drain()
    assert list_bytes(live, app)
    writer.close()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while list_bytes(live, app):
            await asyncio.sleep(0.01)
    assert (await live.client.get(f"/storage/{app}/objects", headers=live.owner)).json() == []
    assert await reader.read() == b""
    # It can be sent again from the beginning, or be given up.
    answer = await put(live, announcement["path"], b"short")
    assert answer.status_code == 400
    response = await live.client.delete(f"/storage/{app}/{announcement['objectId']}", headers=live.owner)
    assert response.status_code == 204
    usage = (await announce(live, app, 4 * GB - 2 * GB))["_meta"]["resource_info"]
    assert (usage["storage_used_bytes"], usage["files_count"]) == (0, 0)


async def test_a_refusal_is_told_before_a_large_body_is_sent(live: Baobab, app: str) -> None:
    announcement = await announce(live, app, GB)
    url = live.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    path = announcement["path"].replace("signature=", "signature=A")
    head = f"PUT {path} HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {GB}\r\nExpect: 100-continue\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert (await reader.readline()).startswith(b"HTTP/1.1 403")
    writer.close()


@pytest.mark.parametrize(
    ("range_header", "status", "content", "content_range"),
    [
        ("bytes=0-0", 206, b"0", "bytes 0-0/10"),
        ("bytes=2-4", 206, b"234", "bytes 2-4/10"),
        ("bytes=7-", 206, b"789", "bytes 7-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=4-2", 200, b"0123456789", None),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("chars=0-1", 200, b"0123456789", None),
        ("bytes=0-" + "9" * 100, 200, b"0123456789", None),
    ],
)
async def test_a_range_is_answered_as_rfc_9110_says(
    live: Baobab, app: str, range_header: str, status: int, content: bytes | None, content_range: str | None
) -> None:
    path = await store(live, app, b"0123456789")
    answer = await live.client.get(path, headers={"range": range_header})
    assert (answer.status_code, answer.headers.get("content-range")) == (status, content_range)
    assert content is None or answer.content == content
    head = await live.client.head(path, headers={"range": range_header})
    assert (head.status_code, head.headers.get("content-range"), head.content) == (status, content_range, b"")
    assert content is None or head.headers["content-length"] == str(len(content))


async def test_a_download_that_was_cut_goes_on_where_it_was_if_the_file_is_the_same(live: Baobab, app: str) -> None:
    path = await store(live, app, b"0123456789")
    tag = (await live.client.head(path)).headers["etag"]
    same = await live.client.get(path, headers={"range": "bytes=5-", "if-range": tag})
    assert (same.status_code, same.content) == (206, b"56789")
    other = await live.client.get(path, headers={"range": "bytes=5-", "if-range": '"other"'})
    assert (other.status_code, other.content) == (200, b"0123456789")


async def test_a_browser_that_has_a_file_is_told_so_over_a_connection_that_goes_on(live: Baobab, app: str) -> None:
    path = await store(live, app, b"0123456789")
    tag = (await live.client.get(path)).headers["etag"]
    for method in ("GET", "HEAD"):
        response = await live.client.request(method, path, headers={"if-none-match": tag})
        assert (response.status_code, response.content) == (304, b"")
        assert "content-length" not in response.headers
    assert (await live.client.get(path)).content == b"0123456789"


async def test_an_empty_file_is_a_file(live: Baobab, app: str) -> None:
    path = await store(live, app, b"")
    answer = await live.client.get(path)
    assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "0")
    assert (await live.client.get(path, headers={"range": "bytes=0-"})).status_code == 416


@pytest.mark.parametrize(
    ("content_type", "is_inline"),
    [
        ("image/png", True),
        ("text/plain", True),
        ("video/mp4", True),
        ("text/html", False),
        ("image/svg+xml", False),
        ("application/xhtml+xml", False),
        ("application/pdf", False),
        ("text/xml", False),
        ("application/octet-stream", False),
        ('text/html;a="image/png"', False),
    ],
)
async def test_a_browser_shows_only_what_can_hold_no_script(
    live: Baobab, app: str, content_type: str, is_inline: bool
) -> None:
    path = await store(live, app, b"<script>alert(1)</script>", content_type)
    headers = (await live.client.get(path)).headers
    assert headers["content-disposition"].partition(";")[0] == ("inline" if is_inline else "attachment")
    assert headers["content-type"].startswith(content_type.partition(";")[0])
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    assert headers["cache-control"].startswith("private, max-age=3")


async def test_pages_of_allowed_origins_send_and_read_files(live: Baobab, app: str) -> None:
    origin = "https://shop.example.com"
    body = {"allowed_origins": [origin]}
    await live.client.patch(f"/v1/{app}/config/cors", json=body, headers=live.owner)
    announcement = await announce(live, app, 5)
    preflight_headers = {
        "origin": origin,
        "access-control-request-method": "PUT",
        "access-control-request-headers": "content-type",
    }
    preflight = await live.client.options(announcement["path"], headers=preflight_headers)
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == origin
    headers = {"origin": origin, "content-type": "application/octet-stream"}
    assert (await live.client.put(announcement["path"], content=b"hello", headers=headers)).status_code == 200
    refusal = await live.client.get(announcement["path"], headers={"origin": "https://evil.example"})
    assert refusal.status_code == 403


async def test_an_app_on_its_own_host_leaves_its_id_out(live: Baobab, app: str) -> None:
    config = (await live.client.get(f"/v1/{app}/config", headers=live.owner)).json()
    headers = {**live.owner, "host": f"{config['subdomain']}.localhost"}
    body = {"filename": "a.txt", "contentType": "text/plain", "content": "hello"}
    stored_body = (await live.client.post("/storage/objects", json=body, headers=headers)).json()
    assert [row["id"] for row in (await live.client.get("/storage/objects", headers=headers)).json()] == [
        stored_body["id"]
    ]
    assert (await live.client.get(f"/storage/download/{stored_body['id']}", headers=headers)).status_code == 200
    assert (await live.client.delete(f"/storage/objects/{stored_body['id']}", headers=headers)).status_code == 204
