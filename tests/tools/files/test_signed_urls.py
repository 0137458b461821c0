"""Addresses of files: good for one thing, one file, one type, one length, and a while."""

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.tools.files.conftest import ANN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


def change(url: str, **changes: Any) -> str:
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | changes
    return parts._replace(query=urlencode({name: value for name, value in query.items() if value is not None})).geturl()


async def test_an_upload_address_that_was_changed_in_any_part_is_refused(app: FilesApp) -> None:
    url = (await app.announce(5, ANN)).json()["uploadUrl"]
    other = await app.baobab.create_app()
    other_file = (await app.announce(5, ANN)).json()["objectId"]
    own_file = urlsplit(url).path.rpartition("/")[2]
    expires = int(parse_qs(urlsplit(url).query)["expires"][0])
    forged_urls = [
        change(url, expires=expires + 1),
        change(url, expires=None),
        change(url, size=6),
        change(url, size=None),
        change(url, type="text/html"),
        change(url, signature="A" * 43),
        change(url, signature=""),
        change(url, signature=None),
        change(url, signature="é"),
        url.replace(app.id, other),
        url.replace(own_file, other_file),
    ]
    for address in forged_urls:
        refusal = await app.send(address, b"hello")
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "FILE_URL_INVALID"), address
    # One that opens an upload opens no download, and the other way round.
    read = await app.baobab.client.get(change(url, type=None, size=None))
    assert (read.status_code, read.json()["error"]["code"]) == (403, "FILE_URL_INVALID")
    assert (await app.send(url, b"hello")).status_code == 200
    download = (await app.request("GET", f"/download/{own_file}")).json()["downloadUrl"]
    assert (await app.send(download, b"hello")).status_code == 403
    assert (await app.baobab.client.get(download.replace(own_file, other_file))).status_code == 403
    assert (await app.baobab.client.get(download.replace(app.id, other))).status_code == 403


async def test_addresses_expire(app: FilesApp) -> None:
    upload = (await app.announce(1)).json()["uploadUrl"]
    file_id = await app.store(b"x")
    download = (await app.request("GET", f"/download/{file_id}")).json()["downloadUrl"]
    app.clock.advance(299)
    assert (await app.baobab.client.get(download)).status_code == 200
    app.clock.advance(1)
    refusal = await app.send(upload, b"x")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "FILE_URL_EXPIRED")
    app.clock.advance(3299)
    assert (await app.baobab.client.get(download)).status_code == 200
    app.clock.advance(1)
    assert (await app.baobab.client.get(download)).status_code == 403


@pytest.mark.parametrize("content", [b"", b"four", b"longer"])
async def test_a_body_of_another_length_is_refused_and_leaves_nothing(app: FilesApp, content: bytes) -> None:
    async def in_chunks() -> Any:
        yield content

    announced_body = (await app.announce(5)).json()
    for body in (content, in_chunks()):
        refusal = await app.send(announced_body["uploadUrl"], body)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")
    assert await app.read_keys() == []
    # It is still good for what was announced.
    assert (await app.send(announced_body["uploadUrl"], b"hello")).status_code == 200


async def test_a_body_of_another_type_is_refused(app: FilesApp) -> None:
    url = (await app.announce(5, contentType="Image/PNG; a=b")).json()["uploadUrl"]
    for content_type in ("text/html", "image/png", ""):
        refusal = await app.send(url, b"hello", content_type)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_INVALID_TYPE")
    assert (await app.send(url, b"hello", "image/png;a=b")).status_code == 200


async def test_the_charset_that_browsers_add_to_a_text_is_no_other_type(app: FilesApp) -> None:
    body = (await app.announce(5, contentType="text/plain")).json()
    response = await app.send(body["uploadUrl"], b"hello", "text/plain;charset=UTF-8")
    assert (response.status_code, response.json()["content_type"]) == (200, "text/plain")
    exact = (await app.announce(5, contentType="text/plain; charset=latin-1")).json()
    assert (await app.send(exact["uploadUrl"], b"hello", "text/plain; charset=utf-8")).status_code == 400


async def test_an_address_stores_bytes_once(app: FilesApp) -> None:
    body = (await app.announce(5)).json()
    assert (await app.send(body["uploadUrl"], b"first")).status_code == 200
    response = await app.send(body["uploadUrl"], b"other")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "RESOURCE_ALREADY_EXISTS")
    assert (await app.fetch(body["objectId"])).content == b"first"
    assert len(await app.read_keys()) == 1


async def test_the_address_of_a_deleted_upload_stores_nothing(app: FilesApp) -> None:
    body = (await app.announce(5)).json()
    assert (await app.request("DELETE", f"/{body['objectId']}")).status_code == 204
    assert (await app.send(body["uploadUrl"], b"hello")).status_code == 404
    assert await app.read_keys() == []


async def test_an_address_has_the_lifetime_and_the_name_that_were_asked_for(app: FilesApp) -> None:
    file_id = await app.store(b"hello", filename="a.txt", contentType="text/plain")
    query = {"expires_in": "86400", "download_name": 'Bericht "Ä".txt'}
    answer = (await app.request("GET", f"/download/{file_id}", params=query)).json()
    assert (answer["expiresIn"], answer["filename"]) == (86400, "a.txt")
    response = await app.baobab.client.get(answer["downloadUrl"])
    name = "filename=\"Bericht ___.txt\"; filename*=UTF-8''Bericht%20%22%C3%84%22.txt"
    assert response.headers["content-disposition"] == f"attachment; {name}"
    assert response.headers["cache-control"] == "private, max-age=86400, immutable"
    for url in (
        change(answer["downloadUrl"], download="b.exe"),
        change(answer["downloadUrl"], download=None),
        change(answer["downloadUrl"], download='Bericht "Ä".txt\nexpires=9'),
    ):
        assert (await app.baobab.client.get(url)).status_code == 403
    plain_url = (await app.request("GET", f"/download/{file_id}")).json()["downloadUrl"]
    assert (await app.baobab.client.get(f"{plain_url}&download=b.exe")).status_code == 403
    app.clock.advance(86399)
    assert (await app.baobab.client.get(answer["downloadUrl"])).status_code == 200
    app.clock.advance(2)
    assert (await app.baobab.client.get(answer["downloadUrl"])).status_code == 403


@pytest.mark.parametrize(
    "query", ["expires_in=59", "expires_in=604801", "download_name=a%0Ab", "download_name=..%2Fa", "download_name="]
)
async def test_lifetimes_and_names_of_addresses_have_bounds(app: FilesApp, query: str) -> None:
    file_id = await app.store(b"hello")
    assert (await app.request("GET", f"/download/{file_id}?{query}")).status_code == 400


@pytest.mark.parametrize("limits", [{"read_only": True}, {"toolsets": ["files"]}])
async def test_a_key_with_limits_neither_lengthens_an_address_nor_publishes(
    app: FilesApp, limits: dict[str, Any]
) -> None:
    file_id = await app.store(b"hello")
    body = {"name": "narrow", "key_scope": "app", "target_app_id": app.id, **limits}
    key = (await app.baobab.client.post("/api-keys", json=body, headers=app.baobab.owner)).json()
    headers = {"authorization": f"Bearer {key['key']}"}
    path = f"/storage/{app.id}/download/{file_id}"
    assert (await app.baobab.client.get(path, headers=headers)).status_code == 200
    answer = await app.baobab.client.get(f"{path}?expires_in=3601", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "AUTH_KEY_LIMITED")
    path = f"/storage/{app.id}/objects/{file_id}"
    answer = await app.baobab.client.patch(path, json={"published": True}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "AUTH_KEY_LIMITED")
