"""What is held while a provider is asked: no search is larger than the money that is there for it."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from tests.people import create_key
from tests.tools.people.conftest import CENT, Directory
from tests.tools.people.fakes import NETWORK, Fake


async def test_what_costs_more_than_the_gate_needs_its_price(live: Directory, fake: Fake) -> None:
    requests: dict[str, Any] = {"/search/person": {"query": "x", "pageSize": 100, "enrichProfiles": False}}
    requests["/profile/email"] = {"networkProfileUrl": f"{NETWORK}/in/person-1"}
    for (path, body), price in zip(requests.items(), (11.64 * CENT, 6 * CENT), strict=True):
        await live.give(round(price) - 1)
        refusal = await live.ask(path, **body)
        assert (refusal.status_code, refusal.json()["error"]) == (402, "insufficient_credits"), path
        await live.give(round(price))
        # Without the provider's callback, a lookup has no result that would be charged.
        assert (await live.ask(path, **body)).status_code == 200, path
    assert len(fake.requests) == len(requests)


async def test_calls_of_a_key_at_the_same_time_never_pass_its_budget(live: Directory, fake: Fake) -> None:
    fake.people = 100
    key = await create_key(live.baobab, budget={"period": "day", "most_usd": "0.25"})
    body: dict[str, Any] = {"pageSize": 100, "enrichProfiles": False}
    searches = (live.ask("/search/person", headers=key, query=f"group {n}", **body) for n in range(5))
    statuses = [answer.status_code for answer in await asyncio.gather(*searches)]
    assert sorted(statuses) == [200, 200, 402, 402, 402]
    assert len(fake.requests) == 2
    assert sum(Decimal(charge) for *_, charge in await live.read_usage()) == Decimal("0.2328")


async def test_an_address_that_is_found_is_charged_no_further_than_the_budget_of_the_key(
    live: Directory, fake: Fake
) -> None:
    key = await create_key(live.baobab, budget={"period": "day", "most_usd": "0.065"})
    url = f"{NETWORK}/in/person-1"
    lookup_id = (await live.ask("/profile/email", headers=key, networkProfileUrl=url)).json()["lookupId"]
    await live.send_callback(fake.callbacks[0], email="person@acme.example")
    assert (await live.read(f"/email-lookup/{lookup_id}"))["email"] == "person@acme.example"
    charges = sorted(Decimal(charge) for *_, charge in await live.read_usage())
    assert charges == [Decimal("0.005"), Decimal("0.06")]


@pytest.mark.parametrize("path", ["/search/person", "/search/company"])
async def test_an_empty_token_buys_no_new_search(live: Directory, fake: Fake, path: str) -> None:
    bodies: list[dict[str, Any]] = [{}, {"query": "engineers"}]
    for body in bodies:
        refusal = await live.ask(path, nextToken="", **body)
        assert (refusal.status_code, refusal.json()["error"]) == (400, "invalid_request")
    assert fake.requests == []
