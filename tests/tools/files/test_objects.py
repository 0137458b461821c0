"""Files: announced, sent, listed, downloaded, deleted."""

import itertools
from datetime import datetime
from urllib.parse import unquote

import pytest
from sqlalchemy import select

from baobab.storage.sql.tables import metadata
from tests.jobs import run_due_jobs
from tests.tools.files.conftest import ANN, BEN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_file_is_announced_sent_and_downloaded(app: FilesApp) -> None:
    body = (await app.announce(5, filename="photos/baobab.bin")).json()
    file_id = body["objectId"]
    assert body["objectKey"] == f"{app.id}/service/{file_id}_photos/baobab.bin"
    assert body["expiresIn"] == 300
    assert body["_meta"]["resource_info"] == {
        "storage_used_bytes": 0,
        "storage_reserved_bytes": 5,
        "storage_limit_bytes": 2**30,
        "storage_used_percent": 0.0,
        "files_count": 0,
    }
    assert await app.list_ids() == []
    response = await app.send(body["uploadUrl"], b"hello")
    assert response.status_code == 200, response.text
    listed_body = (await app.request("GET", "/objects")).json()
    assert datetime.fromisoformat(listed_body[0].pop("created_at")) == app.clock.now()
    assert listed_body == [
        {
            "id": file_id,
            "user_id": None,
            "key": body["objectKey"],
            "filename": "photos/baobab.bin",
            "content_type": "application/octet-stream",
            "size_bytes": 5,
            "public": False,
            "metadata": {},
            "published_url": None,
        }
    ]
    download = (await app.request("GET", f"/download/{file_id}")).json()
    assert (download["filename"], download["expiresIn"]) == ("photos/baobab.bin", 3600)
    assert (await app.fetch(file_id)).content == b"hello"
    assert (await app.read_usage())["storage_used_bytes"] == 5


async def test_files_are_listed_newest_first_and_paged_by_the_last_id(app: FilesApp) -> None:
    file_ids = []
    for number in range(5):
        file_ids.append(await app.store(b"x" * number))
        app.clock.advance(0.01)
    newest_first = file_ids[::-1]
    assert await app.list_ids() == newest_first
    assert await app.list_ids(query="?limit=2") == newest_first[:2]
    assert await app.list_ids(query=f"?limit=2&cursor={newest_first[1]}") == newest_first[2:4]
    # A page goes on where the file was, though it is gone.
    assert (await app.request("DELETE", f"/{newest_first[1]}")).status_code == 204
    assert await app.list_ids(query=f"?limit=2&cursor={newest_first[1]}") == newest_first[2:4]


async def test_a_deleted_file_is_gone_with_its_bytes_and_its_room(app: FilesApp) -> None:
    kept_id, deleted_id = await app.store(b"kept"), await app.store(b"deleted")
    url = (await app.request("GET", f"/download/{deleted_id}")).json()["downloadUrl"]
    answer = await app.request("DELETE", f"/{deleted_id}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert await app.list_ids() == [kept_id]
    assert (await app.baobab.client.get(url)).status_code == 404
    assert (await app.request("DELETE", f"/{deleted_id}")).status_code == 404
    assert (await app.read_usage())["storage_used_bytes"] == 4
    await run_due_jobs(app.baobab.application)
    assert [key.split("/")[2] for key in await app.read_keys()] == [kept_id]
    # The path that clients on the app's own host use.
    assert (await app.request("DELETE", f"/objects/{kept_id}")).status_code == 204


@pytest.mark.parametrize("open_to_all", [False, True])
async def test_each_caller_sees_deletes_and_downloads_what_the_rules_say(app: FilesApp, open_to_all: bool) -> None:
    await app.set_storage(publicReadEnabled=open_to_all)
    file_ids = {
        (owner, public): await app.store(b"x", owner, public=public)
        for owner, public in itertools.product((None, ANN, BEN), (False, True))
    }
    for caller in (None, ANN, BEN):
        visible_ids = {file_id for (owner, _), file_id in file_ids.items() if caller is None or owner == caller}
        assert set(await app.list_ids(caller)) == visible_ids
        for (owner, public), file_id in file_ids.items():
            readable = caller is None or owner == caller or public or open_to_all
            response = await app.fetch(file_id, caller)
            assert response.status_code == (200 if readable else 404), (caller, owner, public)
            assert (await app.request("GET", f"/objects/{file_id}/text", caller)).status_code == response.status_code
    for (owner, _), file_id in file_ids.items():
        if owner != ANN:
            assert (await app.request("DELETE", f"/{file_id}", ANN)).status_code == 404
        assert (await app.request("DELETE", f"/{file_id}", owner)).status_code == 204


async def test_the_visibility_of_a_file_is_changed_by_whom_it_belongs_to(app: FilesApp) -> None:
    of_ann, of_app = await app.store(b"x", ANN), await app.store(b"x")
    pending = (await app.announce(1, ANN)).json()["objectId"]

    async def change(file_id: str, user: str | None, **body: object) -> int:
        return (await app.request("PATCH", f"/objects/{file_id}", user, json=body)).status_code

    assert (await app.fetch(of_ann, BEN)).status_code == 404
    for other in (of_ann, of_app, pending):
        assert await change(other, BEN, public=True) == 404
    assert await change(pending, ANN, public=True) == 404
    assert await change(of_ann, ANN) == 400
    assert await change(of_ann, ANN, public="perhaps") == 400
    response = await app.request("PATCH", f"/objects/{of_ann}", ANN, json={"public": True})
    assert (response.status_code, response.json()["public"], response.json()["id"]) == (200, True, of_ann)
    url = (await app.request("GET", f"/download/{of_ann}", BEN)).json()["downloadUrl"]
    assert await change(of_ann, BEN, public=False) == 404
    # Those who run the app change the files of its users too. Ben keeps the address that he has until it expires.
    assert await change(of_ann, None, public=False) == await change(of_app, None, public=True) == 200
    assert (await app.fetch(of_ann, BEN)).status_code == 404
    assert (await app.fetch(of_app, BEN)).status_code == 200
    assert (await app.baobab.client.get(url)).status_code == 200
    assert await app.list_ids(BEN) == []
    rows = (await app.baobab.client.get(f"/v1/{app.id}/audit-logs", headers=app.baobab.owner)).json()["logs"]
    events = [row["event_type"] for row in rows if row["resource_id"] == of_ann]
    assert events.count("storage.update") == 2


async def test_a_file_whose_bytes_have_arrived_is_told_to_whoever_consumes_the_event(app: FilesApp) -> None:
    file_id = await app.store(b"told", ANN, filename="told.txt")
    events = metadata.tables["events"]
    query = select(events.c.data).where(events.c.app_id == app.id, events.c.type == "file.stored")
    async with app.baobab.application.services.database.reading() as connection:
        event_data = (await connection.execute(query)).scalars().all()
    assert event_data == [
        {
            "object_id": file_id,
            "key": f"{app.id}/{ANN}/{file_id}_told.txt",
            "filename": "told.txt",
            "content_type": "application/octet-stream",
            "size_bytes": 4,
            "user_id": ANN,
        }
    ]


async def test_uploads_and_deletions_are_in_the_audit_log(app: FilesApp) -> None:
    file_id = await app.store(b"x", ANN)
    await app.request("DELETE", f"/{file_id}", ANN)
    path = f"/v1/{app.id}/audit-logs"
    rows = (await app.baobab.client.get(path, headers=app.baobab.owner)).json()
    actors_by_event = {row["event_type"]: row["actor_type"] for row in rows["logs"] if row["resource_id"] == file_id}
    assert actors_by_event == {
        "storage.upload": "app_user",
        "storage.store": "signed_url",
        "storage.delete": "app_user",
    }


@pytest.mark.parametrize(
    "filename",
    [
        "../secret",
        "a/../b",
        "/etc/passwd",
        "a//b",
        "a\\b",
        "..",
        ".",
        " ",
        "a/ ",
        "a\nb",
        "a\x00b",
        "",
        "a\u202etxt.exe",
        "x" * 256,
    ],
)
async def test_a_name_that_leads_elsewhere_or_deceives_is_refused(app: FilesApp, filename: str) -> None:
    refusal = await app.announce(1, filename=filename)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")


@pytest.mark.parametrize("filename", ['a"; filename="b.html', "Ünï çødé 木.pdf", "a;b=c%0d%0a", "'", "x" * 255])
async def test_a_name_of_any_other_characters_comes_back_in_the_header(app: FilesApp, filename: str) -> None:
    file_id = await app.store(b"x", filename=filename)
    header = (await app.fetch(file_id)).headers["content-disposition"]
    assert header.startswith("attachment; ")
    assert header.count('"') == 2
    assert header.isascii()
    assert unquote(header.partition("filename*=UTF-8''")[2]) == filename


@pytest.mark.parametrize("content_type", ["text", "text/", "/plain", "text/plain\r\nx: y", "text/plain; a", "a" * 300])
async def test_what_is_no_content_type_is_refused(app: FilesApp, content_type: str) -> None:
    assert (await app.announce(1, contentType=content_type)).status_code == 400


async def test_files_of_a_paused_app_are_not_served(app: FilesApp) -> None:
    file_id = await app.store(b"x")
    url = (await app.request("GET", f"/download/{file_id}")).json()["downloadUrl"]
    config = f"/v1/{app.id}/config/pause"
    body = {"paused": True, "reason": "Back at noon."}
    await app.baobab.client.patch(config, json=body, headers=app.baobab.owner)
    for refusal in (await app.request("GET", "/objects"), await app.baobab.client.get(url)):
        assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "60")
        error = refusal.json()["error"]
        assert (error["code"], error["details"]) == ("APP_PAUSED", {"paused_reason": "Back at noon."})
    await app.baobab.client.patch(config, json={"paused": False}, headers=app.baobab.owner)
    assert (await app.baobab.client.get(url)).content == b"x"
