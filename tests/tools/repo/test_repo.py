"""The repository of an app: prepared, uploaded, committed, read, pruned."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs
from tests.people import create_person

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Repository:
    baobab: Baobab
    clock: FixedClock
    app: str

    async def request(self, method: str, path: str, headers: Any = None, **options: Any) -> httpx.Response:
        url = f"/v1/{self.app}/repo{path}"
        headers = self.baobab.owner if headers is None else headers
        return await self.baobab.client.request(method, url, headers=headers, **options)

    async def prepare(self, files: list[dict[str, Any]]) -> httpx.Response:
        return await self.request("POST", "/snapshots/prepare", json={"files": files})

    async def commit(self, files: list[dict[str, Any]], **fields: Any) -> httpx.Response:
        return await self.request("POST", "/snapshots/commit", json={"manifest": {"files": files, **fields}})

    async def push(self, **contents: bytes) -> str:
        """Pushes files by name, uploads what is missing, and returns the snapshot's id."""
        files = [describe(path, content) for path, content in contents.items()]
        by_digest = {describe("", content)["sha256"]: content for content in contents.values()}
        for missing in (await self.prepare(files)).json()["missing_blobs"]:
            response = await self.baobab.client.put(missing["uploadUrl"], content=by_digest[missing["sha256"]])
            assert response.status_code == 200, response.text
        committed_response = await self.commit(files)
        assert committed_response.status_code == 200, committed_response.text
        snapshot_id: str = committed_response.json()["snapshot_id"]
        return snapshot_id

    async def list_ids(self) -> list[str]:
        answer = await self.request("GET", "/snapshots")
        return [snapshot["snapshot_id"] for snapshot in answer.json()["snapshots"]]

    async def read_keys(self) -> list[str]:
        objects = self.baobab.application.services.regions["local"].objects
        return list(await objects.list(f"{self.app}/", "", 1000))


def describe(path: str, content: bytes) -> dict[str, Any]:
    return {"path": path, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


@pytest.fixture(scope="module")
def clock() -> FixedClock:
    return FixedClock()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened_baobab(tmp_path_factory: pytest.TempPathFactory, clock: FixedClock) -> AsyncIterator[Baobab]:
    async with open_installation(tmp_path_factory.mktemp("repo"), clock=clock) as installation:
        yield installation


@pytest_asyncio.fixture(loop_scope="module")
async def repo(opened_baobab: Baobab, clock: FixedClock) -> Repository:
    return Repository(opened_baobab, clock, await opened_baobab.create_app())


async def test_files_are_pushed_and_pulled(repo: Repository) -> None:
    files = [describe("src/app.ts", b"export {}"), describe("README.md", b"# Hi"), describe("copy.md", b"# Hi")]
    body = (await repo.prepare(files)).json()
    assert (body["total_bytes"], body["file_count"]) == (17, 3)
    assert [missing["sha256"] for missing in body["missing_blobs"]] == [files[0]["sha256"], files[1]["sha256"]]
    for missing, content in zip(body["missing_blobs"], (b"export {}", b"# Hi"), strict=True):
        assert (await repo.baobab.client.put(missing["uploadUrl"], content=content)).status_code == 200
    committed_body = (await repo.commit(files, message="Begin")).json()
    assert committed_body["snapshot_id"] == body["snapshot_id"]
    latest = (await repo.request("GET", "/snapshots/latest")).json()
    assert latest == {"snapshot_id": body["snapshot_id"], "manifest": {"files": files, "message": "Begin"}}
    assert (await repo.request("GET", f"/snapshots/{body['snapshot_id']}")).json() == latest
    digests = [file["sha256"] for file in files]
    batch = (await repo.request("POST", "/blobs/batch", json={"shas": [*digests, "0" * 64]})).json()["blobs"]
    assert [(blob["sha256"], blob["size"], blob["expiresIn"]) for blob in batch] == [
        (digests[0], 9, 3600),
        (digests[1], 4, 3600),
    ]
    assert (await repo.baobab.client.get(batch[0]["downloadUrl"])).content == b"export {}"
    one = (await repo.request("GET", f"/blobs/{digests[1]}")).json()
    read = await repo.baobab.client.get(one["downloadUrl"])
    assert (read.content, read.headers["content-disposition"]) == (b"# Hi", "attachment")
    config = (await repo.baobab.client.get(f"/v1/{repo.app}/config", headers=repo.baobab.owner)).json()
    assert config["repo_latest_snapshot"] == body["snapshot_id"]


async def test_the_same_files_are_the_same_snapshot_and_upload_nothing_again(repo: Repository) -> None:
    first = await repo.push(a=b"1", b=b"2")
    body = (await repo.prepare([describe("b", b"2"), describe("a", b"1")])).json()
    assert (body["snapshot_id"], body["missing_blobs"]) == (first, [])
    other = await repo.push(a=b"1", b=b"3")
    assert await repo.list_ids() == [other, first]
    # A snapshot that is committed again becomes the latest.
    assert await repo.push(a=b"1", b=b"2") == first
    assert await repo.list_ids() == [first, other]


async def test_a_commit_names_what_is_missing_and_what_has_another_size(repo: Repository) -> None:
    await repo.push(a=b"1")
    lying = {**describe("a", b"1"), "size": 2}
    refusal = await repo.commit([lying, describe("b", b"2")])
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (409, "STATE_PREREQUISITE_MISSING")
    digest = describe("a", b"1")["sha256"]
    assert refusal.json()["error"]["details"] == {
        "missing_shas": [describe("b", b"2")["sha256"]],
        "size_mismatches": [{"sha256": digest, "declared": 2, "actual": 1}],
    }


async def test_the_last_five_snapshots_are_kept_and_the_rest_goes_with_its_contents(repo: Repository) -> None:
    snapshot_ids = [await repo.push(a=b"%d" % number, same=b"same") for number in range(7)]
    assert await repo.list_ids() == snapshot_ids[:1:-1]
    assert (await repo.request("GET", f"/snapshots/{snapshot_ids[0]}")).status_code == 404
    repo.clock.advance(3601)
    snapshot_ids.append(await repo.push(a=b"7", same=b"same"))
    await run_due_jobs(repo.baobab.application)
    sha256s = {describe("", content)["sha256"] for content in (b"3", b"4", b"5", b"6", b"7", b"same")}
    assert {key.split("/")[2] for key in await repo.read_keys()} == sha256s
    assert (await repo.request("GET", f"/blobs/{describe('', b'0')['sha256']}")).status_code == 404


@pytest.mark.parametrize("content", [b"xx", b"x", b"", b"xxx"])
async def test_a_body_that_is_not_the_content_is_refused_and_leaves_nothing(repo: Repository, content: bytes) -> None:
    (missing,) = (await repo.prepare([describe("a", b"ok")])).json()["missing_blobs"]
    assert (await repo.baobab.client.put(missing["uploadUrl"], content=content)).status_code == 400
    assert await repo.read_keys() == []
    assert (await repo.baobab.client.put(missing["uploadUrl"], content=b"ok")).status_code == 200
    # The same bytes may be sent again; they are there once.
    assert (await repo.baobab.client.put(missing["uploadUrl"], content=b"ok")).status_code == 200
    assert len(await repo.read_keys()) == 1


async def test_an_upload_address_is_good_for_one_content_and_ten_minutes(repo: Repository) -> None:
    files = [describe("a", b"one"), describe("b", b"two")]
    first, second = [missing["uploadUrl"] for missing in (await repo.prepare(files)).json()["missing_blobs"]]
    swapped_url = first.replace(files[0]["sha256"], files[1]["sha256"])
    other_app = first.replace(repo.app, await repo.baobab.create_app())
    for forged_url in (swapped_url, other_app, first.replace("size=3", "size=4")):
        refusal = await repo.baobab.client.put(forged_url, content=b"two")
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "FILE_URL_INVALID")
    assert (await repo.baobab.client.get(first)).status_code in (400, 403)
    repo.clock.advance(600)
    refusal = await repo.baobab.client.put(second, content=b"two")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "FILE_URL_EXPIRED")


@pytest.mark.parametrize("path", ["../a", "a/../b", "/a", "a//b", "a\\b", "a\x00", "", ".", "ä", "a\n", "x" * 4097])
async def test_a_path_that_leads_elsewhere_is_refused(repo: Repository, path: str) -> None:
    assert (await repo.prepare([describe(path, b"x")])).status_code == 400


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ([describe("a", b"1"), describe("a", b"2")], 400),
        ([describe("a", b"1"), {**describe("b", b"1"), "size": 2}], 400),
        ([{**describe("a", b""), "size": 10 * 2**20 + 1}], 413),
        ([{**describe(str(n), b"%d" % n), "size": 10 * 2**20} for n in range(11)], 413),
        ([{**describe("a", b""), "sha256": "A" * 64}], 400),
    ],
)
async def test_a_snapshot_that_cannot_be_is_refused(repo: Repository, files: Any, status: int) -> None:
    for refusal in (await repo.prepare(files), await repo.commit(files)):
        assert refusal.status_code == status


async def test_the_repository_of_a_public_app_is_read_by_everybody_and_written_by_its_owner(repo: Repository) -> None:
    snapshot = await repo.push(a=b"1")
    digest = describe("", b"1")["sha256"]
    stranger = await create_person(repo.baobab, "repo-stranger")
    reads = ("/snapshots", "/snapshots/latest", f"/snapshots/{snapshot}", f"/blobs/{digest}")
    for path in reads:
        for headers in ({}, stranger.headers):
            assert (await repo.request("GET", path, headers)).status_code == 404
    shown_body = {"visibility": "public"}
    path = f"/v1/{repo.app}/config"
    await repo.baobab.client.patch(f"{path}/visibility", json=shown_body, headers=repo.baobab.owner)
    mode = {"access_mode": "authenticated"}
    await repo.baobab.client.patch(f"{path}/access-mode", json=mode, headers=repo.baobab.owner)
    for path in reads:
        for headers in ({}, stranger.headers):
            assert (await repo.request("GET", path, headers)).status_code == 200
    body: dict[str, Any] = {"manifest": {"files": []}}
    assert (await repo.request("POST", "/snapshots/commit", {}, json=body)).status_code == 401
    assert (await repo.request("POST", "/snapshots/commit", stranger.headers, json=body)).status_code == 403
    assert (await repo.request("DELETE", "", stranger.headers)).status_code == 403


async def test_a_deleted_repository_leaves_nothing(repo: Repository) -> None:
    await repo.push(a=b"1", b=b"2")
    response = await repo.request("DELETE", "")
    assert response.json() == {"message": "The repository was deleted.", "app_id": repo.app}
    assert await repo.list_ids() == []
    assert (await repo.request("GET", "/snapshots/latest")).status_code == 404
    await run_due_jobs(repo.baobab.application)
    assert await repo.read_keys() == []
    config = (await repo.baobab.client.get(f"/v1/{repo.app}/config", headers=repo.baobab.owner)).json()
    assert config["repo_latest_snapshot"] is None
    assert len(await repo.push(a=b"1")) == 64
