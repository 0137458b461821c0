"""A moved app takes its files along: rows, bytes, what it may store, and addresses that were given out before."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_due_jobs
from tests.tools.files.conftest import ANN, FilesApp

EU = "eu-west-1"


@pytest.fixture
async def baobab(tmp_path: Path, clock: FixedClock) -> AsyncIterator[Baobab]:
    (tmp_path / "regions.toml").write_text(f"[{EU}]\n")
    regions = {"BAOBAB_REGIONS": str(tmp_path / "regions.toml")}
    async with open_installation(tmp_path / "data", regions, clock=clock) as installation:
        yield installation


async def run_due_in_every_region(baobab: Baobab) -> None:
    for stores in baobab.application.services.regions.values():
        await run_due_jobs(baobab.application, stores.database)


async def test_files_their_quota_and_their_addresses_move_with_the_app(baobab: Baobab, clock: FixedClock) -> None:
    app = FilesApp(baobab, clock, await baobab.create_app())
    kept_id, deleted_id = await app.store(b"kept", ANN), await app.store(b"deleted")
    download = (await app.request("GET", f"/download/{kept_id}")).json()["downloadUrl"]
    body = (await app.announce(5)).json()
    assert (await app.request("DELETE", f"/{deleted_id}")).status_code == 204
    path = f"/v1/apps/{app.id}/move"
    move = (await baobab.client.post(path, json={"dest_region": EU}, headers=baobab.owner)).json()["migration_id"]
    state = {}
    for _ in range(20):
        await run_due_in_every_region(baobab)
        clock.advance(5)
        response = await baobab.client.get(f"/v1/apps/{app.id}/migrations/{move}", headers=baobab.owner)
        state = response.json()
        if state["completed_at"] is not None:
            break
    assert state["current_step"] == "completed", state
    assert (await baobab.client.get(download)).content == b"kept"
    assert (await app.send(body["uploadUrl"], b"hello")).status_code == 200
    assert set(await app.list_ids()) == {body["objectId"], kept_id}
    usage = await app.read_usage()
    assert (usage["storage_used_bytes"], usage["files_count"]) == (9, 2)
    clock.advance(20)
    await run_due_in_every_region(baobab)
    here, there = (baobab.application.services.regions[region].objects for region in ("local", EU))
    # The old region keeps a copy until it is removed; what was deleted is in neither.
    assert [key.split("/")[2] for key in await here.list(f"{app.id}/", "", 10)] == [kept_id]
    assert {key.split("/")[2] for key in await there.list(f"{app.id}/", "", 10)} == {body["objectId"], kept_id}


async def test_a_deleted_app_leaves_no_bytes(baobab: Baobab, clock: FixedClock) -> None:
    app = FilesApp(baobab, clock, await baobab.create_app())
    await app.store(b"x")
    assert await app.read_keys() != []
    response = await baobab.client.delete(f"/apps/{app.id}", headers=baobab.owner)
    assert response.is_success, response.text
    await run_due_in_every_region(baobab)
    assert await app.read_keys() == []
