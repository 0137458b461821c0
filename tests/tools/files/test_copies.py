"""Files that are renamed, moved, copied, and deleted many at a time."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import insert, select

from baobab.tools.files.tables import files_table
from tests.jobs import run_due_jobs
from tests.tools.files.conftest import ANN, BEN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_file_is_renamed_and_moved_without_its_bytes_and_keeps_its_id(app: FilesApp) -> None:
    file_id = await app.store(b"hello", ANN, filename="draft.txt")
    keys = await app.read_keys()
    answer = await app.request("PATCH", f"/objects/{file_id}", ANN, json={"filename": "done/final.txt"})
    assert (answer.status_code, answer.json()["filename"], answer.json()["id"]) == (200, "done/final.txt", file_id)
    assert answer.json()["key"].endswith(f"{file_id}_done/final.txt")
    assert await app.read_keys() == keys
    assert (await app.fetch(file_id, ANN)).headers["content-disposition"].startswith('attachment; filename="final.txt"')
    assert (await app.request("GET", "/named/done/final.txt", ANN)).json()["id"] == file_id
    assert (await app.request("GET", "/named/draft.txt", ANN)).status_code == 404
    for filename in ("../x", "a//b", "", "a\u202eb"):
        assert (await app.request("PATCH", f"/objects/{file_id}", ANN, json={"filename": filename})).status_code == 400
    assert (await app.request("PATCH", f"/objects/{file_id}", BEN, json={"filename": "mine"})).status_code == 404


async def test_a_copy_is_a_file_of_its_own(app: FilesApp) -> None:
    source_id = await app.store(b"hello", filename="a.txt", contentType="text/plain", public=True, metadata={"a": "b"})
    copy = await app.request("POST", f"/objects/{source_id}/copy", ANN, json={"filename": "mine/a.txt"})
    assert copy.status_code == 201, copy.text
    row = copy.json()
    assert (row["filename"], row["user_id"], row["public"], row["metadata"]) == ("mine/a.txt", ANN, False, {"a": "b"})
    assert (row["content_type"], row["size_bytes"]) == ("text/plain", 5)
    assert (await app.request("DELETE", f"/{source_id}")).status_code == 204
    await run_due_jobs(app.baobab.application)
    assert (await app.fetch(row["id"], ANN)).content == b"hello"
    assert (await app.fetch(row["id"], BEN)).status_code == 404
    assert (await app.read_usage())["storage_used_bytes"] == 5


async def test_a_copy_obeys_rights_types_and_quota(app: FilesApp) -> None:
    hidden_id = await app.store(b"hello", ANN)
    assert (await app.request("POST", f"/objects/{hidden_id}/copy", BEN, json={})).status_code == 404
    await app.set_storage(storageLimitBytes=9)
    full = await app.request("POST", f"/objects/{hidden_id}/copy", ANN, json={})
    assert (full.status_code, full.json()["error"]["code"]) == (402, "QUOTA_STORAGE_EXCEEDED")
    await app.set_storage(storageLimitBytes=100, allowedContentTypes=["image/*"])
    other_type = await app.request("POST", f"/objects/{hidden_id}/copy", ANN, json={})
    assert (other_type.status_code, other_type.json()["error"]["code"]) == (400, "VALIDATION_INVALID_TYPE")
    assert await app.list_ids() == [hidden_id]


async def test_a_copy_with_a_key_is_made_once(app: FilesApp) -> None:
    source_id = await app.store(b"hello", public=True)
    path = f"/objects/{source_id}/copy"

    async def copy(user: str | None, key: str, **body: object) -> tuple[int, str]:
        headers = {**await app.headers(user), "idempotency-key": key}
        answer = await app.baobab.client.post(f"/storage/{app.id}{path}", headers=headers, json=body)
        return answer.status_code, answer.json().get("id") or answer.json()["error"]["code"]

    first = await copy(ANN, "k", filename="a")
    assert first[0] == 201
    answers = await asyncio.gather(*(copy(ANN, "k", filename="a") for _ in range(3)))
    assert set(answers) == {first}
    assert await copy(ANN, "k", filename="b") == (409, "FILES_KEY_REUSED")
    other_user, other_key = await copy(BEN, "k", filename="a"), await copy(ANN, "l", filename="a")
    assert len({first, other_user, other_key}) == 3
    assert (await app.request("DELETE", f"/{source_id}")).status_code == 204
    assert await copy(ANN, "k", filename="a") == first
    assert await copy(ANN, "m", filename="a") == (404, "RESOURCE_NOT_FOUND")


async def test_many_files_are_deleted_by_their_ids(app: FilesApp) -> None:
    of_ann, of_ben = [await app.store(b"hello", ANN) for _ in range(2)], await app.store(b"hello", BEN)
    pending_id = (await app.announce(3, ANN)).json()["objectId"]
    missing_id = "00000000-0000-7000-8000-000000000000"
    body = {"ids": [*of_ann, of_ben, pending_id, missing_id]}
    answer = await app.request("POST", "/objects/delete", ANN, json=body)
    assert (answer.status_code, answer.json()["has_more"]) == (200, False)
    assert answer.json()["deleted_ids"] == sorted([*of_ann, pending_id])
    assert answer.json()["missing_ids"] == sorted([of_ben, missing_id])
    assert await app.list_ids() == [of_ben]
    usage = (await app.request("GET", "/usage", ANN)).json()
    assert (usage["storage_used_bytes"], usage["files_count"], usage["user_used_bytes"]) == (5, 1, 0)
    await run_due_jobs(app.baobab.application)
    assert [key.split("/")[2] for key in await app.read_keys()] == [of_ben]


async def test_many_files_are_deleted_by_the_prefix_of_their_names(app: FilesApp) -> None:
    of_ann = await app.store(b"x", ANN, filename="drafts/a.txt")
    kept_ids = {
        await app.store(b"x", ANN, filename="drafts.txt"),
        await app.store(b"x", ANN, filename="Drafts/b.txt"),
        await app.store(b"x", BEN, filename="drafts/c.txt"),
    }
    answer = await app.request("POST", "/objects/delete", ANN, json={"prefix": "drafts/"})
    assert answer.json() == {"deleted_ids": [of_ann], "missing_ids": [], "has_more": False}
    assert set(await app.list_ids()) == kept_ids
    bad_bodies: list[dict[str, Any]] = [
        {},
        {"prefix": ""},
        {"ids": []},
        {"ids": [of_ann], "prefix": "a"},
        {"ids": [of_ann] * 501},
    ]
    for body in bad_bodies:
        assert (await app.request("POST", "/objects/delete", None, json=body)).status_code == 400, body
    assert set(await app.list_ids()) == kept_ids


async def test_one_call_deletes_a_bounded_number_and_says_that_there_are_more(app: FilesApp) -> None:
    file_id = await app.store(b"", filename="many/0")
    async with app.database.writing(lock=app.id) as connection:
        row = (await connection.execute(select(files_table).where(files_table.c.id == file_id))).one()._asdict()
        ids = [f"00000000-0000-7000-8000-{number:012}" for number in range(500)]
        await connection.execute(insert(files_table), [{**row, "id": each} for each in ids])
    answer = (await app.request("POST", "/objects/delete", json={"prefix": "many/"})).json()
    assert (answer["deleted_ids"], answer["has_more"]) == (ids, True)
    answer = (await app.request("POST", "/objects/delete", json={"prefix": "many/"})).json()
    assert answer == {"deleted_ids": [file_id], "missing_ids": [], "has_more": False}
