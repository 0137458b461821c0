"""Conditional requests: a reader who has a file is not sent it again."""

import hashlib
import io
from datetime import timedelta
from email.utils import format_datetime

import httpx
import pytest
from PIL import Image

from tests.tools.files.conftest import ANN, BEN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def get(app: FilesApp, url: str, **headers: str) -> httpx.Response:
    return await app.baobab.client.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def read_url(app: FilesApp, file_id: str, user: str | None = None, name: str = "downloadUrl") -> str:
    return str((await app.request("GET", f"/download/{file_id}", user)).json()[name])


@pytest.mark.parametrize(("public", "keeper"), [(True, "public"), (False, "private")])
async def test_a_file_that_the_reader_has_is_not_sent_again(app: FilesApp, public: bool, keeper: str) -> None:
    app.clock.advance(0.7)
    url = await read_url(app, await app.store(b"0123456789", ANN, public=public), BEN if public else ANN)
    first = await get(app, url)
    tag, modified_at = first.headers["etag"], first.headers["last-modified"]
    assert tag == f'"{hashlib.sha256(b"0123456789").hexdigest()}"'
    assert modified_at == format_datetime(app.clock.now().replace(microsecond=0), usegmt=True)
    assert first.headers["cache-control"] == f"{keeper}, max-age=3600, immutable"
    app.clock.advance(60)
    for headers in (
        {"if_none_match": tag},
        {"if_none_match": f'"other", W/{tag}'},
        {"if_none_match": "*"},
        {"if_modified_since": modified_at},
        {"if_modified_since": format_datetime(app.clock.now() + timedelta(days=9), usegmt=True)},
        # The tag decides, and before any range does.
        {"if_none_match": tag, "if_modified_since": "Sun, 06 Nov 1994 08:49:37 GMT", "range": "bytes=99-"},
    ):
        answer = await get(app, url, **headers)
        assert (answer.status_code, answer.content) == (304, b""), headers
        assert (answer.headers["etag"], answer.headers["last-modified"]) == (tag, modified_at)
        assert answer.headers["cache-control"] == f"{keeper}, max-age=3540, immutable"
        assert "Origin" in answer.headers["vary"]
    for other in (
        {"if_none_match": '"other"'},
        {"if_none_match": '"other"', "if_modified_since": modified_at},
        {"if_modified_since": "Sun, 06 Nov 1994 08:49:37 GMT"},
        {"if_modified_since": "yesterday"},
        {"if_modified_since": "Sun, 06 Nov 99999999999 08:49:37 GMT"},
    ):
        answer = await get(app, url, **other)
        assert (answer.status_code, answer.content) == (200, b"0123456789"), other


async def test_a_part_is_sent_only_of_the_version_that_the_reader_has(app: FilesApp) -> None:
    url = await read_url(app, await app.store(b"0123456789"))
    first = await get(app, url)
    for validator, part in {
        first.headers["etag"]: True,
        first.headers["last-modified"]: True,
        f"W/{first.headers['etag']}": False,
        '"other"': False,
        "Sun, 06 Nov 1994 08:49:37 GMT": False,
        # A later time is another version: the comparison is exact.
        format_datetime(app.clock.now() + timedelta(days=1), usegmt=True): False,
        "nonsense": False,
    }.items():
        answer = await get(app, url, range="bytes=4-5", if_range=validator)
        assert (answer.status_code, answer.content) == ((206, b"45") if part else (200, b"0123456789")), validator


async def test_a_file_that_is_gone_is_not_said_to_be_unchanged(app: FilesApp) -> None:
    file_id = await app.store(b"x")
    url = await read_url(app, file_id)
    tag = (await get(app, url)).headers["etag"]
    assert (await app.request("DELETE", f"/{file_id}")).status_code == 204
    assert (await get(app, url, if_none_match=tag)).status_code == 404


async def test_a_resumed_upload_has_the_tag_of_its_whole(app: FilesApp) -> None:
    tus = {"tus-resumable": "1.0.0", **await app.headers(None)}
    chunk_headers = {**tus, "content-type": "application/offset+octet-stream"}
    path = f"/storage/{app.id}/uploads"
    response = await app.baobab.client.post(path, headers={**tus, "upload-length": "4"})
    file_id = response.json()["id"]
    for offset, content in ((0, b"ab"), (2, b"cd")):
        await app.baobab.client.patch(
            f"{path}/{file_id}", content=content, headers={**chunk_headers, "upload-offset": str(offset)}
        )
    assert (await app.fetch(file_id)).headers["etag"] == f'"{hashlib.sha256(b"abcd").hexdigest()}"'


async def test_a_thumbnail_that_the_reader_has_is_not_sent_again(app: FilesApp) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (400, 300), "green").save(picture, "PNG")
    url = await read_url(app, await app.store(picture.getvalue(), contentType="image/png"), name="thumbnailUrl")
    first = await get(app, url)
    assert first.headers["etag"] == f'"{hashlib.sha256(first.content).hexdigest()}"'
    for headers in ({"if_none_match": first.headers["etag"]}, {"if_modified_since": first.headers["last-modified"]}):
        answer = await get(app, url, **headers)
        assert (answer.status_code, answer.content) == (304, b"")
    assert (await get(app, url, if_none_match='"other"')).content == first.content
