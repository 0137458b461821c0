import asyncio
import dataclasses
from typing import Any

import pytest

from baobab.storage.secrets import Vault, new_key
from baobab.tools.accounts.errors import InvalidRefreshToken
from baobab.tools.core.errors import BaobabError
from tests.tools.conftest import PASSWORD, House

DAY = 86_400


async def session(house: House) -> str:
    token: str = (await house.use("platform_login", email="ada@example.com", password=PASSWORD))["refresh_token"]
    return token


async def refresh(house: House, token: str) -> str:
    successor: str = (await house.use("platform_refresh", refresh_token=token))["refresh_token"]
    return successor


async def test_a_refreshed_token_belongs_to_the_same_account(house: House) -> None:
    ada = await house.sign_up("ada@example.com")
    answer = await house.use("platform_refresh", refresh_token=await session(house))
    assert await house.bearer(answer["token"]) == ada
    assert answer["expires_in"] == 3600


async def test_twenty_refreshes_of_one_token_at_once_get_one_and_the_same_successor(house: House) -> None:
    await house.sign_up("ada@example.com")
    first = await session(house)
    successors = set(await asyncio.gather(*(refresh(house, first) for _ in range(20))))
    assert len(successors) == 1
    [successor] = successors
    assert await refresh(house, successor) != successor


async def test_a_lost_answer_is_repeated_for_ten_seconds(house: House) -> None:
    await house.sign_up("ada@example.com")
    first = await session(house)
    second = await refresh(house, first)
    house.clock.advance(10)
    assert await refresh(house, first) == second
    assert await refresh(house, second) not in (first, second)


async def test_a_successor_is_repeated_or_refused_but_never_made_up_with_another_key(house: House) -> None:
    await house.sign_up("ada@example.com")
    first = await session(house)
    second = await refresh(house, first)
    house.registry.bind(dataclasses.replace(house.services, vault=Vault([new_key()])))
    with pytest.raises(InvalidRefreshToken):
        await refresh(house, first)
    await refresh(house, second)


async def test_reuse_after_the_grace_ends_that_session_and_no_other(house: House) -> None:
    await house.sign_up("ada@example.com")
    first, other = await session(house), await session(house)
    newest = await refresh(house, await refresh(house, first))
    house.clock.advance(10.1)
    for token in (first, newest):
        with pytest.raises(InvalidRefreshToken) as refusal:
            await refresh(house, token)
        assert refusal.value.status == 401
    await refresh(house, other)


async def test_a_refresh_token_lives_seven_days_from_its_making(house: House) -> None:
    await house.sign_up("ada@example.com")
    kept, renewed = await session(house), await session(house)
    house.clock.advance(7 * DAY - 1)
    renewed = await refresh(house, renewed)
    house.clock.advance(1)
    with pytest.raises(InvalidRefreshToken):
        await refresh(house, kept)
    await refresh(house, renewed)


async def test_logging_out_ends_every_session_of_the_account_even_within_the_grace(house: House) -> None:
    ada = await house.sign_up("ada@example.com")
    first, other = await session(house), await session(house)
    second = await refresh(house, first)
    await house.use("platform_logout", ada)
    for token in (first, second, other):
        with pytest.raises(InvalidRefreshToken):
            await refresh(house, token)
    await refresh(house, await session(house))


async def test_no_refresh_token_is_kept_as_text(house: House) -> None:
    await house.sign_up("ada@example.com")
    first = await session(house)
    second = await refresh(house, first)
    kept = house.kept()
    assert b"ada@example.com" in kept
    assert first.encode() not in kept
    assert second.encode() not in kept


@pytest.mark.parametrize("token", ["bb_rt_" + "x" * 43, "no token", "\x00", "", "x" * 101, 7, None])
async def test_what_is_no_live_token_is_refused(house: House, token: Any) -> None:
    with pytest.raises(BaobabError) as refusal:
        await house.use("platform_refresh", refresh_token=token)
    assert refusal.value.status in (400, 401)
