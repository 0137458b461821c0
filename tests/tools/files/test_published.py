"""Published files: read by everybody at a permanent address, until they are not published any more."""

from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import select

from baobab.tools.files.tables import file_traffic
from tests.tools.files.conftest import ANN, FilesApp
from tests.tools.files.test_thumbnails import draw_picture

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def publish(app: FilesApp, file_id: str, *, published: bool = True) -> str:
    """Publishes a file and returns its address."""
    answer = await app.request("PATCH", f"/objects/{file_id}", json={"published": published})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["published_url"])


async def visit(app: FilesApp, url: str, method: str = "GET", **headers: str) -> httpx.Response:
    """Asks for an address as a visitor does, without a credential."""
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await app.baobab.client.request(method, target, headers={"host": parts.netloc, **headers})


async def test_a_published_file_is_read_by_everybody_until_it_is_not_published(app: FilesApp) -> None:
    file_id = await app.store(b"hello", filename="a.txt", contentType="text/plain")
    url = await publish(app, file_id)
    # Never on the host of the console.
    assert str(urlsplit(url).hostname).endswith(".localhost")
    assert url.endswith(f"/storage/published/{file_id}")
    answer = await visit(app, url)
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (
        200,
        b"hello",
        "text/plain;charset=utf-8",
    )
    assert answer.headers["cache-control"] == "public, no-cache"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await visit(app, url, range="bytes=1-2")).content == b"el"
    answer_again = await visit(app, url, if_none_match=answer.headers["etag"])
    assert (answer_again.status_code, answer_again.content) == (304, b"")
    assert await publish(app, file_id) == url
    assert await publish(app, file_id, published=False) == "None"
    for headers in ({}, {"if_none_match": answer.headers["etag"]}):
        assert (await visit(app, url, **headers)).status_code == 404
    assert await publish(app, file_id) == url
    await app.request("DELETE", f"/{file_id}")
    assert (await visit(app, url)).status_code == 404


async def test_the_platforms_own_host_sends_visitors_to_the_apps(app: FilesApp) -> None:
    file_id = await app.store(b"hello")
    url = await publish(app, file_id)
    answer = await app.baobab.client.get(f"/storage/{app.id}/published/{file_id}?download=1")
    assert (answer.status_code, answer.headers["location"]) == (307, f"{url}?download=1")
    assert answer.headers["cache-control"] == "no-store"
    unknown = await app.baobab.client.get(f"/storage/app_zzzzzzzzzzzz/published/{file_id}")
    assert unknown.status_code == 404


async def test_only_those_who_run_the_app_publish_and_each_file_by_itself(app: FilesApp) -> None:
    of_ann, other_id = await app.store(b"hello", ANN), await app.store(b"secret")
    refusal = await app.request("PATCH", f"/objects/{of_ann}", ANN, json={"published": True})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "FILES_PUBLISHING_REFUSED")
    url = await publish(app, of_ann)
    assert [row["id"] for row in (await app.request("GET", "/objects?published=true")).json()] == [of_ann]
    assert [row["id"] for row in (await app.request("GET", "/objects?published=false")).json()] == [other_id]
    assert (await visit(app, url.replace(of_ann, other_id))).status_code == 404
    # The user whose file it is may end it.
    end_answer = await app.request("PATCH", f"/objects/{of_ann}", ANN, json={"published": False})
    assert end_answer.json()["published_url"] is None
    copy = await app.request("POST", f"/objects/{of_ann}/copy", json={})
    assert copy.json()["published_url"] is None


async def test_what_a_browser_could_run_is_a_download(app: FilesApp) -> None:
    for content_type, sent_type in (
        ("text/html", "text/html"),
        ("image/svg+xml", "image/svg+xml"),
        ("application/xhtml+xml", "application/xhtml+xml"),
        ("text/javascript", "application/octet-stream"),
        ("application/ecmascript;v=1", "application/octet-stream"),
    ):
        url = await publish(app, await app.store(b"alert(1)", filename="a b.html", contentType=content_type))
        answer = await visit(app, url)
        assert answer.headers["content-type"] == sent_type
        assert answer.headers["content-disposition"].startswith('attachment; filename="a b.html"')
        assert "sandbox" in answer.headers["content-security-policy"]
        assert "set-cookie" not in answer.headers


async def test_a_published_picture_has_the_sizes_of_the_list_and_no_others(app: FilesApp) -> None:
    url = await publish(app, await app.store(draw_picture("png"), contentType="image/png"))
    small = await visit(app, f"{url}?size=160", accept="image/avif,image/webp,*/*")
    assert (small.status_code, small.headers["content-type"]) == (200, "image/avif")
    assert small.headers["vary"] == "Origin, Accept"
    assert small.headers["cache-control"] == "public, no-cache"
    for query in ("size=161", "size=4000", "size=160&shape=round", "size=160&format=gif", "size=160&width=9"):
        assert (await visit(app, f"{url}?{query}")).status_code == 400, query


async def test_what_published_files_send_is_counted(app: FilesApp) -> None:
    url = await publish(app, await app.store(b"hello"))
    await visit(app, url)
    await visit(app, url, range="bytes=0-1")
    await visit(app, url, method="HEAD")
    services = app.baobab.application.services
    for flush in services.flushes:
        await flush()
    async with app.database.reading() as connection:
        query = select(file_traffic.c.sent_bytes, file_traffic.c.requests).where(file_traffic.c.app_id == app.id)
        assert tuple((await connection.execute(query)).one()) == (7, 3)
