"""What an organisation's plan has room for, however many ask at once."""

import asyncio
import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from baobab.tools.core.limits.limits import CallerRequests
from baobab.tools.core.limits.plans import PLANS
from tests.conftest import ADDRESS, Baobab
from tests.installation import open_installation
from tests.people import create_key, create_person, get_first_organisation
from tests.ports import free_port
from tests.tools.agents.conftest import build_graph

SMALL = build_graph({"done": {"type": "end", "output_template": "done"}})
PLAYGROUND = PLANS["playground"]
FULL = "project_limit_reached"


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "playground"}


@pytest.mark.parametrize(("plan", "apps"), [("playground", 1), ("launch", 3), ("certified", 10)])
async def test_apps_that_are_asked_for_at_once_stop_exactly_at_the_plans_number(
    tmp_path: Path, plan: str, apps: int
) -> None:
    async with open_installation(tmp_path / "data", {"BAOBAB_PLAN": plan}) as baobab:
        someone = await create_person(baobab, "someone")
        wishes = [{"name": f"app-{number}"} for number in range(3 * apps + 2)]
        requests = (baobab.client.post("/init", json=wish, headers=someone.headers) for wish in wishes)
        answers = await asyncio.gather(*requests)
        assert Counter(answer.status_code for answer in answers) == {201: apps, 403: len(wishes) - apps}
        body = next(answer for answer in answers if answer.status_code == 403).json()
        assert (body["error"], body["plan"], body["limit"], body["current"]) == (FULL, plan, apps, apps)
        assert body["upgradeUrl"] == f"{ADDRESS}/docs/guides/settings#plans"
        assert (await baobab.client.get(body["upgradeUrl"])).status_code == 200
        there = next(wish for wish, answer in zip(wishes, answers, strict=True) if answer.status_code == 201)
        again = await baobab.client.post("/init", json=there, headers=someone.headers)
        assert again.status_code == 200
        response = await baobab.client.delete(f"/apps/{again.json()['app_id']}", headers=someone.headers)
        assert response.is_success, response.text
        assert (await baobab.client.post("/init", json={"name": "room"}, headers=someone.headers)).status_code == 201


async def test_who_runs_the_server_has_as_many_apps_as_they_like(baobab: Baobab) -> None:
    colleague = await create_person(baobab, "colleague", role="member")
    home = {**colleague.headers, "x-organization-id": await get_first_organisation(baobab)}
    for number, headers in enumerate((baobab.owner, baobab.owner, home)):
        response = await baobab.client.post("/init", json={"name": f"own-{number}"}, headers=headers)
        assert response.status_code == 201, response.text
    limits = (await baobab.client.get("/dashboard/billing", headers=baobab.owner)).json()["plan"]["limits"]
    assert limits["maxProjects"] is None
    theirs = (await baobab.client.get("/dashboard/billing", headers=colleague.headers)).json()["plan"]["limits"]
    assert theirs["maxProjects"] == PLAYGROUND.apps


async def test_keys_and_servers_of_models_and_tools_stop_at_the_plans_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = dataclasses.replace(PLAYGROUND, api_keys=3, model_servers=2, tool_servers=2)
    monkeypatch.setitem(PLANS, "playground", small)
    settings = {"BAOBAB_PLAN": "playground", "BAOBAB_EGRESS_ALLOW": "127.0.0.0/8"}
    async with open_installation(tmp_path / "data", settings) as baobab:
        owner = (await create_person(baobab, "owner")).headers
        app = (await baobab.client.post("/init", json={"name": "only"}, headers=owner)).json()["app_id"]
        dead = f"http://127.0.0.1:{free_port()}"
        bodies_and_caps = {
            "/api-keys": ({}, small.api_keys),
            "/v1/ai/servers": ({"url": f"{dead}/v1"}, small.model_servers),
            f"/v1/{app}/mcp-servers": ({"url": f"{dead}/mcp"}, small.tool_servers),
        }
        for path, (body, cap) in bodies_and_caps.items():
            bodies = [{"name": f"one-{number}", **body} for number in range(6)]
            requests = (baobab.client.post(path, json=one, headers=owner) for one in bodies)
            answers = await asyncio.gather(*requests)
            assert Counter(answer.status_code for answer in answers) == {201: cap, 403: 6 - (cap or 0)}, path
            refusal = next(answer for answer in answers if answer.status_code == 403).json()
            assert (refusal["error"], refusal["limit"], refusal["current"]) == ("plan_limit_exceeded", cap, cap)


async def test_the_agents_of_an_app_stop_at_the_cap_of_the_plan(baobab: Baobab) -> None:
    app = await baobab.create_app()
    bodies = [{"name": f"agent-{number}", "graph_spec": SMALL} for number in range(60)]
    requests = (baobab.client.post(f"/v1/{app}/agents", json=body, headers=baobab.owner) for body in bodies)
    statuses = Counter(answer.status_code for answer in await asyncio.gather(*requests))
    assert statuses == {201: PLAYGROUND.agents, 403: 60 - (PLAYGROUND.agents or 0)}


async def test_the_graphs_of_an_app_have_so_many_bytes_together_and_removed_ones_make_room(baobab: Baobab) -> None:
    app = await baobab.create_app()
    path, large = f"/v1/{app}/agents", build_graph({"done": {"type": "end", "output_template": ["x" * 100_000] * 9}})

    async def make(name: str, spec: object) -> int:
        body = {"name": name, "graph_spec": spec}
        return (await baobab.client.post(path, json=body, headers=baobab.owner)).status_code

    statuses = [await make(f"large-{number}", large) for number in range(12)]
    assert statuses == [201] * 11 + [403]
    assert await make("small", SMALL) == 201
    response = await baobab.client.patch(f"{path}/small", json={"graph_spec": large}, headers=baobab.owner)
    assert (response.status_code, response.json()["code"]) == (403, "plan_limit_exceeded")
    assert (await baobab.client.delete(f"{path}/large-0", headers=baobab.owner)).status_code == 204
    assert await make("large-12", large) == 201


async def test_all_keys_of_an_organisation_have_one_bucket_of_requests_together(
    baobab: Baobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [await create_key(baobab) for _ in range(2)]
    other = await create_person(baobab, "other")
    theirs = await create_key(baobab, other.headers)
    monkeypatch.setattr(CallerRequests, "of_organisation", 10)
    statuses = [(await baobab.client.get("/apps", headers=keys[n % 2])).status_code for n in range(12)]
    assert statuses == [200] * 10 + [429] * 2
    assert (await baobab.client.get("/apps", headers=theirs)).status_code == 200


async def test_whoever_reads_and_decides_approvals_has_the_requests_of_the_plan(baobab: Baobab) -> None:
    keys = [await create_key(baobab) for _ in range(2)]
    other = await create_person(baobab, "other")
    theirs = await create_key(baobab, other.headers)
    most = PLAYGROUND.requests_per_minute or 0
    statuses: Counter[int] = Counter()
    for number in range(most + 2):
        statuses[(await baobab.client.get("/v1/approvals", headers=keys[number % 2])).status_code] += 1
    assert statuses == {200: most, 429: 2}
    refusal = await baobab.client.post("/v1/approvals/appr_00000000/approve", headers=keys[0])
    assert (refusal.status_code, "retry-after" in refusal.headers) == (429, True)
    assert (await baobab.client.get("/v1/approvals", headers=theirs)).status_code == 200
    # What else names no app has a bucket of its own.
    assert (await baobab.client.get("/apps", headers=keys[0])).status_code == 200


class TestWithoutCaps:
    @pytest.fixture
    def settings(self) -> dict[str, str]:
        return {"BAOBAB_PLAN": "enterprise"}

    async def test_a_plan_without_a_cap_takes_any_number_of_decisions(self, baobab: Baobab) -> None:
        by = await create_key(baobab)
        for _ in range(CallerRequests.amount + 1):
            answer = await baobab.client.get("/v1/approvals", headers=by)
        assert answer.status_code == 200
