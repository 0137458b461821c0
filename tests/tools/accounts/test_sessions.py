import asyncio
import dataclasses
from typing import Any

import pytest

from baobab.storage.secrets import Vault, new_key
from baobab.tools.accounts.errors import InvalidRefreshToken
from baobab.tools.core.errors import BaobabError
from tests.tools.conftest import PASSWORD, ToolHarness

DAY = 86_400


async def sign_in(harness: ToolHarness) -> str:
    token: str = (await harness.call("platform_login", email="ada@example.com", password=PASSWORD))["refresh_token"]
    return token


async def refresh_session(harness: ToolHarness, token: str) -> str:
    successor: str = (await harness.call("platform_refresh", refresh_token=token))["refresh_token"]
    return successor


async def test_a_refreshed_token_belongs_to_the_same_account(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    answer = await harness.call("platform_refresh", refresh_token=await sign_in(harness))
    assert await harness.authenticate(answer["token"]) == ada
    assert answer["expires_in"] == 3600


async def test_twenty_refreshes_of_one_token_at_once_get_one_and_the_same_successor(harness: ToolHarness) -> None:
    await harness.sign_up("ada@example.com")
    first = await sign_in(harness)
    successors = set(await asyncio.gather(*(refresh_session(harness, first) for _ in range(20))))
    assert len(successors) == 1
    [successor] = successors
    assert await refresh_session(harness, successor) != successor


async def test_a_lost_answer_is_repeated_for_ten_seconds(harness: ToolHarness) -> None:
    await harness.sign_up("ada@example.com")
    first = await sign_in(harness)
    second = await refresh_session(harness, first)
    harness.clock.advance(10)
    assert await refresh_session(harness, first) == second
    assert await refresh_session(harness, second) not in (first, second)


async def test_a_successor_is_repeated_or_refused_but_never_made_up_with_another_key(harness: ToolHarness) -> None:
    await harness.sign_up("ada@example.com")
    first = await sign_in(harness)
    second = await refresh_session(harness, first)
    harness.registry.bind(dataclasses.replace(harness.services, vault=Vault([new_key()])))
    with pytest.raises(InvalidRefreshToken):
        await refresh_session(harness, first)
    await refresh_session(harness, second)


async def test_reuse_after_the_grace_ends_that_session_and_no_other(harness: ToolHarness) -> None:
    await harness.sign_up("ada@example.com")
    first, other = await sign_in(harness), await sign_in(harness)
    newest = await refresh_session(harness, await refresh_session(harness, first))
    harness.clock.advance(10.1)
    for token in (first, newest):
        with pytest.raises(InvalidRefreshToken) as refusal:
            await refresh_session(harness, token)
        assert refusal.value.status == 401
    await refresh_session(harness, other)


async def test_a_refresh_token_lives_seven_days_from_its_making(harness: ToolHarness) -> None:
    await harness.sign_up("ada@example.com")
    first_tokens, second_tokens = await sign_in(harness), await sign_in(harness)
    harness.clock.advance(7 * DAY - 1)
    second_tokens = await refresh_session(harness, second_tokens)
    harness.clock.advance(1)
    with pytest.raises(InvalidRefreshToken):
        await refresh_session(harness, first_tokens)
    await refresh_session(harness, second_tokens)


async def test_logging_out_ends_every_session_of_the_account_even_within_the_grace(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    first, other = await sign_in(harness), await sign_in(harness)
    second = await refresh_session(harness, first)
    await harness.call("platform_logout", ada)
    for token in (first, second, other):
        with pytest.raises(InvalidRefreshToken):
            await refresh_session(harness, token)
    await refresh_session(harness, await sign_in(harness))


async def test_no_refresh_token_is_kept_as_text(harness: ToolHarness) -> None:
    await harness.sign_up("ada@example.com")
    first = await sign_in(harness)
    second = await refresh_session(harness, first)
    database = harness.read_database()
    assert b"ada@example.com" in database
    assert first.encode() not in database
    assert second.encode() not in database


@pytest.mark.parametrize("token", ["bb_rt_" + "x" * 43, "no token", "\x00", "", "x" * 101, 7, None])
async def test_what_is_no_live_token_is_refused(harness: ToolHarness, token: Any) -> None:
    with pytest.raises(BaobabError) as refusal:
        await harness.call("platform_refresh", refresh_token=token)
    assert refusal.value.status in (400, 401)
