"""Anonymous users: a sign-in without an address, upgraded later, swept when nobody uses it."""

import base64
import json
from typing import Any

import pytest

from baobab.tools.core.errors import Forbidden, InvalidUserToken, RateLimited
from baobab.tools.users.errors import AnonymousClosed, CodeUsed, NotAnonymous, UserExists, WrongCode, WrongCredentials
from tests.jobs import run_job
from tests.tools.users.conftest import EMAIL, PASSWORD, UsersHarness

DAY = 86400


def read_claims(tokens: Any) -> Any:
    return json.loads(base64.urlsafe_b64decode(tokens["access_token"].split(".")[1] + "=="))


async def come_anonymously(people: UsersHarness, **settings: Any) -> Any:
    await people.call("users_settings_update", people.owner, anonymous=True, **settings)
    return await people.call("auth_anonymous")


async def test_nobody_is_anonymous_until_the_app_allows_it(people: UsersHarness) -> None:
    with pytest.raises(AnonymousClosed):
        await people.call("auth_anonymous")
    assert (await people.call("users_settings_get", people.owner))["settings"]["anonymous"] is False
    assert not (await people.call("users_list", people.owner))["users"]
    signed_in = await come_anonymously(people)
    assert (signed_in["user"]["email"], signed_in["user"]["email_verified"]) == (None, False)
    claims = read_claims(signed_in)
    assert (claims["is_anonymous"], claims["email"], claims["role"]) == (True, None, "user")
    me = await people.call("auth_me", await people.authenticate(signed_in))
    assert (me["id"], me["provider"]) == (claims["sub"], "anonymous")
    await people.sign_up()
    assert read_claims(await people.log_in())["is_anonymous"] is False


async def test_strangers_make_only_so_many_anonymous_users_from_one_address(people: UsersHarness) -> None:
    await come_anonymously(people)
    for _ in range(30):
        await people.tools.call("auth_anonymous", app_id=people.app_id, ip="192.0.2.7")
    with pytest.raises(RateLimited):
        await people.tools.call("auth_anonymous", app_id=people.app_id, ip="192.0.2.7")
    assert await people.call("auth_anonymous")


async def test_an_anonymous_user_gets_an_address_and_a_password_and_keeps_the_id(people: UsersHarness) -> None:
    tokens = await come_anonymously(people)
    caller = await people.authenticate(tokens)
    result = await people.call("auth_upgrade", caller, email=EMAIL, password=PASSWORD, display_name="Ada")
    assert result["user"] == {
        "id": tokens["user"]["id"], "email": EMAIL, "email_verified": False, "display_name": "Ada"
    }  # fmt: skip
    renewed_result = await people.call("auth_refresh", refresh_token=tokens["refresh_token"])
    assert (read_claims(renewed_result)["is_anonymous"], read_claims(renewed_result)["email"]) == (False, EMAIL)
    people.tools.clock.advance(1)
    assert (await people.log_in())["user"]["id"] == tokens["user"]["id"]
    assert await people.call("auth_verify_email", email=EMAIL, code=await people.read_code())
    with pytest.raises(NotAnonymous):
        await people.call("auth_upgrade", caller, email="other@example.com", password=PASSWORD)


async def test_an_address_of_another_user_is_not_taken(people: UsersHarness) -> None:
    await people.sign_up()
    tokens = await come_anonymously(people)
    caller = await people.authenticate(tokens)
    with pytest.raises(UserExists):
        await people.call("auth_upgrade", caller, email=EMAIL, password="Battery staple 9?")
    await people.call("auth_upgrade_code", caller, email=EMAIL)
    with pytest.raises(UserExists):
        await people.call("auth_upgrade_verify", caller, email=EMAIL, code=await people.read_code())
    with pytest.raises(WrongCredentials):
        await people.log_in(password="Battery staple 9?")
    assert (await people.call("auth_me", caller))["email"] is None


async def test_a_mailed_code_adds_a_verified_address_and_ends_other_sessions(people: UsersHarness) -> None:
    tokens = await come_anonymously(people)
    caller = await people.authenticate(tokens)
    await people.call("auth_upgrade_code", caller, email=EMAIL)
    code = await people.read_code()
    with pytest.raises(WrongCode):
        await people.call("auth_magic_link_verify", email=EMAIL, code=code)
    other = await people.authenticate(await people.call("auth_anonymous"))
    assert await people.call("auth_upgrade_verify", caller, email=EMAIL, code=code)
    with pytest.raises(CodeUsed):
        await people.call("auth_upgrade_verify", other, email=EMAIL, code=code)
    me = await people.call("auth_me", caller)
    assert (me["id"], me["email"], me["email_verified"]) == (tokens["user"]["id"], EMAIL, True)
    people.tools.clock.advance(1)
    await people.call("auth_magic_link", email=EMAIL)
    again = await people.call("auth_magic_link_verify", email=EMAIL, code=await people.read_code())
    assert again["user"]["id"] == tokens["user"]["id"]


async def test_two_addresses_at_once_make_one_user(people: UsersHarness) -> None:
    caller = await people.authenticate(await come_anonymously(people))
    await people.call("auth_upgrade", caller, email=EMAIL, password=PASSWORD)
    with pytest.raises(NotAnonymous):
        await people.call("auth_upgrade_oauth", caller)
    with pytest.raises(Forbidden):
        await people.call("auth_upgrade", people.owner, email="b@example.com", password=PASSWORD)


async def test_anonymous_users_that_nobody_uses_are_deleted_after_the_days_that_the_app_has_set(
    people: UsersHarness,
) -> None:
    unused_tokens = await come_anonymously(people, anonymous_days=5)
    result = await people.call("auth_anonymous")
    upgraded_tokens = await people.call("auth_anonymous")
    await people.call("auth_upgrade", await people.authenticate(upgraded_tokens), email=EMAIL, password=PASSWORD)
    people.tools.clock.advance(4 * DAY)
    result = await people.call("auth_refresh", refresh_token=result["refresh_token"])
    people.tools.clock.advance(DAY + 1)
    await run_job(people.tools, "auth_sweep_anonymous")
    ids = {user["id"] for user in (await people.call("users_list", people.owner))["users"]}
    assert ids == {read_claims(result)["sub"], upgraded_tokens["user"]["id"]}
    with pytest.raises(InvalidUserToken):
        await people.call("auth_refresh", refresh_token=unused_tokens["refresh_token"])
