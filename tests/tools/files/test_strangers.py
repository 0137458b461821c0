"""What another user of the app, a user of another app, and a visitor can do with files that are not theirs: nothing."""

from typing import Any

import httpx
import pytest

from tests.tools.files.conftest import ANN, BEN, FilesApp
from tests.tools.files.test_thumbnails import draw_picture

pytestmark = pytest.mark.asyncio(loop_scope="module")

Attempt = tuple[str, str, dict[str, Any]]


def list_attempts(file_id: str) -> list[Attempt]:
    """Every call that names a file."""
    return [
        ("GET", f"/download/{file_id}", {}),
        ("GET", f"/download/{file_id}?picture_size=160", {}),
        ("GET", f"/objects/{file_id}/text", {}),
        ("GET", f"/uploads/{file_id}", {}),
        ("PATCH", f"/objects/{file_id}", {"filename": "stolen"}),
        ("PATCH", f"/objects/{file_id}", {"metadata": {"a": "b"}}),
        ("PATCH", f"/objects/{file_id}", {"public": True}),
        ("PATCH", f"/objects/{file_id}", {"published": False}),
        ("POST", f"/objects/{file_id}/copy", {}),
        ("POST", f"/objects/{file_id}/copy", {"idempotency_key": "k"}),
        ("DELETE", f"/{file_id}", {}),
    ]


async def try_all(app: FilesApp, file_id: str, headers: dict[str, str]) -> list[int]:
    statuses = []
    for method, path, body in list_attempts(file_id):
        query = {"idempotency_key": body.pop("idempotency_key")} if "idempotency_key" in body else {}
        options: dict[str, Any] = {"json": body} if method in ("POST", "PATCH") else {}
        answer = await app.baobab.client.request(
            method, f"/storage/{app.id}{path}", headers=headers, params=query or None, **options
        )
        statuses.append(answer.status_code)
    return statuses


async def read_state(app: FilesApp) -> Any:
    return [(await app.request("GET", f"/{path}")).json() for path in ("objects", "folders", "usage")]


async def test_another_user_cannot_touch_or_feel_a_file(app: FilesApp) -> None:
    file_id = await app.store(draw_picture("png"), ANN, filename="private/a.png", contentType="image/png")
    state = await read_state(app)
    headers = await app.headers(BEN)
    missing_id = "00000000-0000-7000-8000-000000000000"
    assert set(await try_all(app, file_id, headers)) == {404}
    # It is as if the file did not exist.
    for hidden_id in (file_id, missing_id):
        deletion = await app.request("POST", "/objects/delete", BEN, json={"ids": [hidden_id]})
        assert deletion.json() == {"deleted_ids": [], "missing_ids": [hidden_id], "has_more": False}
    deletion = await app.request("POST", "/objects/delete", BEN, json={"prefix": "private/"})
    assert deletion.json() == {"deleted_ids": [], "missing_ids": [], "has_more": False}
    for query in ("", "?prefix=private/", "?name=a", "?published=false", f"?cursor={file_id}", "?metadata_name=a"):
        assert await app.list_ids(BEN, query) == []
    assert (await app.request("GET", "/folders", BEN)).json() == {"folders": [], "has_more": False}
    assert await read_state(app) == state


async def test_another_user_only_reads_and_copies_what_is_shared(app: FilesApp) -> None:
    file_id = await app.store(b"hello", ANN, filename="a.txt", public=True, metadata={"a": "b"})
    statuses = await try_all(app, file_id, await app.headers(BEN))
    attempts = [(method, path.partition(file_id)[2]) for method, path, _ in list_attempts(file_id)]
    allowed_attempts = {attempt for attempt, status in zip(attempts, statuses, strict=True) if status != 404}
    assert allowed_attempts == {("GET", ""), ("GET", "?picture_size=160"), ("GET", "/text"), ("POST", "/copy")}
    row = (await app.request("GET", "/objects", ANN)).json()[0]
    assert (row["filename"], row["public"], row["metadata"]) == ("a.txt", True, {"a": "b"})


async def test_users_and_keys_of_another_app_reach_nothing(app: FilesApp) -> None:
    file_id = await app.store(b"hello", public=True, filename="a.txt")
    await app.request("PATCH", f"/objects/{file_id}", json={"published": True})
    state = await read_state(app)
    other = FilesApp(app.baobab, app.clock, await app.baobab.create_app())
    assert set(await try_all(app, file_id, await other.headers(ANN))) <= {401, 403, 404}
    # By way of their own app, there is no such file either.
    for user in (None, ANN):
        assert set(await try_all(other, file_id, await other.headers(user))) == {404}
    assert (await app.baobab.client.get(f"/storage/{other.id}/published/{file_id}")).status_code == 307
    published_url = state[0][0]["published_url"]
    other_url = (await published_on(other, file_id)).status_code
    assert (published_url is not None, other_url) == (True, 404)
    assert await read_state(app) == state


async def published_on(app: FilesApp, file_id: str) -> httpx.Response:
    location = (await app.baobab.client.get(f"/storage/{app.id}/published/{file_id}")).headers["location"]
    host, _, path = location.partition("://")[2].partition("/")
    return await app.baobab.client.get(f"/{path}", headers={"host": host})


async def test_a_visitor_reads_what_is_published_and_nothing_else(app: FilesApp) -> None:
    hidden_id = await app.store(b"secret", public=True, filename="a.txt")
    pending_id = (await app.announce(3)).json()["objectId"]
    state = await read_state(app)
    assert set(await try_all(app, hidden_id, {})) == {401}
    for path in ("/objects", "/folders", "/usage"):
        assert (await app.baobab.client.get(f"/storage/{app.id}{path}")).status_code == 401
    assert (await app.baobab.client.post(f"/storage/{app.id}/objects/delete", json={"prefix": "a"})).status_code == 401
    for file_id in (hidden_id, pending_id):
        assert (await published_on(app, file_id)).status_code == 404
        for suffix in ("", "/thumbnail", "/picture?size=160"):
            answer = await app.baobab.client.get(f"/storage/{app.id}/content/{file_id}{suffix}")
            assert answer.status_code == 403
    assert await read_state(app) == state


async def test_a_published_file_is_not_read_while_the_app_is_paused(app: FilesApp) -> None:
    file_id = await app.store(b"hello")
    await app.request("PATCH", f"/objects/{file_id}", json={"published": True})
    assert (await published_on(app, file_id)).status_code == 200
    path = f"/v1/{app.id}/config/pause"
    await app.baobab.client.patch(path, json={"paused": True}, headers=app.baobab.owner)
    assert (await published_on(app, file_id)).status_code == 503
