"""Moving an app to another region: nothing is lost, and nothing is written where nobody will read it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baobab.tools.core.stores import Stores
from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.mcp_server.mcp_requests import call_tool, read_refusal
from tests.people import create_person

EU = "eu-west-1"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def baobab(tmp_path: Path, clock: FixedClock) -> AsyncIterator[Baobab]:
    regions = tmp_path / "regions.toml"
    regions.write_text(f"[{EU}]\n[us-west-2]\n")
    async with open_installation(tmp_path / "data", {"BAOBAB_REGIONS": str(regions)}, clock=clock) as installation:
        yield installation


def get_stores(baobab: Baobab, region: str) -> Stores:
    return baobab.application.services.regions[region]


async def ask(baobab: Baobab, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
    return await baobab.client.request(method, path, json=body, headers=headers or baobab.owner)


async def create_filled_app(baobab: Baobab, **settings: Any) -> str:
    """An app with a counter, a value of each tier and one that expires."""
    app = await baobab.create_app(**settings)
    await ask(baobab, "POST", f"/v1/{app}/kv/n/incr", {"by": 7})
    await ask(baobab, "PUT", f"/v1/{app}/kv/deep", {"value": {"a": [1, 2, None]}, "ttl": None})
    await ask(baobab, "PUT", f"/v1/{app}/kv/soon", {"value": "gone", "ttl": 3600})
    await ask(baobab, "PUT", f"/v1/{app}/kv/light", {"value": 1, "ephemeral": True})
    return app


async def read_contents(baobab: Baobab, app: str) -> dict[str, Any]:
    keys = (await ask(baobab, "GET", f"/v1/{app}/kv/_scan")).json()["keys"]
    contents = {}
    for key in keys:
        body = (await ask(baobab, "GET", f"/v1/{app}/kv/{key}/ttl")).json()
        contents[key] = ((await ask(baobab, "GET", f"/v1/{app}/kv/{key}")).json(), body)
    return contents


async def start_move(baobab: Baobab, app: str, to: str = EU) -> str:
    response = await ask(baobab, "POST", f"/v1/apps/{app}/move", {"dest_region": to})
    assert response.status_code == 202, response.text
    assert response.json()["status"] == "queued"
    move: str = response.json()["migration_id"]
    return move


async def wait_for_end(baobab: Baobab, clock: FixedClock, app: str, move: str) -> dict[str, Any]:
    """The move, once it has come to an end."""
    for _ in range(20):
        await jobs.run_due_jobs(baobab.application)
        migration: dict[str, Any] = (await ask(baobab, "GET", f"/v1/apps/{app}/migrations/{move}")).json()
        if migration["completed_at"] is not None:
            return migration
        clock.advance(5)
    raise AssertionError(migration)


async def test_everything_is_there_after_the_move_and_nothing_was_lost_on_the_way(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    table = {"columns": {"id": {"type": "integer", "primaryKey": True}}}
    await ask(baobab, "POST", f"/v1/{app}/schema/apply", {"schema": {"tables": {"notes": table, "empty": table}}})
    await ask(baobab, "POST", f"/v1/{app}/notes", [{"id": 1}, {"id": 2}, {"id": 3}])
    await baobab.user_headers(app, "11111111-1111-4111-8111-111111111111")
    body = {"filename": "a.txt", "contentType": "text/plain", "sizeBytes": 2}
    for _ in range(2):
        # The second one never gets its bytes, and is no file yet.
        upload = (await ask(baobab, "POST", f"/storage/{app}/upload", body)).json()
    upload_answer = await baobab.client.put(upload["uploadUrl"], content=b"hi", headers={"content-type": "text/plain"})
    assert upload_answer.status_code == 200, upload_answer.text
    await ask(baobab, "POST", f"/v1/{app}/rag/collections", {"name": "facts"})
    await ask(baobab, "POST", f"/v1/{app}/rag/collections/facts/ingest", {"text": "Baobabs store water."})
    await jobs.run_due_jobs(baobab.application)
    usage = await get_stores(baobab, "local").kv.usage(app)
    move = await wait_for_end(baobab, clock, app, await start_move(baobab, app))
    assert (move["current_step"], move["source_region"], move["dest_region"]) == ("completed", "local", EU)
    counts = {"rows": 3, "files": 1, "users": 1, "vectors": 1}
    assert move["progress"] == {"keys": usage.keys, "bytes": usage.bytes, **counts}
    assert move["last_error"] is None
    status = (await ask(baobab, "GET", f"/v1/{app}/config")).json()
    assert status["region"] == EU
    assert await get_stores(baobab, EU).kv.usage(app) == usage
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/n")).json() == {"value": 7}
    assert (await ask(baobab, "POST", f"/v1/{app}/kv/n/incr")).json() == {"value": 8}


async def test_triggers_move_with_their_app_and_each_event_and_hour_starts_something_once(
    baobab: Baobab, clock: FixedClock
) -> None:
    app = await create_filled_app(baobab)
    table = {"columns": {"id": {"type": "integer", "primaryKey": True}}}
    await ask(baobab, "POST", f"/v1/{app}/schema/apply", {"schema": {"tables": {"notes": table}}})
    graph = {"spec_version": 1, "entry": "done", "nodes": {"done": {"type": "end"}}, "edges": []}
    await ask(baobab, "POST", f"/v1/{app}/agents", {"name": "helper", "graph_spec": graph})
    waits = {
        "rows": {"event": "row.inserted", "table": "notes"},
        "keys": {"event": "key.changed", "prefix": "order:"},
        "own": {"event": "custom.paid"},
        "hours": {"event": "schedule", "schedule": "0 * * * *"},
    }
    for name, body in waits.items():
        answer = await ask(baobab, "PUT", f"/v1/{app}/triggers/{name}", {**body, "agent": "helper"})
        assert answer.status_code == 200, answer.text
    next_at = (await ask(baobab, "GET", f"/v1/{app}/triggers/hours")).json()["next_at"]

    async def cause(number: int) -> None:
        for method, path, body in (
            ("POST", "notes", {"id": number}),
            ("PUT", f"kv/order:{number}", {"value": number}),
            ("POST", "events", {"name": "paid", "data": {"order": number}}),
        ):
            answer = await ask(baobab, method, f"/v1/{app}/{path}", body)
            assert answer.status_code < 300, answer.text

    # The first are on their way when the move begins.
    await cause(1)
    move = await wait_for_end(baobab, clock, app, await start_move(baobab, app))
    assert (move["current_step"], move["last_error"]) == ("completed", None)
    triggers = (await ask(baobab, "GET", f"/v1/{app}/triggers")).json()["triggers"]
    assert [(each["name"], each["status"]) for each in triggers] == [(name, "active") for name in sorted(waits)]
    assert (await ask(baobab, "GET", f"/v1/{app}/triggers/hours")).json()["next_at"] == next_at
    await cause(2)
    for _ in range(6):
        clock.advance(30)
        await jobs.run_job(baobab.application, "triggers_tend")
        await jobs.run_due_jobs(baobab.application)
    clock.advance(3600)
    for _ in range(2):
        await jobs.run_job(baobab.application, "triggers_tick")
        await jobs.run_due_jobs(baobab.application)
    counts = {}
    for name in waits:
        deliveries = (await ask(baobab, "GET", f"/v1/{app}/triggers/{name}/deliveries")).json()["deliveries"]
        assert {each["status"] for each in deliveries} == {"delivered"}, (name, deliveries)
        counts[name] = len({each["run_id"] for each in deliveries})
    assert counts == {"rows": 2, "keys": 2, "own": 2, "hours": 1}


async def test_a_move_that_is_waited_for_answers_how_it_ended(baobab: Baobab, clock: FixedClock) -> None:
    app = await create_filled_app(baobab)
    arguments = {"app_id": app, "dest_region": EU}
    refusal = read_refusal(await call_tool(baobab, "moves_start", {**arguments, "wait_seconds": 56}))
    assert "wait_seconds" in refusal["message"]
    waiting = asyncio.create_task(call_tool(baobab, "moves_start", {**arguments, "wait_seconds": 55}))
    while not waiting.done():
        await jobs.run_due_jobs(baobab.application)
        clock.advance(5)
        await asyncio.sleep(0)
    move = (await waiting)["structuredContent"]
    assert (move["status"], move["current_step"]) == ("completed", "completed"), move
    assert (await ask(baobab, "GET", f"/v1/{app}/config")).json()["region"] == EU


async def test_values_and_what_is_left_of_their_lives_come_along(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    before = await read_contents(baobab, app)
    move = await start_move(baobab, app)
    clock.advance(0)
    await wait_for_end(baobab, clock, app, move)
    after = await read_contents(baobab, app)
    assert {key: value for key, (value, _) in after.items()} == {key: value for key, (value, _) in before.items()}
    assert after["deep"] == before["deep"]
    assert before["soon"][1]["ttl"] - after["soon"][1]["ttl"] in range(11)


async def test_reads_go_on_and_writes_are_asked_to_come_again_while_the_app_moves(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    move = await start_move(baobab, app)
    await jobs.run_due_jobs(baobab.application)
    # The way is changed; servers are given two seconds to hear of it.
    step = (await ask(baobab, "GET", f"/v1/apps/{app}/migrations/active")).json()["migration"]["current_step"]
    assert step == "unblocking_writes"
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/n")).json() == {"value": 7}
    for method, path, body in (
        ("PUT", "n", {"value": 1}),
        ("DELETE", "n", None),
        ("POST", "n/incr", {}),
        ("POST", "n/expire", {"ttl": 5}),
        ("POST", "n/cas", {"expected": 7, "next": 8}),
        ("POST", "_flush", {"confirm": True}),
    ):
        refusal = await ask(baobab, method, f"/v1/{app}/kv/{path}", body)
        assert (refusal.status_code, refusal.json()["error"]) == (503, "kv_migrating"), (method, path)
        assert refusal.headers["retry-after"] == "5"
    await wait_for_end(baobab, clock, app, move)
    assert (await ask(baobab, "PUT", f"/v1/{app}/kv/n", {"value": 1})).status_code == 204


async def test_writes_under_way_are_in_the_new_place_or_were_refused(baobab: Baobab, clock: Any) -> None:
    app = await baobab.create_app()
    success_count = 0

    async def count() -> None:
        nonlocal success_count
        for _ in range(60):
            answer = await ask(baobab, "POST", f"/v1/{app}/kv/n/incr")
            if answer.status_code == 200:
                success_count += 1
            else:
                assert answer.status_code == 503
                await asyncio.sleep(0.01)

    async def move() -> None:
        await asyncio.sleep(0.05)
        await wait_for_end(baobab, clock, app, await start_move(baobab, app))

    await asyncio.gather(*(count() for _ in range(8)), move())
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/n")).json() == {"value": success_count}


async def test_the_copy_left_behind_stays_until_it_is_deleted(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    move = await start_move(baobab, app)
    await wait_for_end(baobab, clock, app, move)
    (replica,) = (await ask(baobab, "GET", "/v1/source-replicas")).json()["source_replicas"]
    assert (replica["migration_id"], replica["region"], replica["state"]) == (move, "local", "active")
    body = (await ask(baobab, "GET", f"/v1/apps/{app}/migrations/{move}")).json()
    assert all(replica[name] == body[name] for name in ("source_region", "dest_region", "completed_at"))
    assert replica["completed_at"] is not None
    assert (await get_stores(baobab, "local").kv.usage(app)).keys == 4
    response = await ask(baobab, "DELETE", f"/v1/source-replicas/{move}")
    assert (response.status_code, response.json()) == (200, {"status": "torn_down"})
    await jobs.run_due_jobs(baobab.application)
    assert await get_stores(baobab, "local").kv.usage(app) == (0, 0)
    assert (await ask(baobab, "GET", "/v1/source-replicas")).json() == {"source_replicas": []}
    again = await ask(baobab, "DELETE", f"/v1/source-replicas/{move}")
    assert (again.status_code, again.json()["error"]) == (409, "no_source_replica")
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/n")).json() == {"value": 7}


async def test_a_move_is_reversed_with_what_was_written_since(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    move = await start_move(baobab, app)
    await wait_for_end(baobab, clock, app, move)
    await ask(baobab, "POST", f"/v1/{app}/kv/n/incr", {"by": 3})
    await ask(baobab, "DELETE", f"/v1/{app}/kv/deep")
    back = await ask(baobab, "POST", f"/v1/apps/{app}/migrations/{move}/reverse")
    assert back.status_code == 202
    assert back.json()["migrationId"] == back.json()["migration_id"]
    assert (await ask(baobab, "GET", back.json()["path"])).json()["migration_id"] == back.json()["migrationId"]
    run = await wait_for_end(baobab, clock, app, back.json()["migration_id"])
    assert (run["current_step"], run["dest_region"]) == ("completed", "local")
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/n")).json() == {"value": 10}
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/deep")).status_code == 404
    first = (await ask(baobab, "GET", f"/v1/apps/{app}/migrations/{move}")).json()
    assert first["source_replica_state"] == "torn_down"
    again = await ask(baobab, "POST", f"/v1/apps/{app}/migrations/{move}/reverse")
    assert again.status_code == 409


async def test_a_move_that_is_aborted_leaves_the_app_where_it_was(tmp_path: Path, clock: Any) -> None:
    regions = tmp_path / "regions.toml"
    regions.write_text(f"[{EU}]\n")
    variables = {"BAOBAB_REGIONS": str(regions)}
    async with open_installation(tmp_path / "data", {**variables, "BAOBAB_JOBS": "0"}, clock=clock) as asking:
        app = await create_filled_app(asking)
        move = await start_move(asking, app)
        answer = await ask(asking, "POST", f"/v1/apps/{app}/migrations/{move}/abort")
        assert answer.json() == {"migration_id": move, "status": "aborting"}
        async with open_installation(tmp_path / "data", variables, clock=clock) as working:
            run = await wait_for_end(working, clock, app, move)
        assert run["current_step"] == "aborted"
        assert (await ask(asking, "GET", f"/v1/apps/{app}/migrations/active")).json() == {"migration": None}
        assert await get_stores(asking, EU).kv.usage(app) == (0, 0)
        assert (await ask(asking, "POST", f"/v1/{app}/kv/n/incr")).json() == {"value": 8}


async def test_it_is_too_late_to_abort_when_requests_go_to_the_new_region(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    move = await start_move(baobab, app)
    await jobs.run_due_jobs(baobab.application)
    late = await ask(baobab, "POST", f"/v1/apps/{app}/migrations/{move}/abort")
    assert (late.status_code, late.json()["error"]) == (409, "already_flipped")
    assert (await wait_for_end(baobab, clock, app, move))["current_step"] == "completed"


async def test_a_region_that_does_not_answer_is_waited_for_and_then_given_up(
    baobab: Baobab, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = await create_filled_app(baobab)
    await get_stores(baobab, EU).kv.close()
    move = await start_move(baobab, app)
    await jobs.run_due_jobs(baobab.application)
    waiting = (await ask(baobab, "GET", f"/v1/apps/{app}/migrations/{move}")).json()
    assert waiting["retry_count"] == 1
    assert waiting["last_error"] == "A store does not answer."
    assert f"move {move}: a store does not answer (the store is closed)" in caplog.messages
    for _ in range(25):
        clock.advance(60)
        await jobs.run_due_jobs(baobab.application)
    # What was begun there is undone as soon as it answers again.
    await get_stores(baobab, EU).kv.open()
    run = await wait_for_end(baobab, clock, app, move)
    assert run["current_step"] == "failed"
    assert (await ask(baobab, "POST", f"/v1/{app}/kv/n/incr")).json() == {"value": 8}


async def test_a_region_that_answers_again_in_time_gets_the_app(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    await get_stores(baobab, EU).kv.close()
    move = await start_move(baobab, app)
    await jobs.run_due_jobs(baobab.application)
    await get_stores(baobab, EU).kv.open()
    assert (await wait_for_end(baobab, clock, app, move))["current_step"] == "completed"


async def test_an_app_that_is_deleted_on_the_way_is_deleted_everywhere(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    await get_stores(baobab, EU).kv.close()
    await start_move(baobab, app)
    await jobs.run_due_jobs(baobab.application)
    assert (await ask(baobab, "DELETE", f"/apps/{app}")).status_code == 200
    await get_stores(baobab, EU).kv.open()
    for _ in range(15):
        clock.advance(10)
        await jobs.run_due_jobs(baobab.application)
    for region in ("local", EU):
        assert await get_stores(baobab, region).kv.usage(app) == (0, 0)
    kinds = {job.kind for job in await jobs.list_unfinished_jobs(baobab.application)}
    assert not kinds & {"moves_advance", "apps_purge"}


async def test_a_deleted_app_leaves_no_replica(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    await wait_for_end(baobab, clock, app, await start_move(baobab, app))
    await ask(baobab, "DELETE", f"/apps/{app}")
    clock.advance(61)
    await jobs.run_due_jobs(baobab.application)
    assert await get_stores(baobab, "local").kv.usage(app) == (0, 0)


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({}, 400, "dest_region required"),
        ({"dest_region": ""}, 400, "dest_region required"),
        ({"dest_region": "local"}, 409, "ineligible"),
        ({"dest_region": "mars-north-1"}, 409, "ineligible"),
    ],
)
async def test_a_place_that_the_app_cannot_go_to_is_refused(baobab: Baobab, body: Any, status: Any, error: Any) -> None:
    app = await baobab.create_app()
    refusal = await ask(baobab, "POST", f"/v1/apps/{app}/move", body)
    assert (refusal.status_code, refusal.json()["error"]) == (status, error)
    if error == "ineligible":
        assert refusal.json()["reason"]


async def test_an_app_is_on_one_move_at_a_time(baobab: Baobab, clock: Any) -> None:
    app = await baobab.create_app()
    answers = await asyncio.gather(
        *(ask(baobab, "POST", f"/v1/apps/{app}/move", {"dest_region": to}) for to in (EU, "us-west-2") * 4)
    )
    assert sorted(answer.status_code for answer in answers) == [202, *[409] * 7]


async def test_an_unknown_app_and_an_unknown_move_are_404(baobab: Baobab) -> None:
    unknown = await ask(baobab, "POST", "/v1/apps/app_000000000000/move", {"dest_region": EU})
    assert (unknown.status_code, unknown.json()["error"]) == (404, "app not found")
    app = await baobab.create_app()
    nothing = f"/v1/apps/{app}/migrations/00000000-0000-4000-8000-000000000000"
    assert (await ask(baobab, "GET", nothing)).status_code == 404


async def test_strangers_neither_see_nor_delete_a_replica(baobab: Baobab, clock: Any) -> None:
    app = await create_filled_app(baobab)
    move = await start_move(baobab, app)
    await wait_for_end(baobab, clock, app, move)
    stranger = (await create_person(baobab, "eve")).headers
    assert (await ask(baobab, "GET", "/v1/source-replicas", headers=stranger)).json() == {"source_replicas": []}
    assert (await ask(baobab, "DELETE", f"/v1/source-replicas/{move}", headers=stranger)).status_code == 404
    assert (await ask(baobab, "GET", f"/v1/apps/{app}/migrations/{move}", headers=stranger)).status_code == 403


async def test_refusals_are_kept_in_the_region_of_their_app(baobab: Baobab, clock: Any) -> None:
    app = await baobab.create_app(region=EU)
    await ask(baobab, "GET", f"/v1/{app}/kv/nothing")
    entries = (await ask(baobab, "GET", f"/v1/{app}/kv/_audit_recent")).json()["entries"]
    assert [entry["key"] for entry in entries] == ["nothing"]
    for region, count in (("local", 0), (EU, 1)):
        async with get_stores(baobab, region).database.reading() as connection:
            row_count = (await connection.exec_driver_sql("SELECT count(*) FROM failures")).scalar_one()
            assert row_count == count


async def test_objects_go_with_their_app(baobab: Baobab, clock: Any) -> None:
    app = await baobab.create_app()

    async def one() -> AsyncIterator[bytes]:
        yield b"hello"

    options: dict[str, Any] = {"content_type": "text/plain", "max_bytes": 10}
    await get_stores(baobab, "local").objects.put(f"{app}/a/b.txt", one(), **options)
    move = await start_move(baobab, app)
    await wait_for_end(baobab, clock, app, move)
    info = await get_stores(baobab, EU).objects.head(f"{app}/a/b.txt")
    assert info is not None
    assert (info.size, info.content_type) == (5, "text/plain")
    await ask(baobab, "DELETE", f"/v1/source-replicas/{move}")
    await jobs.run_due_jobs(baobab.application)
    assert await get_stores(baobab, "local").objects.head(f"{app}/a/b.txt") is None


async def test_another_geography_stands_for_the_least_loaded_of_its_cells(tmp_path: Path, clock: FixedClock) -> None:
    regions = tmp_path / "cells.toml"
    regions.write_text('[eu-1]\ngeography = "eu"\n[eu-2]\ngeography = "eu"\n[local-2]\ngeography = "local"\n')
    async with open_installation(tmp_path / "cells", {"BAOBAB_REGIONS": str(regions)}, clock=clock) as baobab:
        await baobab.create_app(region="eu-1")
        app = await create_filled_app(baobab, region="local-2")
        move = await wait_for_end(baobab, clock, app, await start_move(baobab, app, "eu"))
        assert (move["current_step"], move["dest_region"]) == ("completed", "eu-2")
        assert (await ask(baobab, "GET", f"/v1/{app}/kv/n")).json() == {"value": 7}
        refusal = await ask(baobab, "POST", f"/v1/apps/{app}/move", {"dest_region": "eu"})
        assert (refusal.status_code, refusal.json()["reason"]) == (409, "The app is in the region `eu-2` already.")
        # Within a geography the one cell is named, and so it is on the way back.
        await wait_for_end(baobab, clock, app, await start_move(baobab, app, "eu-1"))
        back = await ask(baobab, "POST", f"/v1/apps/{app}/migrations/{move['migration_id']}/reverse")
        assert (await wait_for_end(baobab, clock, app, back.json()["migration_id"]))["dest_region"] == "local-2"
        again = await wait_for_end(baobab, clock, app, await start_move(baobab, app, "local"))
        assert again["dest_region"] == "local"
