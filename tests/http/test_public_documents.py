"""Documents that are the same for everybody are compressed and kept; pages of one person are not."""

import gzip

import httpx
import pytest

from tests.conftest import Baobab
from tests.http.console.test_console import sign_in

DOCUMENTS = [
    "/openapi.json",
    "/llms.txt",
    "/llms-full.txt",
    "/docs",
    "/docs/docs.js",
    "/docs/errors",
    "/docs/guides",
    "/docs/guides/users",
    "/docs/guides/users.md",
    "/console/assets/console.css",
    "/console/assets/console.js",
]


async def read_raw(baobab: Baobab, path: str, **headers: str) -> tuple[httpx.Response, bytes]:
    """An answer and its bytes as they were sent."""
    async with baobab.client.stream("GET", path, headers={"accept-encoding": "", **headers}) as answer:
        return answer, b"".join([piece async for piece in answer.aiter_raw()])


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_a_public_document_is_compressed_for_whoever_takes_that(baobab: Baobab, path: str) -> None:
    plain, content = await read_raw(baobab, path)
    assert "content-encoding" not in plain.headers
    packed_answer, packed_content = await read_raw(baobab, path, **{"accept-encoding": "br, gzip"})
    assert packed_answer.headers["content-encoding"] == "gzip"
    assert "accept-encoding" in packed_answer.headers["vary"].lower()
    assert gzip.decompress(packed_content) == content
    assert len(packed_content) < len(content)
    unpacked_answer, _ = await read_raw(baobab, path, **{"accept-encoding": "gzip;q=0, identity"})
    assert "content-encoding" not in unpacked_answer.headers


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_a_copy_that_is_still_good_is_not_sent_again(baobab: Baobab, path: str) -> None:
    for encoding in ("", "gzip"):
        first, _ = await read_raw(baobab, path, **{"accept-encoding": encoding})
        again, content = await read_raw(
            baobab, path, **{"accept-encoding": encoding, "if-none-match": first.headers["etag"]}
        )
        assert (again.status_code, content, again.headers["etag"]) == (304, b"", first.headers["etag"])


async def test_pages_with_tokens_are_not_compressed(baobab: Baobab) -> None:
    browser = await sign_in(baobab)
    for path in ("/console", "/console/apps", "/console/sign-in"):
        answer, _ = await read_raw(baobab, path, **{**browser, "accept-encoding": "gzip"})
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers
