import asyncio

import pytest

from baobab.tools.accounts.errors import NoAccountYet
from baobab.tools.accounts.first_account import ensure_first_account, first_account, set_password
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.errors import Forbidden, InvalidApiKey
from tests.tools.conftest import PASSWORD, ToolHarness

BOOTSTRAP = "bb_sk_" + "A1b2" * 10


async def test_workers_that_start_at_once_make_one_account_and_one_of_them_learns_its_key(harness: ToolHarness) -> None:
    answers = await asyncio.gather(*(ensure_first_account(harness.services, None) for _ in range(8)))
    [key] = [answer for answer in answers if answer is not None]
    owner = await harness.authenticate(key)
    assert isinstance(owner, Account)
    me = await harness.call("platform_me", owner)
    assert me["user"]["email"] == "owner@localhost"
    assert [(o["personal"], o["role"]) for o in me["organizations"]] == [(True, "owner")]
    [listed_key] = (await harness.call("api_keys_list", owner))["keys"]
    assert (listed_key["name"], listed_key["scopes"], listed_key["prefix"]) == ("first key", ["*"], key[:12])


async def test_the_key_that_the_operator_chose_works_from_the_first_start_or_any_later_one(
    harness: ToolHarness,
) -> None:
    generated_key = await ensure_first_account(harness.services, None)
    assert generated_key is not None
    later = await asyncio.gather(*(ensure_first_account(harness.services, BOOTSTRAP) for _ in range(8)))
    assert set(later) == {None}
    first, second = await harness.authenticate(generated_key), await harness.authenticate(BOOTSTRAP)
    assert isinstance(first, Account)
    assert isinstance(second, Account)
    assert (second.account_id, second.organisation_id) == (first.account_id, first.organisation_id)
    assert len((await harness.call("api_keys_list", first))["keys"]) == 2


async def test_a_revoked_key_does_not_come_back_with_the_next_start(harness: ToolHarness) -> None:
    assert await ensure_first_account(harness.services, BOOTSTRAP) == BOOTSTRAP
    owner = await harness.authenticate(BOOTSTRAP)
    [key] = (await harness.call("api_keys_list", owner))["keys"]
    await harness.call("api_keys_revoke", owner, key_id=key["id"])
    assert await ensure_first_account(harness.services, BOOTSTRAP) is None
    with pytest.raises(InvalidApiKey):
        await harness.authenticate(BOOTSTRAP)


async def test_the_first_account_gets_its_password_from_whoever_has_the_folder_and_no_key_sets_one(
    harness: ToolHarness,
) -> None:
    owner = await harness.authenticate(await ensure_first_account(harness.services, None) or "")
    with pytest.raises(Forbidden):
        await harness.call("platform_update", owner, password=PASSWORD)
    assert await set_password(harness.services, None, PASSWORD) == "owner@localhost"
    signed_in = await harness.call("platform_login", email="owner@localhost", password=PASSWORD)
    assert isinstance(owner, Account)
    assert signed_in["user"]["id"] == owner.account_id


async def test_the_command_line_acts_for_the_first_account_once_there_is_one(harness: ToolHarness) -> None:
    with pytest.raises(NoAccountYet):
        await first_account(harness.services)
    key = await ensure_first_account(harness.services, None)
    harness.clock.advance(1)
    await harness.sign_up("ada@example.com")
    acting, owner = await first_account(harness.services), await harness.authenticate(key or "")
    assert isinstance(owner, Account)
    assert acting == Account(owner.account_id, owner.organisation_id)
