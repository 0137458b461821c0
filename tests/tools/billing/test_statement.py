"""What an organisation is told of its plan, its credits and its use."""

import asyncio
from typing import Any

import pytest

from baobab.tools.core.limits.credits import Usage
from tests.mcp_server.mcp_requests import call_tool, read_refusal
from tests.people import create_key, create_person, get_first_organisation
from tests.servers import TIMEOUT_SECONDS
from tests.tools.ai.conftest import MINI, Installation

USD = 10**9
MINI_COST = 5850
"""Nano-dollars of the fake provider's answer: 11 tokens of the prompt and 7 of the answer."""
BILLING = "/dashboard/billing"


async def get_statement(baobab: Installation, by: dict[str, str] | None = None, **query: str) -> Any:
    answer = await baobab.client.get(BILLING, params=query, headers=by or baobab.owner)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_an_organisation_sees_what_it_has(baobab: Installation) -> None:
    ours = await get_first_organisation(baobab)
    await baobab.credits.top_up(ours, 2 * USD + 1, "payment 1")
    await baobab.credits.set_terms(ours, floor=-10 * USD)
    await baobab.credits.reserve(ours, 3 * USD, purpose="chat", ttl_seconds=60)
    statement = await get_statement(baobab)
    assert statement["organization_id"] == ours
    assert statement["plan"]["id"] == "launch"
    assert statement["plan"]["name"] == "Launch"
    assert statement["plan"]["limits"] == {
        "maxAiCreditsUsd": 5.0,
        "aiCreditsLifetime": False,
        "requestsPerMinute": 3000,
        "kvOpsPerSecond": 1000,
        "kvBytes": 2**30,
        "kvKeys": 1_000_000,
        "tableBytes": 8 * 2**30,
        "maxProjects": None,
        "maxAgents": 500,
        "maxAgentBytes": 100 * 2**20,
        "maxToolServers": 50,
        "maxApiKeys": 500,
        "maxModelServers": 20,
        "maxAuditRows": 100_000,
        "memoryBytes": 2 * 2**30,
    }
    assert statement["credits"] == {
        "monthly_allowance_usd": 5.0,
        "topup_usd": 2.000000001,
        "total_usd": 7.000000001,
        "reserved_usd": 3.0,
        "available_usd": 14.000000001,
        "floor_usd": -10.0,
    }
    assert statement["aiCredits"] == {"included": 5.0, "used": 0.0, "remaining": 5.0}
    now = baobab.application.services.clock.now()
    assert statement["billingPeriodStart"] == f"{now:%Y-%m}-01T00:00:00Z"


async def test_many_who_look_at_once_do_not_wait_for_each_other(baobab: Installation) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(*(get_statement(baobab) for _ in range(40)))


async def test_what_was_called_shows_as_use_and_what_was_called_with_an_own_key_apart(baobab: Installation) -> None:
    ours = await get_first_organisation(baobab)
    await baobab.chat(MINI)
    await baobab.chat("baobab/echo")
    reservation = await baobab.credits.reserve(ours, 0, purpose="chat", ttl_seconds=60)
    await baobab.credits.settle(reservation, 999, Usage(MINI, 3, 4, byok=True))
    free = sum(
        one.prompt_tokens + one.completion_tokens for one in await baobab.list_usage() if one.model == "baobab/echo"
    )
    statement = await get_statement(baobab)
    spent_usd = MINI_COST / USD
    assert statement["platform"] == {"requests": 2, "tokens": 18 + free, "cost": spent_usd}
    assert statement["byok"] == {"requests": 1, "tokens": 7, "cost": 999 / USD}
    assert statement["usage"] == {"ai_credits_usd": spent_usd}
    assert statement["aiCredits"] == {"included": 5.0, "used": spent_usd, "remaining": (5 * USD - MINI_COST) / USD}


async def test_what_is_owed_is_below_zero_and_nothing_is_available(baobab: Installation) -> None:
    ours = await get_first_organisation(baobab)
    reservation = await baobab.credits.reserve(ours, 5 * USD, purpose="chat", ttl_seconds=60)
    await baobab.credits.settle(reservation, 6 * USD, Usage(MINI))
    credits_ = (await get_statement(baobab))["credits"]
    assert (credits_["monthly_allowance_usd"], credits_["topup_usd"], credits_["total_usd"]) == (0.0, -1.0, -1.0)
    assert credits_["available_usd"] == 0.0


@pytest.mark.parametrize(
    ("settings", "included_usd", "once"),
    [({"BAOBAB_PLAN": "playground"}, 1.0, True), ({"BAOBAB_PLAN": "enterprise"}, None, False)],
)
async def test_a_plan_without_a_cap_and_one_that_gives_once_say_so(
    baobab: Installation, included_usd: float | None, once: bool
) -> None:
    await baobab.chat(MINI)
    await baobab.get_settled_balance()
    statement = await get_statement(baobab)
    remaining_usd = None if included_usd is None else (USD - MINI_COST) / USD
    limits = statement["plan"]["limits"]
    assert (limits["maxAiCreditsUsd"], limits["aiCreditsLifetime"]) == (included_usd, once)
    assert statement["aiCredits"] == {"included": included_usd, "used": MINI_COST / USD, "remaining": remaining_usd}
    assert statement["credits"]["total_usd"] == statement["credits"]["available_usd"] == remaining_usd


async def test_terms_of_its_own_stand_in_the_place_of_the_plans(baobab: Installation) -> None:
    await baobab.credits.set_terms(await get_first_organisation(baobab), allowance=7 * USD)
    statement = await get_statement(baobab)
    assert statement["plan"]["limits"]["maxAiCreditsUsd"] == statement["aiCredits"]["included"] == 7.0


async def test_both_doors_answer_the_same(baobab: Installation) -> None:
    over_mcp = (await call_tool(baobab, "billing_get"))["structuredContent"]
    assert over_mcp == await get_statement(baobab)


async def test_a_member_chooses_the_organisation_by_query_or_header(baobab: Installation) -> None:
    ours = await get_first_organisation(baobab)
    who = await create_person(baobab, "member", role="member")
    assert (await get_statement(baobab, who.headers))["organization_id"] == who.organisation_id
    assert (await get_statement(baobab, who.headers, org_id=ours))["organization_id"] == ours
    assert (await get_statement(baobab, {**who.headers, "x-organization-id": ours}))["organization_id"] == ours


@pytest.mark.parametrize("tool", ["billing_get", "billing_budgets", "billing_usage"])
async def test_strangers_see_nothing_and_are_not_told_who_exists(baobab: Installation, tool: str) -> None:
    ours = await get_first_organisation(baobab)
    stranger = await create_person(baobab, "stranger")
    their_key = await create_key(baobab, stranger.headers)
    nobody = baobab.application.services.ids.uuid()
    path = baobab.application.registry.find(tool).rest.path  # type: ignore[union-attr]
    for by in (stranger.headers, their_key):
        answers = [await baobab.client.get(path, params={"org_id": org}, headers=by) for org in (ours, nobody)]
        assert [answer.status_code for answer in answers] == [403, 403]
        assert answers[0].json() == answers[1].json()
        refusal = read_refusal(await call_tool(baobab, tool, {"org_id": ours}, by=by))
        assert refusal["code"] == "AUTH_INSUFFICIENT_PERMISSIONS"


async def test_an_organisation_that_is_no_id_is_bad_input(baobab: Installation) -> None:
    answer = await baobab.client.get(BILLING, params={"org_id": "ours"}, headers=baobab.owner)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "VALIDATION_INVALID_INPUT")


async def test_the_plans_are_public(baobab: Installation) -> None:
    plans = (await baobab.client.get("/dashboard/plans")).json()["plans"]
    assert [(plan["id"], plan["name"], plan["aiCreditsUsd"], plan["aiCreditsLifetime"]) for plan in plans] == [
        ("playground", "Playground", 1.0, True),
        ("launch", "Launch", 5.0, False),
        ("certified", "Certified", 15.0, False),
        ("enterprise", "Enterprise", None, False),
    ]
    assert [plan["requestsPerMinute"] for plan in plans] == [300, 3000, 3000, None]


async def test_a_further_organisation_has_no_allowance_until_the_operator_grants_one(baobab: Installation) -> None:
    who = await create_person(baobab, "founder")
    response = await baobab.client.post("/v1/organizations", json={"name": "Second"}, headers=who.headers)
    assert response.status_code == 201, response.text
    second = response.json()["id"]
    statement = await get_statement(baobab, who.headers, org_id=second)
    assert statement["credits"]["monthly_allowance_usd"] == 0
    assert (await get_statement(baobab, who.headers))["credits"]["monthly_allowance_usd"] == 5
    await baobab.credits.set_terms(second)
    assert (await get_statement(baobab, who.headers, org_id=second))["credits"]["monthly_allowance_usd"] == 5
