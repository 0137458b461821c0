"""Files by the beginning and a part of their names, by folder, in other orders, and by their metadata."""

from datetime import datetime

import pytest

from tests.tools.files.conftest import ANN, BEN, FilesApp

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAMES = ("photos/2027/a.png", "photos/2027/b.png", "photos/Zoo.png", "photos2/c.png", "100%_done.txt", "Ärger.txt")


async def store_names(app: FilesApp, user: str | None = None) -> dict[str, str]:
    """Stores a file of each name, each larger than the one before. Returns their ids by name."""
    file_ids = {}
    for size, name in enumerate(NAMES, 1):
        file_ids[name] = await app.store(b"x" * size, user, filename=name)
        app.clock.advance(0.01)
    return file_ids


async def list_names(app: FilesApp, user: str | None = None, **query: str) -> list[str]:
    answer = await app.request("GET", "/objects", user, params=query)
    assert answer.status_code == 200, answer.text
    return [row["filename"] for row in answer.json()]


async def test_files_are_found_by_the_beginning_and_by_a_part_of_their_names(app: FilesApp) -> None:
    await store_names(app)
    assert await list_names(app, prefix="photos/", sort="name") == [NAMES[0], NAMES[1], NAMES[2]]
    assert await list_names(app, prefix="photos/", direct="true") == ["photos/Zoo.png"]
    assert await list_names(app, direct="true") == ["Ärger.txt", "100%_done.txt"]
    assert await list_names(app, name="zoo") == ["photos/Zoo.png"]
    # Neither of these characters stands for others.
    assert await list_names(app, name="%_") == ["100%_done.txt"]
    assert await list_names(app, prefix="100%") == ["100%_done.txt"]
    assert await list_names(app, prefix="%") == await list_names(app, prefix="PHOTOS/") == []


@pytest.mark.parametrize("sort", ["created", "name", "size"])
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_each_order_is_the_same_page_by_page(app: FilesApp, sort: str, order: str) -> None:
    await store_names(app)
    # Equal names and sizes need an order too.
    await store_names(app)
    rows = (await app.request("GET", "/objects", params={"sort": sort, "order": order})).json()
    field = {"created": "created_at", "name": "filename", "size": "size_bytes"}[sort]
    values = [datetime.fromisoformat(row[field]) if sort == "created" else row[field] for row in rows]
    assert values == sorted(values, reverse=order == "desc")
    paged_ids: list[str] = []
    while len(paged_ids) < len(rows):
        cursor = {"cursor": paged_ids[-1]} if paged_ids else {}
        page = await app.request("GET", "/objects", params={"sort": sort, "order": order, "limit": "5", **cursor})
        assert page.json(), paged_ids
        paged_ids += [row["id"] for row in page.json()]
    assert paged_ids == [row["id"] for row in rows]


async def test_a_cursor_by_name_ends_with_its_file_and_shows_nothing_of_a_hidden_one(app: FilesApp) -> None:
    of_ann = await store_names(app, ANN)
    await store_names(app, BEN)
    for file_id in (of_ann[NAMES[0]], "00000000-0000-7000-8000-000000000000"):
        answer = await app.request("GET", f"/objects?sort=name&cursor={file_id}", BEN)
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            400,
            "The file of the cursor has been deleted.",
        )


async def test_folders_show_what_is_in_them_and_nothing_of_others(app: FilesApp) -> None:
    await store_names(app, ANN)
    await app.store(b"hidden", BEN, filename="photos/secret/x.png")

    async def list_folders(user: str | None, **query: str) -> list[tuple[str, int, int]]:
        answer = await app.request("GET", "/folders", user, params=query)
        assert answer.status_code == 200, answer.text
        assert answer.json()["has_more"] is False
        return [(row["prefix"], row["files_count"], row["size_bytes"]) for row in answer.json()["folders"]]

    assert await list_folders(ANN) == [("photos/", 3, 6), ("photos2/", 1, 4)]
    assert await list_folders(ANN, prefix="photos/") == [("photos/2027/", 2, 3)]
    assert await list_folders(ANN, prefix="photos/2027/") == []
    assert await list_folders(None, prefix="photos/") == [("photos/2027/", 2, 3), ("photos/secret/", 1, 6)]
    assert await list_folders(BEN) == [("photos/", 1, 6)]


async def test_texts_of_ones_own_are_stored_changed_and_found(app: FilesApp) -> None:
    first_id = await app.store(b"x", ANN, metadata={"album": "summer", "by": "Ann"})
    second_id = await app.store(b"x", ANN, metadata={"album": "winter"})
    body = {"filename": "c.txt", "contentType": "text/plain", "content": "x", "metadata": {"album": "summer"}}
    third_id = (await app.request("POST", "/objects", ANN, json=body)).json()["id"]
    await app.store(b"x", BEN, metadata={"album": "summer"})

    async def find(**query: str) -> set[str]:
        answer = await app.request("GET", "/objects", ANN, params=query)
        assert answer.status_code == 200, answer.text
        return {row["id"] for row in answer.json()}

    assert await find(metadata_name="album", metadata_value="summer") == {first_id, third_id}
    assert await find(metadata_name="by") == {first_id}
    assert await find(metadata_name="album", metadata_value="Summer") == set()
    change_answer = await app.request("PATCH", f"/objects/{second_id}", ANN, json={"metadata": {"album": "summer"}})
    assert change_answer.json()["metadata"] == {"album": "summer"}
    assert await find(metadata_name="album", metadata_value="summer") == {first_id, second_id, third_id}
    empty_answer = await app.request("PATCH", f"/objects/{second_id}", ANN, json={"metadata": {}})
    assert empty_answer.json()["metadata"] == {}
    assert (await app.request("GET", "/objects?metadata_value=x", ANN)).status_code == 400


@pytest.mark.parametrize(
    "metadata", [{"a b": "x"}, {"": "x"}, {"a": 1}, {"a": "x" * 501}, {f"n{number}": "" for number in range(21)}]
)
async def test_texts_of_ones_own_are_few_and_short(app: FilesApp, metadata: object) -> None:
    assert (await app.announce(1, metadata=metadata)).status_code == 400
