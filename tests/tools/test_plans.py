"""What an organisation's plan has room for, however many ask at once."""

import asyncio
from collections import Counter

import pytest

from baobab.tools.limits import CallerRequests
from baobab.tools.plans import PLANS
from tests.conftest import Baobab
from tests.people import key, person
from tests.tools.agents.conftest import graph

SMALL = graph({"done": {"type": "end", "output_template": "done"}})
PLAYGROUND = PLANS["playground"]


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "playground"}


async def test_a_hundred_and_twenty_apps_at_once_stop_exactly_at_the_cap_of_the_plan(baobab: Baobab) -> None:
    keys = [await key(baobab) for _ in range(3)]
    wishes = [({"name": f"app-{number}"}, keys[number % 3]) for number in range(120)]
    asked = (baobab.client.post("/init", json=body, headers=by) for body, by in wishes)
    answers = await asyncio.gather(*asked)
    assert Counter(answer.status_code for answer in answers) == {201: PLAYGROUND.apps, 403: 120 - PLAYGROUND.apps}
    refused = next(answer for answer in answers if answer.status_code == 403).json()["error"]
    assert refused["code"] == "PLAN_LIMIT_REACHED"
    told = {"plan": "playground", "what": "apps", "limit": PLAYGROUND.apps, "current": PLAYGROUND.apps}
    assert refused["details"] == told
    there = next(number for number, answer in enumerate(answers) if answer.status_code == 201)
    again = await baobab.client.post("/init", json=wishes[there][0], headers=baobab.owner)
    assert again.status_code == 200
    gone = await baobab.client.delete(f"/apps/{again.json()['app_id']}", headers=baobab.owner)
    assert gone.is_success, gone.text
    assert (await baobab.client.post("/init", json={"name": "room"}, headers=baobab.owner)).status_code == 201


async def test_the_agents_of_an_app_stop_at_the_cap_of_the_plan(baobab: Baobab) -> None:
    app = await baobab.app()
    bodies = [{"name": f"agent-{number}", "graph_spec": SMALL} for number in range(60)]
    made = (baobab.client.post(f"/v1/{app}/agents", json=body, headers=baobab.owner) for body in bodies)
    statuses = Counter(answer.status_code for answer in await asyncio.gather(*made))
    assert statuses == {201: PLAYGROUND.agents, 403: 60 - (PLAYGROUND.agents or 0)}


async def test_the_graphs_of_an_app_have_so_many_bytes_together_and_removed_ones_make_room(baobab: Baobab) -> None:
    app = await baobab.app()
    path, large = f"/v1/{app}/agents", graph({"done": {"type": "end", "output_template": ["x" * 100_000] * 9}})

    async def make(name: str, spec: object) -> int:
        body = {"name": name, "graph_spec": spec}
        return (await baobab.client.post(path, json=body, headers=baobab.owner)).status_code

    statuses = [await make(f"large-{number}", large) for number in range(12)]
    assert statuses == [201] * 11 + [403]
    assert await make("small", SMALL) == 201
    grown = await baobab.client.patch(f"{path}/small", json={"graph_spec": large}, headers=baobab.owner)
    assert (grown.status_code, grown.json()["code"]) == (403, "PLAN_LIMIT_REACHED")
    assert (await baobab.client.delete(f"{path}/large-0", headers=baobab.owner)).status_code == 204
    assert await make("large-12", large) == 201


async def test_all_keys_of_an_organisation_have_one_bucket_of_requests_together(
    baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [await key(baobab) for _ in range(2)]
    other = await person(baobab, "other")
    theirs = await key(baobab, other.headers)
    monkeypatch.setattr(CallerRequests, "of_organisation", 10)
    statuses = [(await baobab.client.get("/apps", headers=keys[n % 2])).status_code for n in range(12)]
    assert statuses == [200] * 10 + [429] * 2
    assert (await baobab.client.get("/apps", headers=theirs)).status_code == 200


async def test_whoever_reads_and_decides_approvals_has_the_requests_of_the_plan(baobab: Baobab) -> None:
    keys = [await key(baobab) for _ in range(2)]
    other = await person(baobab, "other")
    theirs = await key(baobab, other.headers)
    most = PLAYGROUND.requests_per_minute or 0
    statuses: Counter[int] = Counter()
    for number in range(most + 2):
        statuses[(await baobab.client.get("/v1/approvals", headers=keys[number % 2])).status_code] += 1
    assert statuses == {200: most, 429: 2}
    refused = await baobab.client.post("/v1/approvals/appr_00000000/approve", headers=keys[0])
    assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
    assert (await baobab.client.get("/v1/approvals", headers=theirs)).status_code == 200
    # What else names no app has a bucket of its own.
    assert (await baobab.client.get("/apps", headers=keys[0])).status_code == 200


class TestWithoutCaps:
    @pytest.fixture
    def settings(self) -> dict[str, str]:
        return {"BAOBAB_PLAN": "enterprise"}

    async def test_a_plan_without_a_cap_takes_any_number_of_decisions(self, baobab: Baobab) -> None:
        by = await key(baobab)
        for _ in range(CallerRequests.amount + 1):
            answer = await baobab.client.get("/v1/approvals", headers=by)
        assert answer.status_code == 200
