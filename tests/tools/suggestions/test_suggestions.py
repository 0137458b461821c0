"""POST /suggestions: what users and agents wish for."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from baobab.storage.sql.tables import metadata
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.jobs import run_job
from tests.people import create_key, create_person

pytestmark = pytest.mark.own_installation

SUGGESTION = {"category": "improvement", "description": "Say how many keys are left."}


async def send_suggestion(baobab: Baobab, headers: Any = None, **body: Any) -> Any:
    return await baobab.client.post("/suggestions", json={**SUGGESTION, **body}, headers=headers or baobab.owner)


async def list_suggestions(baobab: Baobab) -> Any:
    async with baobab.application.services.database.reading() as connection:
        return (await connection.execute(select(metadata.tables["suggestions"]))).mappings().all()


async def test_a_suggestion_is_kept_and_answered_whole(baobab: Baobab) -> None:
    app = await baobab.create_app()
    wish = {
        "category": "bug_report",
        "description": "kv_scan lists a key twice.",
        "severity": "high",
        "affected_tool": "kv_scan",
        "proposed_solution": "Order by key.",
        "source": "human_prompted",
        "app_id": app,
    }
    answer = await send_suggestion(baobab, **wish, agent_context={"model": "m", "steps": [1, 2]})
    assert answer.status_code == 201, answer.text
    suggestion = answer.json()["suggestion"]
    assert {field: suggestion[field] for field in wish} == wish
    assert suggestion["status"] == "new"
    assert suggestion["api_key_id"]
    row = (await list_suggestions(baobab))[0]
    assert (row["id"], row["agent_context"]) == (suggestion["id"], {"model": "m", "steps": [1, 2]})


async def test_what_is_left_out_is_null_and_an_agent_is_the_source(baobab: Baobab) -> None:
    suggestion = (await send_suggestion(baobab)).json()["suggestion"]
    absent = ("severity", "affected_tool", "proposed_solution", "app_id")
    assert {field: suggestion[field] for field in absent} == dict.fromkeys(absent)
    assert suggestion["source"] == "agent"


async def test_an_account_suggests_by_its_token_and_no_key_is_named(baobab: Baobab) -> None:
    ada = await create_person(baobab, "ada")
    suggestion = (await send_suggestion(baobab, ada.headers)).json()["suggestion"]
    assert (suggestion["user_id"], suggestion["api_key_id"]) == (ada.id, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"category": "praise"}, "category"),
        ({"category": None}, "category"),
        ({"description": "too short"}, "description"),
        ({"description": "x" * 10_001}, "description"),
        ({"description": ["a long enough", "list"]}, "description"),
        ({"description": "with a NUL \x00 inside"}, "description"),
        ({"severity": "urgent"}, "severity"),
        ({"source": "cat"}, "source"),
        ({"affected_tool": "x" * 129}, "affected_tool"),
        ({"agent_context": []}, "agent_context"),
        ({"agent_context": {"a": "\x00"}}, "agent_context"),
        ({"app_id": "mine"}, "app_id"),
        ({"mood": "good"}, "mood"),
    ],
)
async def test_a_suggestion_that_does_not_fit_is_refused_by_the_name_of_its_field(
    baobab: Baobab, body: Any, field: Any
) -> None:
    refusal = await send_suggestion(baobab, **body)
    assert refusal.status_code == 400
    assert f"`{field}" in refusal.json()["error"]["message"]
    assert await list_suggestions(baobab) == []


@pytest.mark.parametrize("field", ["category", "description"])
async def test_category_and_description_are_required(baobab: Baobab, field: Any) -> None:
    body = {name: value for name, value in SUGGESTION.items() if name != field}
    refusal = await baobab.client.post("/suggestions", json=body, headers=baobab.owner)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (400, "VALIDATION_MISSING_FIELD")


async def test_nobody_suggests_in_the_name_of_an_app_that_is_not_theirs_or_not_there(baobab: Baobab) -> None:
    app, stranger = await baobab.create_app(), await create_person(baobab, "eve")
    assert (await send_suggestion(baobab, stranger.headers, app_id=app)).status_code == 403
    assert (await send_suggestion(baobab, app_id="app_000000000000")).status_code == 404
    assert await list_suggestions(baobab) == []


async def test_a_suggestion_about_an_app_stands_in_its_audit_log(baobab: Baobab) -> None:
    app = await baobab.create_app()
    suggestion = (await send_suggestion(baobab, app_id=app)).json()["suggestion"]
    query = {"event_type": "suggestion.create"}
    log = (await baobab.client.get(f"/v1/{app}/audit-logs", params=query, headers=baobab.owner)).json()["logs"]
    assert [row["resource_id"] for row in log] == [suggestion["id"]]


async def test_only_accounts_suggest(baobab: Baobab) -> None:
    app = await baobab.create_app()
    assert (await baobab.client.post("/suggestions", json=SUGGESTION)).status_code == 401
    app_key = await create_key(baobab, key_scope="app", target_app_id=app)
    assert (await send_suggestion(baobab, app_key)).status_code == 403


async def test_somebody_without_an_account_suggests(baobab: Baobab) -> None:
    body = {"category": "bug_report", "description": "The tour ends too soon."}
    response = await baobab.client.post("/public/suggestions", json=body)
    assert response.status_code == 201, response.text
    assert (set(response.json()), response.json()["status"]) == ({"id", "status"}, "new")
    assert (await baobab.client.post("/public/suggestions", json={"category": "bug_report"})).status_code == 400


async def test_what_an_agent_adds_is_small(baobab: Baobab) -> None:
    assert (await send_suggestion(baobab, agent_context={"log": "x" * 16_000})).status_code == 201
    refusal = await send_suggestion(baobab, agent_context={"log": "x" * 16_400})
    assert refusal.status_code == 400
    assert "16384" in refusal.text


async def test_all_keys_of_an_organisation_make_a_hundred_suggestions_a_day_together(baobab: Baobab) -> None:
    keys = [await create_key(baobab) for _ in range(2)]
    statuses = [(await send_suggestion(baobab, keys[number % 2])).status_code for number in range(101)]
    assert statuses == [201] * 100 + [429]
    assert (await send_suggestion(baobab, (await create_person(baobab, "other")).headers)).status_code == 201


async def test_suggestions_are_forgotten_after_a_year(tmp_path: Path) -> None:
    clock = FixedClock()
    async with open_installation(tmp_path / "data", clock=clock) as installation:
        await send_suggestion(installation)
        clock.advance(364 * 86_400)
        await send_suggestion(installation)
        clock.advance(2 * 86_400)
        await run_job(installation.application, "suggestions_prune")
        assert len(await list_suggestions(installation)) == 1
