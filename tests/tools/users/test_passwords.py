"""Sign-up and sign-in by password, and the codes around them."""

import asyncio
from typing import Any

import pytest

from baobab.tools.core.auth.passwords import WeakPassword
from baobab.tools.core.errors import InvalidUserToken, RateLimited
from baobab.tools.users.errors import CodeExpired, CodeUsed, UserExists, WrongCode, WrongCredentials
from tests.tools.users.conftest import EMAIL, PASSWORD, UsersHarness

NEW_PASSWORD = "Battery staple 9?"


async def test_whoever_signs_up_gets_a_code_and_logs_in_before_it_is_used(people: UsersHarness) -> None:
    user = await people.sign_up()
    assert user == {"id": user["id"], "email": EMAIL, "email_verified": False, "display_name": ""}
    signed_in = await people.log_in()
    assert (signed_in["token_type"], signed_in["expires_in"]) == ("Bearer", 3600)
    assert signed_in["user"] == {**user, "avatar_url": None}
    assert (await people.list_mails())[0]["template"] == "verify_email"

    message = await people.call("auth_verify_email", email=EMAIL, code=await people.read_code())
    assert message == {"message": "Email verified successfully"}
    me = await people.call("auth_me", await people.authenticate(await people.log_in()))
    assert (me["email_verified"], me["provider"], me["role"]) == (True, "email", "user")
    assert me["last_sign_in_at"] == people.tools.clock.now()


async def test_an_address_has_one_user_in_an_app_and_another_in_another(people: UsersHarness) -> None:
    await people.sign_up("Ada@Example.com")
    with pytest.raises(UserExists, match="User already exists"):
        await people.sign_up()
    other = await people.tools.create_app_row(people.owner.organisation_id, "app_000000000002")
    await people.tools.call("auth_signup", app_id=other, email=EMAIL, password=NEW_PASSWORD)
    with pytest.raises(WrongCredentials):
        await people.log_in(password=NEW_PASSWORD)
    assert (await people.log_in())["user"]["email"] == EMAIL


async def test_a_weak_password_is_refused_with_the_rules_that_it_breaks(people: UsersHarness) -> None:
    with pytest.raises(WeakPassword) as refusal:
        await people.sign_up(password="lowercase")
    assert refusal.value.details == {"rules": ["an uppercase letter", "a digit", "a special character"]}


@pytest.mark.parametrize("credentials", [{"email": EMAIL, "password": NEW_PASSWORD}, {"email": "eve@example.com"}])
async def test_a_wrong_password_and_an_unknown_address_are_answered_alike(
    people: UsersHarness, credentials: dict[str, str]
) -> None:
    await people.sign_up()
    with pytest.raises(WrongCredentials, match="Invalid credentials"):
        await people.log_in(**credentials)


async def test_a_user_without_a_password_cannot_log_in_by_one(people: UsersHarness) -> None:
    await people.call("auth_magic_link", email=EMAIL)
    await people.read_code()
    with pytest.raises(WrongCredentials):
        await people.log_in()


async def test_twenty_wrong_passwords_slow_the_guessers_down_and_not_the_user(people: UsersHarness) -> None:
    await people.sign_up()
    for guess in range(20):
        with pytest.raises(WrongCredentials):
            await people.call("auth_login", email=EMAIL, password=NEW_PASSWORD, ip=f"192.0.2.{guess}")
    with pytest.raises(RateLimited):
        await people.call("auth_login", email=EMAIL, password=NEW_PASSWORD, ip="192.0.2.1")
    assert await people.call("auth_login", email=EMAIL, password=PASSWORD, ip="198.51.100.1")


@pytest.mark.parametrize(
    ("tool", "amount", "arguments"),
    [
        ("auth_signup", 5, {"email": EMAIL, "password": "weak"}),
        ("auth_login", 10, {"email": EMAIL, "password": PASSWORD}),
        ("auth_verify_email", 10, {"email": EMAIL, "code": "000000"}),
        ("auth_forgot_password", 3, {"email": EMAIL}),
        ("auth_reset_password", 5, {"email": EMAIL, "code": "000000", "new_password": PASSWORD}),
        ("auth_magic_link", 5, {"email": EMAIL}),
        ("auth_magic_link_verify", 10, {"email": EMAIL, "code": "000000"}),
        ("auth_refresh", 20, {"refresh_token": "bb_ur_no"}),
    ],
)
async def test_an_address_may_call_a_route_as_often_as_the_contract_says(
    people: UsersHarness, tool: str, amount: int, arguments: dict[str, Any]
) -> None:
    async def ask() -> str:
        try:
            await people.call(tool, ip="192.0.2.1", **arguments)
        except (WeakPassword, WrongCredentials, WrongCode, InvalidUserToken) as error:
            return type(error).__name__
        except RateLimited as error:
            return f"limited for {error.retry_after} s"
        return "ok"

    # One after the other: of a stranger's passwords only so many are checked at once.
    answers = [await ask() for _ in range(amount + 1)]
    assert [answer for answer in answers if answer.startswith("limited")] == ["limited for 900 s"]


async def test_a_new_password_by_code_ends_every_session_at_once(people: UsersHarness) -> None:
    await people.sign_up()
    signed_in = [await people.log_in(), await people.log_in()]
    await people.authenticate(signed_in[0])
    await people.call("auth_forgot_password", email=EMAIL)
    code = await people.read_code()
    await people.call("auth_reset_password", email=EMAIL, code=code, new_password=NEW_PASSWORD)
    for tokens in signed_in:
        with pytest.raises(InvalidUserToken):
            await people.authenticate(tokens)
        with pytest.raises(InvalidUserToken, match="Invalid or expired refresh token"):
            await people.call("auth_refresh", refresh_token=tokens["refresh_token"])
    with pytest.raises(WrongCredentials):
        await people.log_in()
    assert (await people.log_in(password=NEW_PASSWORD))["user"]["email_verified"]


async def test_asking_for_a_new_password_answers_alike_and_mails_only_users(people: UsersHarness) -> None:
    await people.sign_up()
    result = await people.call("auth_forgot_password", email=EMAIL)
    assert result == await people.call("auth_forgot_password", email="eve@example.com")
    assert await people.list_mails("eve@example.com") == []


async def test_a_code_is_good_once_and_five_wrong_tries_void_it(people: UsersHarness) -> None:
    await people.sign_up()
    code = await people.read_code()
    wrong = f"{(int(code) + 1) % 10**6:06}"
    await people.call("auth_verify_email", email=EMAIL, code=code)
    with pytest.raises(CodeUsed, match="Verification code already used"):
        await people.call("auth_verify_email", email=EMAIL, code=code)

    await people.call("auth_magic_link", email=EMAIL)
    code = await people.read_code()
    wrong = f"{(int(code) + 1) % 10**6:06}"
    for _ in range(5):
        with pytest.raises(WrongCode, match="Invalid sign-in code"):
            await people.call("auth_magic_link_verify", email=EMAIL, code=wrong)
    with pytest.raises(WrongCode, match="Invalid sign-in code"):
        await people.call("auth_magic_link_verify", email=EMAIL, code=code)


async def test_many_guesses_at_once_are_not_more_than_five(people: UsersHarness) -> None:
    await people.call("auth_magic_link", email=EMAIL)
    code = int(await people.read_code())

    async def guess(number: int) -> bool:
        try:
            await people.call("auth_magic_link_verify", email=EMAIL, code=f"{number % 10**6:06}")
        except WrongCode:
            return False
        return True

    # The right one comes last, after as many wrong ones as void it.
    assert not any(await asyncio.gather(*(guess(code + step) for step in range(12, -1, -1))))


@pytest.mark.parametrize(
    ("ask", "use", "seconds", "text"),
    [
        ("auth_magic_link", "auth_magic_link_verify", 15 * 60, "Sign-in code expired"),
        ("auth_forgot_password", "auth_reset_password", 3600, "Reset code expired"),
    ],
)
async def test_a_code_lives_exactly_as_long_as_documented(
    people: UsersHarness, ask: str, use: str, seconds: int, text: str
) -> None:
    await people.sign_up()
    further = {"new_password": NEW_PASSWORD} if "reset" in use else {}
    for wait, refusal in ((seconds - 1, None), (seconds, text)):
        people.tools.clock.advance(1000)
        await people.call(ask, email=EMAIL)
        code = await people.read_code()
        people.tools.clock.advance(wait)
        if refusal is None:
            await people.call(use, email=EMAIL, code=code, **further)
        else:
            with pytest.raises(CodeExpired, match=refusal):
                await people.call(use, email=EMAIL, code=code, **further)


async def test_a_newer_code_voids_the_older(people: UsersHarness) -> None:
    await people.call("auth_magic_link", email=EMAIL)
    older = await people.read_code()
    people.tools.clock.advance(1)
    await people.call("auth_magic_link", email=EMAIL)
    newer = await people.read_code()
    if older != newer:
        with pytest.raises(WrongCode):
            await people.call("auth_magic_link_verify", email=EMAIL, code=older)
    assert await people.call("auth_magic_link_verify", email=EMAIL, code=newer)


async def test_an_address_gets_only_so_many_codes_whoever_asks(people: UsersHarness) -> None:
    for _ in range(8):
        await people.call("auth_magic_link", email=EMAIL)
    assert len(await people.list_mails()) == 5


async def test_signing_in_by_mail_removes_a_password_that_a_stranger_may_have_set(people: UsersHarness) -> None:
    await people.sign_up(password=NEW_PASSWORD)
    strangers = await people.log_in(password=NEW_PASSWORD)
    await people.call("auth_magic_link", email=EMAIL)
    signed_in = await people.call("auth_magic_link_verify", email=EMAIL, code=await people.read_code())
    assert signed_in["user"]["email_verified"]
    with pytest.raises(WrongCredentials):
        await people.log_in(password=NEW_PASSWORD)
    with pytest.raises(InvalidUserToken):
        await people.authenticate(strangers)
    assert (await people.authenticate(signed_in)).user_id == signed_in["user"]["id"]
    people.tools.clock.advance(3600)
    await people.call("auth_magic_link", email=EMAIL)
    again = await people.call("auth_magic_link_verify", email=EMAIL, code=await people.read_code())
    assert again["user"] == signed_in["user"]
