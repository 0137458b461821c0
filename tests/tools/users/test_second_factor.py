"""The second factor: an authenticator app, recovery codes, challenges, and the setting that requires it."""

import asyncio
import re
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import select

from baobab.tools.core.errors import BaobabError, Forbidden, InvalidUserToken, RateLimited, Unauthenticated
from baobab.tools.users.errors import (
    ChallengeOver,
    FactorExists,
    FactorNotFound,
    SignInTooOld,
    WrongFactorCode,
)
from baobab.tools.users.tables import user_challenges, user_recovery_codes, user_totp
from baobab.tools.users.totp import compute_code
from tests.tools.users.conftest import EMAIL, PASSWORD, UsersHarness

WRONG = "000000"


def compute_now(people: UsersHarness, secret: str) -> str:
    return compute_code(secret, int(people.tools.clock.time()) // 30)


async def enrol(people: UsersHarness) -> tuple[str, list[str]]:
    """A user with an authenticator app: its secret, and the recovery codes."""
    await people.sign_up()
    user = await people.authenticate(await people.log_in())
    secret = (await people.call("auth_totp_enrol", user))["secret"]
    result = await people.call("auth_totp_confirm", user, code=compute_now(people, secret))
    assert result["signed_in"] is None
    people.tools.clock.advance(60)
    return secret, result["recovery_codes"]


async def require(people: UsersHarness, setting: str = "required") -> None:
    await people.call("users_settings_update", people.owner, second_factor=setting)


@pytest.mark.parametrize(
    ("moment", "code"),
    [(59, "287082"), (1111111109, "081804"), (1111111111, "050471"), (1234567890, "005924"), (20000000000, "353130")],
)
def test_codes_are_those_of_the_standard(moment: int, code: str) -> None:
    # RFC 6238, appendix B: the last six digits, of the key "12345678901234567890".
    assert compute_code("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", moment // 30) == code


async def test_a_sign_in_asks_for_a_code_and_answers_tokens_for_it(people: UsersHarness) -> None:
    secret, _ = await enrol(people)
    pending_login = await people.log_in()
    assert (pending_login["methods"], pending_login["enrol"], pending_login["expires_in"]) == (
        ["totp", "recovery_code"],
        False,
        600,
    )
    assert "access_token" not in pending_login
    signed_in = await people.call(
        "auth_second_factor", challenge=pending_login["challenge"], code=compute_now(people, secret)
    )
    user = await people.authenticate(signed_in)
    assert await people.call("auth_second_factor_get", user) == {
        "totp": True, "recovery_codes": 10, "passkeys": 0, "required": False
    }  # fmt: skip
    sessions = (await people.call("auth_sessions", user))["sessions"]
    assert [session["method"] for session in sessions] == ["email", "email"]


async def test_a_mailed_code_is_a_first_factor_only(people: UsersHarness) -> None:
    await enrol(people)
    await people.call("auth_verify_email", email=EMAIL, code=await people.read_code())
    await people.call("auth_magic_link", email=EMAIL)
    assert "challenge" in await people.call("auth_magic_link_verify", email=EMAIL, code=await people.read_code())


async def test_a_code_is_good_once(people: UsersHarness) -> None:
    secret, _ = await enrol(people)
    code = compute_now(people, secret)
    await people.call("auth_second_factor", challenge=(await people.log_in())["challenge"], code=code)
    pending_login = await people.log_in()
    with pytest.raises(WrongFactorCode):
        await people.call("auth_second_factor", challenge=pending_login["challenge"], code=code)
    # Nor is the one before it, which somebody may have read over the user's shoulder.
    earlier = compute_code(secret, int(people.tools.clock.time()) // 30 - 1)
    with pytest.raises(WrongFactorCode):
        await people.call("auth_second_factor", challenge=pending_login["challenge"], code=earlier)


async def test_one_code_sent_twice_at_once_signs_in_once(people: UsersHarness) -> None:
    secret, _ = await enrol(people)
    pending_logins, code = [await people.log_in() for _ in range(2)], compute_now(people, secret)
    tries = (people.call("auth_second_factor", challenge=one["challenge"], code=code) for one in pending_logins)
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(isinstance(answer, WrongFactorCode) for answer in answers) == [False, True]


async def test_a_challenge_is_good_once_and_for_ten_minutes(people: UsersHarness) -> None:
    secret, codes = await enrol(people)
    pending_login = await people.log_in()
    await people.call("auth_second_factor", challenge=pending_login["challenge"], code=codes[0])
    with pytest.raises(ChallengeOver):
        await people.call("auth_second_factor", challenge=pending_login["challenge"], code=codes[1])
    late = await people.log_in()
    people.tools.clock.advance(601)
    with pytest.raises(ChallengeOver):
        await people.call("auth_second_factor", challenge=late["challenge"], code=compute_now(people, secret))
    with pytest.raises(ChallengeOver):
        await people.call("auth_second_factor", challenge="bb_2f_" + "x" * 43, code=compute_now(people, secret))


async def test_five_wrong_codes_make_the_sixth_wait_but_not_recovery_codes(people: UsersHarness) -> None:
    secret, codes = await enrol(people)
    pending_login = await people.log_in()
    for _ in range(5):
        with pytest.raises(WrongFactorCode):
            await people.call("auth_second_factor", challenge=pending_login["challenge"], code=WRONG)
    with pytest.raises(RateLimited) as refusal:
        await people.call("auth_second_factor", challenge=pending_login["challenge"], code=compute_now(people, secret))
    assert refusal.value.retry_after == 900
    # A new challenge gives no new tries.
    other = await people.log_in()
    with pytest.raises(RateLimited):
        await people.call("auth_second_factor", challenge=other["challenge"], code=compute_now(people, secret))
    assert "access_token" in await people.call("auth_second_factor", challenge=other["challenge"], code=codes[3])
    people.tools.clock.advance(901)
    pending_login = await people.log_in()
    code = compute_now(people, secret)
    assert "access_token" in await people.call("auth_second_factor", challenge=pending_login["challenge"], code=code)


async def test_many_wrong_codes_at_once_count_each(people: UsersHarness) -> None:
    await enrol(people)
    pending_login = await people.log_in()
    tries = (people.call("auth_second_factor", challenge=pending_login["challenge"], code=WRONG) for _ in range(8))
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["RateLimited"] * 3 + ["WrongFactorCode"] * 5


async def test_a_recovery_code_is_good_once_however_it_is_typed(people: UsersHarness) -> None:
    _, codes = await enrol(people)
    assert len(set(codes)) == 10
    typed_code = f" {codes[0].upper().replace('-', ' ')} "
    pending_login = await people.log_in()
    assert "access_token" in await people.call(
        "auth_second_factor", challenge=pending_login["challenge"], code=typed_code
    )
    pending_login = await people.log_in()
    with pytest.raises(WrongFactorCode):
        await people.call("auth_second_factor", challenge=pending_login["challenge"], code=codes[0])


async def test_new_recovery_codes_void_the_old_ones(people: UsersHarness) -> None:
    secret, codes = await enrol(people)
    pending_login = await people.log_in()
    signed_in = await people.call("auth_second_factor", challenge=pending_login["challenge"], code=codes[0])
    user = await people.authenticate(signed_in)
    with pytest.raises(WrongFactorCode):
        await people.call("auth_recovery_codes", user, code=WRONG)
    recovery_codes = (await people.call("auth_recovery_codes", user, code=compute_now(people, secret)))[
        "recovery_codes"
    ]
    pending_login = await people.log_in()
    with pytest.raises(WrongFactorCode):
        await people.call("auth_second_factor", challenge=pending_login["challenge"], code=codes[1])
    assert "access_token" in await people.call(
        "auth_second_factor", challenge=pending_login["challenge"], code=recovery_codes[1]
    )


async def test_an_authenticator_app_is_removed_with_a_code_only(people: UsersHarness) -> None:
    secret, codes = await enrol(people)
    pending_login = await people.log_in()
    signed_in = await people.call("auth_second_factor", challenge=pending_login["challenge"], code=codes[0])
    user = await people.authenticate(signed_in)
    with pytest.raises(FactorExists):
        await people.call("auth_totp_enrol", user)
    with pytest.raises(WrongFactorCode):
        await people.call("auth_totp_remove", user, code=codes[0])
    await people.call("auth_totp_remove", user, code=compute_now(people, secret))
    assert "access_token" in await people.log_in()
    with pytest.raises(FactorNotFound):
        await people.call("auth_recovery_codes", user, code=WRONG)


async def test_a_secret_counts_only_when_a_code_of_it_was_shown(people: UsersHarness) -> None:
    await people.sign_up()
    user = await people.authenticate(await people.log_in())
    first = await people.call("auth_totp_enrol", user)
    second = await people.call("auth_totp_enrol", user)
    assert "access_token" in await people.log_in()
    with pytest.raises(WrongFactorCode):
        await people.call("auth_totp_confirm", user, code=compute_now(people, first["secret"]))
    query = parse_qs(urlsplit(second["uri"]).query)
    assert query["secret"] == [second["secret"]]
    assert second["uri"].startswith("otpauth://totp/")
    await people.call("auth_totp_confirm", user, code=compute_now(people, second["secret"]))
    assert "challenge" in await people.log_in()


async def test_it_is_set_up_only_soon_after_a_sign_in(people: UsersHarness) -> None:
    await people.sign_up()
    tokens = await people.log_in()
    people.tools.clock.advance(901)
    result = await people.call("auth_refresh", refresh_token=tokens["refresh_token"])
    with pytest.raises(SignInTooOld):
        await people.call("auth_totp_enrol", await people.authenticate(result))


async def test_a_user_without_an_address_sets_nothing_up(people: UsersHarness) -> None:
    await people.call("users_settings_update", people.owner, anonymous=True, second_factor="required")
    guest = await people.authenticate(await people.call("auth_anonymous"))
    with pytest.raises(Forbidden):
        await people.call("auth_totp_enrol", guest)


async def test_an_app_that_requires_it_has_it_set_up_at_the_sign_in(people: UsersHarness) -> None:
    await require(people)
    await people.sign_up()
    pending_login = await people.log_in()
    assert (pending_login["methods"], pending_login["enrol"]) == ([], True)
    challenge = pending_login["challenge"]
    with pytest.raises(FactorNotFound):
        await people.call("auth_second_factor", challenge=challenge, code=WRONG)
    secret = (await people.call("auth_totp_enrol", challenge=challenge))["secret"]
    with pytest.raises(WrongFactorCode):
        await people.call("auth_totp_confirm", challenge=challenge, code=WRONG)
    result = await people.call("auth_totp_confirm", challenge=challenge, code=compute_now(people, secret))
    assert await people.authenticate(result["signed_in"])
    with pytest.raises(ChallengeOver):
        await people.call("auth_totp_enrol", challenge=challenge)
    assert (await people.log_in())["methods"] == ["totp", "recovery_code"]


async def test_whoever_knows_the_password_cannot_put_another_app_in_place_of_the_users(people: UsersHarness) -> None:
    await require(people)
    await enrol_at_sign_in(people)
    people.tools.clock.advance(60)
    pending_login = await people.log_in()
    with pytest.raises(FactorExists):
        await people.call("auth_totp_enrol", challenge=pending_login["challenge"])
    with pytest.raises(FactorExists):
        await people.call("auth_totp_confirm", challenge=pending_login["challenge"], code=WRONG)


async def enrol_at_sign_in(people: UsersHarness) -> str:
    await people.sign_up()
    challenge = (await people.log_in())["challenge"]
    secret: str = (await people.call("auth_totp_enrol", challenge=challenge))["secret"]
    await people.call("auth_totp_confirm", challenge=challenge, code=compute_now(people, secret))
    return secret


async def test_setting_it_up_without_a_token_or_challenge_is_refused(people: UsersHarness) -> None:
    with pytest.raises(Unauthenticated):
        await people.call("auth_totp_enrol")
    with pytest.raises(ChallengeOver):
        await people.call("auth_totp_enrol", challenge="bb_2f_" + "x" * 43)


async def test_a_new_password_voids_sign_ins_that_wait(people: UsersHarness) -> None:
    secret, _ = await enrol(people)
    pending_login = await people.log_in()
    await people.call("auth_verify_email", email=EMAIL, code=await people.read_code())
    await people.call("auth_forgot_password", email=EMAIL)
    code = await people.read_code()
    await people.call("auth_reset_password", email=EMAIL, code=code, new_password="Another horse 8!")
    with pytest.raises(ChallengeOver):
        await people.call("auth_second_factor", challenge=pending_login["challenge"], code=compute_now(people, secret))
    # The new password alone does not get in either.
    assert "challenge" in await people.log_in(password="Another horse 8!")


async def test_who_signed_up_with_anothers_address_leaves_no_way_in(people: UsersHarness) -> None:
    await enrol(people)
    # The owner of the address, who has never verified it, comes by mail: whatever was set up before is a stranger's.
    await people.call("auth_magic_link", email=EMAIL)
    signed_in = await people.call("auth_magic_link_verify", email=EMAIL, code=await people.read_code())
    assert not (await people.call("auth_second_factor_get", await people.authenticate(signed_in)))["totp"]


async def test_a_ban_between_the_factors_ends_the_sign_in(people: UsersHarness) -> None:
    secret, _ = await enrol(people)
    pending_login = await people.log_in()
    user = (await people.call("users_list", people.owner))["users"][0]
    await people.call("users_update", people.owner, user_id=user["id"], banned=True)
    with pytest.raises(BaobabError):
        await people.call("auth_second_factor", challenge=pending_login["challenge"], code=compute_now(people, secret))


async def test_those_who_run_the_app_help_somebody_who_has_lost_the_phone(people: UsersHarness) -> None:
    await enrol(people)
    user = (await people.call("users_list", people.owner))["users"][0]
    result = await people.call("users_second_factor_reset", people.owner, user_id=user["id"])
    assert result == {"totp": True, "passkeys": 0}
    assert "access_token" in await people.log_in()


async def test_a_challenge_of_one_app_is_a_strangers_in_another(people: UsersHarness) -> None:
    secret, _ = await enrol(people)
    pending_login = await people.log_in()
    other = UsersHarness(
        people.tools, people.owner, await people.tools.create_app_row(people.owner.organisation_id, "app_000000000002")
    )
    with pytest.raises((ChallengeOver, InvalidUserToken)):
        await other.call("auth_second_factor", challenge=pending_login["challenge"], code=compute_now(people, secret))


async def test_nothing_at_rest_lets_anybody_in(people: UsersHarness) -> None:
    secret, codes = await enrol(people)
    challenge = (await people.log_in())["challenge"]
    database = people.tools.services.regions["local"].database
    async with database.reading() as connection:
        rows = [
            str(row) for table in (user_totp, user_recovery_codes, user_challenges)
            for row in await connection.execute(select(table).where(table.c.app_id == people.app_id))
        ]  # fmt: skip
    stored_text = "\n".join(rows)
    assert rows
    for credential in (
        secret,
        challenge,
        challenge.removeprefix("bb_2f_"),
        PASSWORD,
        *codes,
        codes[0].replace("-", ""),
    ):
        assert credential not in stored_text
    assert re.search(r"v1\.[0-9a-f]{8}\.", stored_text)
