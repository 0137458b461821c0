"""Sessions of users: refresh tokens are good for one exchange, and what ends a session ends its access tokens."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from baobab.storage.sql.notices import Notices
from baobab.tools.core.auth.credentials import Credentials
from baobab.tools.core.auth.directory import Directory
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.errors import InvalidUserToken, UserTokenExpired
from baobab.tools.users.errors import SessionNotFound, WrongRefreshToken
from baobab.tools.users.session_check import SessionCheck
from tests.tools.users.conftest import EMAIL, UsersHarness


@pytest.fixture
async def tokens(people: UsersHarness) -> Any:
    await people.sign_up()
    return await people.log_in()


async def refresh(people: UsersHarness, token: str) -> Any:
    return await people.call("auth_refresh", refresh_token=token)


async def test_a_refresh_answers_a_new_pair_and_voids_the_old_token(people: UsersHarness, tokens: Any) -> None:
    people.tools.clock.advance(60)
    new_tokens = await refresh(people, tokens["refresh_token"])
    assert new_tokens.keys() == {"access_token", "refresh_token", "expires_in", "token_type"}
    assert new_tokens["refresh_token"] != tokens["refresh_token"]
    assert (await people.authenticate(new_tokens)).user_id == tokens["user"]["id"]
    people.tools.clock.advance(11)
    with pytest.raises(WrongRefreshToken):
        await refresh(people, tokens["refresh_token"])
    # Two parties held the token: neither goes on.
    with pytest.raises(WrongRefreshToken):
        await refresh(people, new_tokens["refresh_token"])
    with pytest.raises(InvalidUserToken):
        await people.authenticate(new_tokens)


async def test_two_tabs_that_refresh_at_once_get_the_same_token(people: UsersHarness, tokens: Any) -> None:
    answers = await asyncio.gather(*(refresh(people, tokens["refresh_token"]) for _ in range(8)))
    assert len({answer["refresh_token"] for answer in answers}) == 1
    people.tools.clock.advance(10)
    again = await refresh(people, tokens["refresh_token"])
    assert again["refresh_token"] == answers[0]["refresh_token"]
    people.tools.clock.advance(60)
    assert await refresh(people, again["refresh_token"])


async def test_a_session_lives_as_long_as_it_is_refreshed_in_time(people: UsersHarness, tokens: Any) -> None:
    for _ in range(3):
        people.tools.clock.advance(7 * 86400 - 1)
        tokens = await refresh(people, tokens["refresh_token"])
    people.tools.clock.advance(7 * 86400)
    with pytest.raises(WrongRefreshToken):
        await refresh(people, tokens["refresh_token"])


@pytest.mark.parametrize("alter", [lambda t: t[:-2] + "AA", lambda t: t[6:], lambda t: t + "A", lambda _: "bb_ur_é"])
async def test_an_altered_refresh_token_is_refused_and_ends_nothing(
    people: UsersHarness, tokens: Any, alter: Any
) -> None:
    with pytest.raises(WrongRefreshToken):
        await refresh(people, alter(tokens["refresh_token"]))
    assert await refresh(people, tokens["refresh_token"])


async def test_a_token_of_one_app_is_a_strangers_in_another(people: UsersHarness, tokens: Any) -> None:
    other = await people.tools.create_app_row(people.owner.organisation_id, "app_000000000002")
    with pytest.raises(WrongRefreshToken):
        await people.tools.call("auth_refresh", app_id=other, refresh_token=tokens["refresh_token"])
    with pytest.raises(InvalidUserToken):
        await people.tools.call("auth_me", await people.authenticate(tokens), app_id=other)


async def test_tokens_live_as_long_as_the_app_says(people: UsersHarness) -> None:
    settings = {"accessTokenTtl": "15m", "refreshTokenTtlDays": 1}
    services = people.tools.services
    async with services.database.writing_unit(lock=people.app_id) as unit:
        await unit.execute(update(apps).where(apps.c.id == people.app_id).values(jwt_config=settings))
        await services.notices.publish(unit, "app", people.app_id)
    await people.sign_up()
    tokens = await people.log_in()
    assert tokens["expires_in"] == 900
    people.tools.clock.advance(899)
    await people.authenticate(tokens)
    people.tools.clock.advance(1)
    with pytest.raises(UserTokenExpired):
        await people.authenticate(tokens)
    people.tools.clock.advance(86400 - 900)
    with pytest.raises(WrongRefreshToken):
        await refresh(people, tokens["refresh_token"])


async def test_logging_out_ends_all_sessions_here_at_once_and_elsewhere_after_a_poll(
    people: UsersHarness, tokens: Any
) -> None:
    services, other = people.tools.services, await people.log_in()
    far = Notices(services.database, services.clock, services.ids)
    directory = Directory(services.database, services.clock, far, services.credits)
    check = SessionCheck(directory, services.regions, services.clock)
    elsewhere = Credentials(directory, services.signers, check, services.clock, far)
    await far.poll()
    header = b"Bearer " + other["access_token"].encode()
    assert await elsewhere.caller(header) == await people.authenticate(other)

    await people.call("auth_logout", await people.authenticate(tokens))
    for each in (tokens, other):
        with pytest.raises(InvalidUserToken, match="session of this token has ended"):
            await people.authenticate(each)
        with pytest.raises(WrongRefreshToken):
            await refresh(people, each["refresh_token"])
    await far.poll()
    with pytest.raises(InvalidUserToken):
        await elsewhere.caller(header)


async def test_a_user_lists_sessions_and_ends_one(people: UsersHarness, tokens: Any) -> None:
    people.tools.clock.advance(1)
    phone = await people.log_in()
    caller = await people.authenticate(phone)
    sessions = (await people.call("auth_sessions", caller))["sessions"]
    assert [(row["current"], row["method"]) for row in sessions] == [(True, "email"), (False, "email")]
    assert await people.call("auth_session_end", caller, session_id=sessions[1]["id"]) == {"ended": 1}
    with pytest.raises(InvalidUserToken):
        await people.authenticate(tokens)
    assert await people.authenticate(phone) == caller
    with pytest.raises(SessionNotFound):
        await people.call("auth_session_end", caller, session_id=sessions[1]["id"])


async def test_a_user_has_at_most_fifty_sessions_and_the_oldest_ends_first(people: UsersHarness, tokens: Any) -> None:
    for _ in range(50):
        people.tools.clock.advance(100)
        newest = await people.log_in()
    with pytest.raises(WrongRefreshToken):
        await refresh(people, tokens["refresh_token"])
    assert len((await people.call("auth_sessions", await people.authenticate(newest)))["sessions"]) == 50


async def test_tokens_of_a_key_that_was_rotated_out_are_good_for_a_day(people: UsersHarness, tokens: Any) -> None:
    before = (await people.call("auth_jwks"))["keys"]
    result = await people.call("users_rotate_keys", people.owner)
    assert [key["kid"] for key in result["keys"]] == [result["kid"], before[0]["kid"]]
    assert (await people.call("auth_jwks"))["keys"] == result["keys"]
    assert set(before[0]) == {"kty", "use", "alg", "kid", "n", "e"}
    await people.authenticate(tokens)
    new_tokens = await people.log_in()
    await people.authenticate(new_tokens)
    people.tools.clock.advance(86400)
    assert [key["kid"] for key in (await people.call("auth_jwks"))["keys"]] == [result["kid"]]


async def test_a_changed_password_ends_the_other_sessions_only(people: UsersHarness, tokens: Any) -> None:
    other = await people.log_in()
    caller, changes = await people.authenticate(tokens), {"password": "Battery staple 9?"}
    changes |= {"current_password": "correct Horse 7!", "display_name": "Ada"}
    assert (await people.call("auth_update_me", caller, **changes))["display_name"] == "Ada"
    assert await people.authenticate(tokens) == caller
    with pytest.raises(InvalidUserToken):
        await people.authenticate(other)
    assert (await people.log_in(EMAIL, "Battery staple 9?"))["user"]["display_name"] == "Ada"
