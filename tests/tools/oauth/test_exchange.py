"""Exchange: one code, one key, once."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from baobab.runtime.oauth.errors import InvalidGrant
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.callers import Account, Limits, ScopedKey
from baobab.tools.core.auth.oauth_endpoints import ThroughOAuthOnly
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.core.errors import InvalidApiKey
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.core.limits.plans import PLANS
from baobab.tools.oauth.tables import oauth_codes
from tests import jobs
from tests.tools.conftest import ToolHarness
from tests.tools.oauth.conftest import CHALLENGE, REDIRECT, Flow

MOST_KEYS = PLANS["playground"].api_keys or 0


@pytest.fixture
async def ada(harness: ToolHarness) -> Account:
    return await harness.sign_up("ada@example.com")


async def count_live_keys(harness: ToolHarness) -> int:
    count = select(func.count()).select_from(api_keys).where(api_keys.c.revoked_at.is_(None))
    async with harness.services.database.reading() as connection:
        return int(await connection.scalar(count) or 0)


@pytest.mark.parametrize(
    ("scopes", "key_scopes"),
    [
        (["mcp"], ["*", "substrate"]),
        (["ai:gateway"], ["ai:gateway"]),
        (["ai:gateway", "mcp"], ["*", "substrate", "ai:gateway"]),
        (None, ["*", "substrate"]),
    ],
)
async def test_a_code_is_good_for_a_key_with_the_scopes_that_were_agreed_to(
    harness: ToolHarness, flow: Flow, ada: Account, scopes: list[str] | None, key_scopes: list[str]
) -> None:
    client = await flow.register_client("Agent")
    code = await flow.obtain_code(client, ada, scopes=scopes)
    result = await flow.call_endpoint("oauth_exchange", client_id=client["client_id"], code=code)
    assert result["access_token"].startswith("bb_sk_")
    assert set(result["scope"].split()) == set(scopes or ["mcp"])
    listed_keys = (await harness.call("api_keys_list", ada))["keys"]
    assert [(key["name"], key["scopes"]) for key in listed_keys] == [("Agent (OAuth)", key_scopes)]
    assert result["access_token"].encode() not in harness.read_database()


async def test_a_key_for_the_gateway_alone_opens_nothing_else(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    caller = await harness.authenticate(await flow.obtain_key(ada, scopes=["ai:gateway"]))
    assert isinstance(caller, ScopedKey)
    assert caller.scopes == {"ai:gateway"}


async def test_a_key_acts_in_the_organisation_that_was_chosen_and_is_held_to_the_limits(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    team = await harness.create_organisation(ada)
    caller = await harness.authenticate(
        await flow.obtain_key(ada, organization_id=team, read_only=True, approval="write")
    )
    assert isinstance(caller, Account)
    assert (caller.account_id, caller.organisation_id) == (ada.account_id, team)
    assert caller.limits == Limits(read_only=True, approval="write")


async def test_a_key_asks_before_it_destroys_unless_a_person_chose_otherwise(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    assert (await harness.authenticate(await flow.obtain_key(ada))).limits == Limits(approval="destructive")
    assert (await harness.authenticate(await flow.obtain_key(ada, approval="none"))).limits is None


async def test_a_long_name_still_says_where_the_key_came_from(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    client = await flow.register_client("n" * 100)
    await flow.call_endpoint("oauth_exchange", client_id=client["client_id"], code=await flow.obtain_code(client, ada))
    name = (await harness.call("api_keys_list", ada))["keys"][0]["name"]
    assert len(name) == 100
    assert name.endswith("n (OAuth)")


async def test_a_code_says_what_it_is_bound_to(flow: Flow, ada: Account) -> None:
    client = await flow.register_client()
    code = await flow.obtain_code(client, ada)
    result = await flow.call_endpoint("oauth_code", client_id=client["client_id"], code=code)
    assert (result["redirect_uri"], result["redirect_given"], result["code_challenge"]) == (REDIRECT, True, CHALLENGE)


async def test_a_second_use_of_a_code_revokes_the_key_of_the_first(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    client = await flow.register_client()
    use = {"client_id": client["client_id"], "code": await flow.obtain_code(client, ada)}
    key = (await flow.call_endpoint("oauth_exchange", **use))["access_token"]
    await harness.authenticate(key)
    assert (await flow.call_endpoint("oauth_exchange", **use))["access_token"] is None
    with pytest.raises(InvalidApiKey):
        await harness.authenticate(key)
    assert (await flow.call_endpoint("oauth_exchange", **use))["access_token"] is None


async def test_of_many_exchanges_at_once_one_makes_a_key_and_the_others_revoke_it(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    client = await flow.register_client()
    use = {"client_id": client["client_id"], "code": await flow.obtain_code(client, ada)}
    results = await asyncio.gather(*(flow.call_endpoint("oauth_exchange", **use) for _ in range(8)))
    assert sum(answer["access_token"] is not None for answer in results) == 1
    async with harness.services.database.reading() as connection:
        assert await connection.scalar(select(func.count()).select_from(api_keys)) == 1
    assert await count_live_keys(harness) == 0


async def test_a_code_of_another_client_is_no_code(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    mine, other = await flow.register_client("Mine"), await flow.register_client("Other")
    code = await flow.obtain_code(mine, ada)
    for tool in ("oauth_code", "oauth_exchange"):
        with pytest.raises(InvalidGrant):
            await flow.call_endpoint(tool, client_id=other["client_id"], code=code)
    assert await count_live_keys(harness) == 0


async def test_a_code_is_good_for_five_minutes(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    client = await flow.register_client()
    use = {"client_id": client["client_id"], "code": await flow.obtain_code(client, ada)}
    harness.clock.advance(300)
    for tool in ("oauth_code", "oauth_exchange"):
        with pytest.raises(InvalidGrant):
            await flow.call_endpoint(tool, **use)
    assert await count_live_keys(harness) == 0


async def test_a_code_is_forgotten_when_it_is_past(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    await flow.obtain_code(await flow.register_client(), ada)
    for seconds, code_count in ((299, 1), (2, 0)):
        harness.clock.advance(seconds)
        await jobs.run_job(harness, "oauth_forget")
        async with harness.services.database.reading() as connection:
            assert await connection.scalar(select(func.count()).select_from(oauth_codes)) == code_count


async def test_who_has_left_the_organisation_since_gets_no_key(harness: ToolHarness, flow: Flow, ada: Account) -> None:
    team = await harness.create_organisation(ada)
    ben = await harness.join(team, ada, "ben@example.com", "member")
    client = await flow.register_client()
    code = await flow.obtain_code(client, ben, organization_id=team)
    await harness.call("organisations_remove_member", ada, organization_id=team, account_id=ben.account_id)
    with pytest.raises(InvalidGrant):
        await flow.call_endpoint("oauth_exchange", client_id=client["client_id"], code=code)
    assert await count_live_keys(harness) == 0


async def test_a_code_stays_good_when_there_was_no_room_for_its_key(
    harness: ToolHarness, flow: Flow, ada: Account
) -> None:
    client = await flow.register_client()
    use = {"client_id": client["client_id"], "code": await flow.obtain_code(client, ada)}
    mine: dict[str, Any] = {"organisation_id": ada.organisation_id, "account_id": ada.account_id}
    rows = [keys.key_row(harness.services, f"key {n}", "key", ["*"], **mine) for n in range(MOST_KEYS)]
    async with harness.services.database.writing() as connection:
        await connection.execute(insert(api_keys), rows)
    with pytest.raises(PlanLimitReached):
        await flow.call_endpoint("oauth_exchange", **use)
    await harness.call("api_keys_revoke", ada, key_id=rows[0]["id"])
    assert (await flow.call_endpoint("oauth_exchange", **use))["access_token"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("oauth_exchange", {"client_id": "c", "code": "x"}),
        ("oauth_code", {"client_id": "c", "code": "x"}),
        ("oauth_client", {"client_id": "c"}),
        ("oauth_register", {"redirect_uris": [REDIRECT]}),
    ],
)
async def test_what_belongs_to_the_endpoints_is_called_through_no_other_door(
    harness: ToolHarness, ada: Account, tool: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ThroughOAuthOnly):
        await harness.call(tool, ada, **arguments)
