"""A moved app takes its collections along, and documents that were being read get ready there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select

from baobab.storage.sql.tables import metadata
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_job
from tests.tools.rag.conftest import ANN, BEN, FACTS, RagApp

EU = "eu-west-1"


@pytest.fixture
async def baobab(tmp_path: Path, clock: FixedClock) -> AsyncIterator[Baobab]:
    (tmp_path / "regions.toml").write_text(f"[{EU}]\n")
    regions = {"BAOBAB_REGIONS": str(tmp_path / "regions.toml")}
    async with open_installation(tmp_path / "data", regions, clock=clock) as installation:
        yield installation


async def test_collections_move_with_the_app(baobab: Baobab, clock: FixedClock) -> None:
    app = RagApp(baobab, clock, await baobab.create_app())
    ids = await app.ingest_facts()
    path = f"/v1/apps/{app.id}/move"
    response = await app.request("POST", "/facts/ingest", json={"text": "Whales sing under water."})
    move = (await baobab.client.post(path, json={"dest_region": EU}, headers=baobab.owner)).json()["migration_id"]
    state = {}
    for _ in range(20):
        await app.run_jobs()
        clock.advance(5)
        state = (await baobab.client.get(f"/v1/apps/{app.id}/migrations/{move}", headers=baobab.owner)).json()
        if state["completed_at"] is not None:
            break
    assert state["current_step"] == "completed", state
    clock.advance(61)
    await run_job(baobab.application, "rag_sweep")
    await app.run_jobs()
    assert (await app.find("wild yeast in bread"))[0] == ids["bread"]
    document_id = response.json()["documentId"]
    assert (await app.get(document_id))["status"] == "ready"
    assert (await app.find("whales sing"))[0] == document_id
    assert await app.ingest(FACTS["trees"], metadata={"topic": "trees"}) == ids["trees"]
    await _check_that_old_jobs_clean_here(app)


async def _check_that_old_jobs_clean_here(app: RagApp) -> None:
    """A job that was asked for before the move deletes in the new region."""
    services, table = app.baobab.application.services, metadata.tables["rag_texts"]
    text_row = {"app_id": app.id, "document_id": BEN, "version": 1, "part": 0, "collection_id": ANN}
    async with services.regions[EU].database.writing() as connection:
        await connection.execute(insert(table).values({**text_row, "text": "", "blocks": []}))
    unit = services.database.build_unit(write=True)
    await services.jobs.enqueue(unit, "rag_clean", {"app_id": app.id, "collection_id": ANN, "document_id": BEN})
    await unit.commit()
    # The first job asks for the second.
    for _ in range(2):
        await app.run_jobs()
    async with services.regions[EU].database.reading() as connection:
        assert await connection.scalar(select(func.count()).where(table.c.document_id == BEN)) == 0


async def test_searches_find_the_same_after_a_restart(tmp_path: Path) -> None:
    clock = FixedClock()
    async with open_installation(tmp_path / "data", clock=clock) as installation:
        app = RagApp(installation, clock, await installation.create_app())
        await app.ingest_facts()
        before = await app.query("trees and water", topK=3)
    async with open_installation(tmp_path / "data", clock=clock) as installation:
        again = RagApp(installation, clock, app.id)
        assert await again.query("trees and water", topK=3) == before
