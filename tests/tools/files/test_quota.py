"""What an app may store: exact whoever asks at the same time, and whatever is killed in between."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import insert, select

from baobab.tools.files.tables import files_table
from tests.jobs import jobs, run_due_jobs, run_job
from tests.tools.files.conftest import ANN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_of_many_uploads_at_once_exactly_those_are_taken_that_fit(app: FilesApp) -> None:
    await app.set_storage(storageLimitBytes=1000)
    answers = await asyncio.gather(*(app.announce(90, ANN if number % 2 else None) for number in range(20)))
    uploads = [answer.json() for answer in answers if answer.status_code == 200]
    assert len(uploads) == 11
    refusal = next(answer for answer in answers if answer.status_code != 200)
    error = refusal.json()["error"]
    assert (refusal.status_code, error["code"]) == (402, "QUOTA_STORAGE_EXCEEDED")
    assert error["details"] == {"current_usage_bytes": 990, "limit_bytes": 1000}
    responses = await asyncio.gather(*(app.send(each["uploadUrl"], b"x" * 90) for each in uploads))
    assert {each.status_code for each in responses} == {200}
    usage = (await app.announce(10)).json()["_meta"]["resource_info"]
    assert (usage["storage_used_bytes"], usage["storage_used_percent"], usage["files_count"]) == (990, 99.0, 11)


async def test_a_file_that_is_too_large_or_of_a_refused_type_is_not_announced(app: FilesApp) -> None:
    refusal = await app.announce(10 * 2**20 + 1)
    error = refusal.json()["error"]
    assert (refusal.status_code, error["code"]) == (413, "QUOTA_FILE_SIZE_EXCEEDED")
    assert error["details"] == {"file_size_bytes": 10 * 2**20 + 1, "max_file_size_bytes": 10 * 2**20}
    await app.set_storage(maxFileSizeMb=11, allowedContentTypes=["image/*", "text/CSV"])
    assert (await app.announce(10 * 2**20 + 1, contentType="image/png")).status_code == 200
    assert (await app.announce(1, contentType="text/csv; charset=utf-8")).status_code == 200
    for content_type in ("text/html", "imagex/png", "text/csvx"):
        refusal = await app.announce(1, contentType=content_type)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_INVALID_TYPE")


async def test_an_upload_that_never_comes_holds_its_room_as_long_as_its_address_lives(app: FilesApp) -> None:
    await app.set_storage(storageLimitBytes=10)
    assert (await app.announce(7)).status_code == 200
    assert (await app.announce(3)).json()["_meta"]["resource_info"]["storage_reserved_bytes"] == 10
    assert (await app.announce(1)).status_code == 402

    async def read_reserved() -> tuple[int, int]:
        usage = (await app.request("GET", "/usage")).json()
        return usage["storage_used_bytes"], usage["storage_reserved_bytes"]

    assert await read_reserved() == (0, 10)
    app.clock.advance(300)
    assert await read_reserved() == (0, 0)
    await app.store(b"x" * 10)
    assert await read_reserved() == (10, 0)


async def test_an_upload_that_outlasts_its_room_is_stored_only_if_there_is_room_still(app: FilesApp) -> None:
    await app.set_storage(storageLimitBytes=10)
    for others in (True, False):
        body = (await app.announce(10)).json()

        async def send_slowly(others: bool = others) -> AsyncIterator[bytes]:
            yield b"x" * 5
            app.clock.advance(301)
            if others:
                await app.store(b"y" * 10)
            yield b"x" * 5

        response = await app.send(body["uploadUrl"], send_slowly())
        assert response.status_code == (402 if others else 200)
        ids = await app.list_ids()
        assert len(ids) == len(await app.read_keys()) == 1
        await app.request("DELETE", f"/{ids[0]}")
        await run_due_jobs(app.baobab.application)


async def test_two_requests_with_the_bytes_of_one_file_store_it_once(app: FilesApp) -> None:
    body = (await app.announce(4)).json()
    first, second = await asyncio.gather(*(app.send(body["uploadUrl"], content) for content in (b"abcd", b"efgh")))
    assert sorted([first.status_code, second.status_code]) == [200, 409]
    assert len(await app.read_keys()) == 1
    assert (await app.read_usage())["storage_used_bytes"] == 4


async def test_bytes_without_a_row_are_not_counted_and_the_upload_can_be_repeated(app: FilesApp) -> None:
    """What a process leaves that is killed after the bytes are stored, and before the row says so."""
    body = (await app.announce(5)).json()

    async def content() -> AsyncIterator[bytes]:
        yield b"other"

    leftover_key = f"{app.id}/files/{body['objectId']}/33333333-3333-4333-8333-333333333333"
    await app.objects.put(leftover_key, content(), content_type="text/plain", max_bytes=5)
    assert (await app.list_ids(), (await app.read_usage())["storage_used_bytes"]) == ([], 0)
    assert (await app.send(body["uploadUrl"], b"hello")).status_code == 200
    assert (await app.fetch(body["objectId"])).content == b"hello"
    assert (await app.read_usage())["storage_used_bytes"] == 5
    assert (await app.request("DELETE", f"/{body['objectId']}")).status_code == 204
    await run_due_jobs(app.baobab.application)
    assert await app.read_keys() == []


async def test_the_sweep_removes_uploads_that_did_not_come_within_a_day(app: FilesApp) -> None:
    stored_id, old = await app.store(b"x"), (await app.announce(5)).json()["objectId"]

    async def content() -> AsyncIterator[bytes]:
        yield b"other"

    leftover_key = f"{app.id}/files/{old}/33333333-3333-4333-8333-333333333333"
    await app.objects.put(leftover_key, content(), content_type="text/plain", max_bytes=5)
    app.clock.advance(24 * 3600)
    young = (await app.announce(5)).json()["objectId"]
    app.clock.advance(1)
    await run_job(app.baobab.application, "files_sweep")
    await run_due_jobs(app.baobab.application)
    assert [key.split("/")[2] for key in await app.read_keys()] == [stored_id]
    assert (await app.request("DELETE", f"/{old}")).status_code == 404
    assert (await app.request("DELETE", f"/{young}")).status_code == 204
    assert await app.list_ids() == [stored_id]


async def test_bytes_to_which_no_file_refers_are_swept(app: FilesApp) -> None:
    stored_id, arriving = await app.store(b"x"), (await app.announce(5)).json()["objectId"]
    missing_id = "44444444-4444-4444-8444-444444444444"

    async def content() -> AsyncIterator[bytes]:
        yield b"other"

    for file_id in (stored_id, arriving, missing_id):
        key = f"{app.id}/files/{file_id}/33333333-3333-4333-8333-333333333333"
        await app.objects.put(key, content(), content_type="text/plain", max_bytes=5)
    assert len(await app.read_keys()) == 4
    await run_job(app.baobab.application, "files_leftovers")
    assert sorted(key.split("/")[2] for key in await app.read_keys()) == sorted([stored_id, arriving])
    assert (await app.fetch(stored_id)).content == b"x"


async def test_nobody_begins_more_uploads_than_a_thousand(app: FilesApp) -> None:
    upload_id = (await app.announce(0, ANN)).json()["objectId"]
    async with app.database.writing_unit(lock=app.id) as unit:
        row = (await unit.execute(select(files_table).where(files_table.c.id == upload_id))).one()._asdict()
        await unit.execute(insert(files_table), [{**row, "id": f"{upload_id[:-4]}g{n:03}"} for n in range(998)])
    answers = [await app.announce(0, ANN) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[-1].json()["error"]["code"] == "FILES_UPLOADS_OPEN"
    assert (await app.announce(0)).status_code == 200
    # Uploads that never came go a few hundred at a time, and a job for each such round deletes what has arrived.
    file_id = await app.store(b"x")
    app.clock.advance(24 * 3600 + 1)
    await run_job(app.baobab.application, "files_sweep")
    async with app.database.reading() as connection:
        remaining_ids = select(files_table.c.id).where(files_table.c.app_id == app.id)
        assert (await connection.execute(remaining_ids)).scalars().all() == [file_id]
        erasing = select(jobs.c.arguments).where(jobs.c.kind == "files_erase_many")
        rounds = [row for row in (await connection.execute(erasing)).scalars() if row["app_id"] == app.id]
    assert sum(len(row["file_ids"]) for row in rounds) == 1001
    assert max(len(row["file_ids"]) for row in rounds) <= 200
    await run_due_jobs(app.baobab.application)
    assert (await app.fetch(file_id)).content == b"x"
