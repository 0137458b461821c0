"""Passkeys of users: as the only factor, as the second one, and on which pages."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from baobab.runtime.passkeys import PasskeyRefused, PasskeysUnavailable
from baobab.tools.core.errors import Forbidden, Unauthenticated
from baobab.tools.users.errors import (
    ChallengeOver,
    FactorExists,
    PasskeyExists,
    PasskeyNotFound,
    SignInTooOld,
    UserBanned,
)
from tests.soft_authenticator import SoftAuthenticator, encode
from tests.tools.users.conftest import EMAIL, UsersHarness
from tests.tools.users.test_second_factor import compute_now, enrol

SITE = "https://shop.example.com"


@pytest.fixture
async def shop(people: UsersHarness) -> UsersHarness:
    await people.call("config_cors", people.owner, allowed_origins=[SITE])
    await people.sign_up()
    return people


async def add_passkey(people: UsersHarness, user: Any, device: SoftAuthenticator) -> Any:
    result = await people.call("auth_passkey_options", user, origin=device.origin)
    credential = device.create(result["options"])
    return await people.call("auth_passkey_add", user, state=result["state"], credential=credential, name="Phone")


async def set_up(people: UsersHarness, **options: Any) -> SoftAuthenticator:
    device = SoftAuthenticator(SITE, **options)
    await add_passkey(people, await people.authenticate(await people.log_in()), device)
    return device


async def sign_in(people: UsersHarness, device: SoftAuthenticator, **asks: Any) -> Any:
    result = await people.call("auth_passkey_sign_in_options", origin=device.origin, **asks)
    return await people.call("auth_passkey_sign_in", state=result["state"], credential=device.get(result["options"]))


async def test_a_user_signs_in_with_a_passkey_and_says_no_name(shop: UsersHarness) -> None:
    device = await set_up(shop)
    result = await shop.call("auth_passkey_sign_in_options", origin=SITE)
    assert result["options"]["rpId"] == "shop.example.com"
    assert result["options"]["allowCredentials"] == []
    signed_in = await sign_in(shop, device)
    assert signed_in["user"]["email"] == EMAIL
    user = await shop.authenticate(signed_in)
    passkeys = (await shop.call("auth_passkeys", user))["passkeys"]
    assert [(each["name"], each["rp_id"], each["backed_up"]) for each in passkeys] == [
        ("Phone", "shop.example.com", False)
    ]
    assert passkeys[0]["last_used_at"] is not None
    assert (await shop.call("auth_sessions", user))["sessions"][0]["method"] in ("passkey", "email")


async def test_a_passkey_is_both_factors_where_the_app_requires_two(shop: UsersHarness) -> None:
    device = await set_up(shop)
    await shop.call("users_settings_update", shop.owner, second_factor="required")
    assert "access_token" in await sign_in(shop, device)


async def test_a_passkey_is_the_second_factor_after_a_password(shop: UsersHarness) -> None:
    device = await set_up(shop)
    await shop.call("users_settings_update", shop.owner, second_factor="required")
    pending_login = await shop.log_in()
    assert (pending_login["methods"], pending_login["enrol"]) == (["passkey"], False)
    assert "access_token" in await sign_in(shop, device, challenge=pending_login["challenge"])
    with pytest.raises(ChallengeOver):
        await sign_in(shop, device, challenge=pending_login["challenge"])


async def make_from_challenge(people: UsersHarness, challenge: str, device: SoftAuthenticator) -> Any:
    result = await people.call("auth_passkey_options", challenge=challenge, origin=device.origin)
    arguments = {"state": result["state"], "credential": device.create(result["options"])}
    return await people.call("auth_passkey_add", challenge=challenge, **arguments)


async def test_who_has_no_second_factor_yet_makes_a_passkey_at_the_sign_in(shop: UsersHarness) -> None:
    await shop.call("users_settings_update", shop.owner, second_factor="required")
    pending_login, device = await shop.log_in(), SoftAuthenticator(SITE)
    assert (pending_login["methods"], pending_login["enrol"]) == ([], True)
    from_challenge = await make_from_challenge(shop, pending_login["challenge"], device)
    user = await shop.authenticate(from_challenge["signed_in"])
    assert len((await shop.call("auth_passkeys", user))["passkeys"]) == 1
    with pytest.raises(ChallengeOver):
        await make_from_challenge(shop, pending_login["challenge"], SoftAuthenticator(SITE))
    pending_login = await shop.log_in()
    assert pending_login["methods"] == ["passkey"]
    assert "access_token" in await sign_in(shop, device, challenge=pending_login["challenge"])


async def test_a_password_alone_adds_no_passkey_where_there_is_a_second_factor(shop: UsersHarness) -> None:
    await shop.call("users_settings_update", shop.owner, second_factor="required")
    first, second = await shop.log_in(), await shop.log_in()
    late = SoftAuthenticator(SITE)
    result = await shop.call("auth_passkey_options", challenge=second["challenge"], origin=SITE)
    secret = (await shop.call("auth_totp_enrol", challenge=second["challenge"]))["secret"]
    await make_from_challenge(shop, first["challenge"], SoftAuthenticator(SITE))
    # Nothing that was begun before the first passkey was there goes on.
    arguments = {"state": result["state"], "credential": late.create(result["options"])}
    with pytest.raises(FactorExists):
        await shop.call("auth_passkey_add", challenge=second["challenge"], **arguments)
    with pytest.raises(FactorExists):
        await shop.call("auth_totp_confirm", challenge=second["challenge"], code=compute_now(shop, secret))
    with pytest.raises(FactorExists):
        await shop.call("auth_passkey_options", challenge=(await shop.log_in())["challenge"], origin=SITE)


async def test_two_passkeys_at_once_for_one_sign_in_are_one(shop: UsersHarness) -> None:
    await shop.call("users_settings_update", shop.owner, second_factor="required")
    challenge = (await shop.log_in())["challenge"]
    both = (make_from_challenge(shop, challenge, SoftAuthenticator(SITE)) for _ in range(2))
    answers = await asyncio.gather(*both, return_exceptions=True)
    assert sorted(isinstance(each, ChallengeOver | FactorExists) for each in answers) == [False, True]


async def test_a_passkey_that_was_begun_by_one_user_is_not_added_to_another(shop: UsersHarness) -> None:
    await shop.sign_up("ben@example.com")
    await shop.call("users_settings_update", shop.owner, second_factor="required")
    adas, bens = await shop.log_in(), await shop.log_in("ben@example.com")
    result = await shop.call("auth_passkey_options", challenge=adas["challenge"], origin=SITE)
    arguments = {"state": result["state"], "credential": SoftAuthenticator(SITE).create(result["options"])}
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_add", challenge=bens["challenge"], **arguments)
    with pytest.raises(Unauthenticated):
        await shop.call("auth_passkey_add", **arguments)


async def test_a_key_without_a_pin_is_a_second_factor_but_not_the_only_one(shop: UsersHarness) -> None:
    device = await set_up(shop)
    device._flags &= ~0x04
    with pytest.raises(PasskeyRefused):
        await sign_in(shop, device)
    await shop.call("users_settings_update", shop.owner, second_factor="required")
    pending_login = await shop.log_in()
    assert "access_token" in await sign_in(shop, device, challenge=pending_login["challenge"])


async def test_a_key_that_asks_for_no_pin_cannot_be_added(shop: UsersHarness) -> None:
    with pytest.raises(PasskeyRefused):
        await set_up(shop, verifies=False)


async def test_a_passkey_answers_no_other_users_challenge(shop: UsersHarness) -> None:
    device = await set_up(shop)
    await shop.sign_up("ben@example.com")
    await shop.call("users_settings_update", shop.owner, second_factor="required")
    other = SoftAuthenticator(SITE)
    pending_login = await shop.log_in("ben@example.com")
    with pytest.raises(PasskeyNotFound):
        await shop.call("auth_passkey_sign_in_options", origin=SITE, challenge=pending_login["challenge"])
    secret = (await shop.call("auth_totp_enrol", challenge=pending_login["challenge"]))["secret"]
    result = await shop.call("auth_totp_confirm", challenge=pending_login["challenge"], code=compute_now(shop, secret))
    await add_passkey(shop, await shop.authenticate(result["signed_in"]), other)
    shop.tools.clock.advance(60)
    pending_login = await shop.log_in("ben@example.com")
    ceremony = await shop.call("auth_passkey_sign_in_options", origin=SITE, challenge=pending_login["challenge"])
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_sign_in", state=ceremony["state"], credential=device.get(ceremony["options"]))


async def test_an_answer_is_good_once(shop: UsersHarness) -> None:
    device = await set_up(shop)
    result = await shop.call("auth_passkey_sign_in_options", origin=SITE)
    answer = {"state": result["state"], "credential": device.get(result["options"])}
    tries = await asyncio.gather(
        *(shop.call("auth_passkey_sign_in", **answer) for _ in range(3)), return_exceptions=True
    )
    assert sorted(isinstance(each, PasskeyRefused) for each in tries) == [False, True, True]


async def test_an_answer_without_a_count_is_good_once_too(shop: UsersHarness) -> None:
    device = await set_up(shop)
    # Passkeys that are copied between devices count nothing.
    device.sign_count = -1
    result = await shop.call("auth_passkey_sign_in_options", origin=SITE)
    answer = {"state": result["state"], "credential": device.get(result["options"])}
    await shop.call("auth_passkey_sign_in", **answer)
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_sign_in", **answer)
    device.sign_count = -1
    assert "access_token" in await sign_in(shop, device)


async def test_a_copied_key_is_noticed_by_its_count(shop: UsersHarness) -> None:
    device = await set_up(shop)
    await sign_in(shop, device)
    device.sign_count = 0
    with pytest.raises(PasskeyRefused):
        await sign_in(shop, device)


async def test_an_attempt_ends_after_five_minutes(shop: UsersHarness) -> None:
    device = await set_up(shop)
    result = await shop.call("auth_passkey_sign_in_options", origin=SITE)
    shop.tools.clock.advance(301)
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_sign_in", state=result["state"], credential=device.get(result["options"]))


Spoil = Callable[[dict[str, Any]], None]


def _say_other_origin(credential: dict[str, Any]) -> None:
    client_data = {"type": "webauthn.get", "challenge": "AAAA", "origin": "https://evil.example"}
    credential["response"]["clientDataJSON"] = encode(json.dumps(client_data).encode())


@pytest.mark.parametrize(
    "spoil",
    [
        _say_other_origin,
        lambda credential: credential["response"].update(signature="AAAA"),
        lambda credential: credential["response"].update(authenticatorData="AAAA"),
        lambda credential: credential["response"].update(userHandle="AAAA"),
        lambda credential: credential["response"].update(userHandle=7),
        lambda credential: credential["response"].update(clientDataJSON="%%%"),
        lambda credential: credential.update(response="text"),
        lambda credential: credential.update(response={}),
        lambda credential: credential.update(id="AAAA"),
        lambda credential: credential.update(id=["x"]),
        lambda credential: credential.update(rawId="AAAA"),
        lambda credential: credential.update(type="password"),
        lambda credential: credential.clear(),
    ],
)
async def test_a_spoiled_answer_is_refused(shop: UsersHarness, spoil: Spoil) -> None:
    device = await set_up(shop)
    result = await shop.call("auth_passkey_sign_in_options", origin=SITE)
    credential = device.get(result["options"])
    spoil(credential)
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_sign_in", state=result["state"], credential=credential)


@pytest.mark.parametrize(
    "attestation", ["", "%", "oA", "gA", encode(b"\xa3" + b"\x00" * 40), encode(b"\x9f" * 3000), 5, None, {}]
)
async def test_a_spoiled_new_passkey_is_refused(shop: UsersHarness, attestation: Any) -> None:
    user = await shop.authenticate(await shop.log_in())
    result = await shop.call("auth_passkey_options", user, origin=SITE)
    credential = SoftAuthenticator(SITE).create(result["options"])
    credential["response"]["attestationObject"] = attestation
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_add", user, state=result["state"], credential=credential)


async def test_a_state_is_of_its_app_its_user_and_its_ceremony(shop: UsersHarness) -> None:
    device = await set_up(shop)
    user = await shop.authenticate(await shop.log_in())
    result = await shop.call("auth_passkey_options", user, origin=SITE)
    ceremony = await shop.call("auth_passkey_sign_in_options", origin=SITE)
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_sign_in", state=result["state"], credential=device.get(ceremony["options"]))
    await shop.sign_up("ben@example.com")
    ben = await shop.authenticate(await shop.log_in("ben@example.com"))
    other = SoftAuthenticator(SITE)
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_add", ben, state=result["state"], credential=other.create(result["options"]))
    app = await shop.tools.create_app_row(shop.owner.organisation_id, "app_000000000002")
    elsewhere = UsersHarness(shop.tools, shop.owner, app)
    with pytest.raises(PasskeyRefused):
        await elsewhere.call(
            "auth_passkey_sign_in", state=ceremony["state"], credential=device.get(ceremony["options"])
        )


async def test_a_passkey_belongs_to_the_host_name_of_its_page(shop: UsersHarness) -> None:
    device = await set_up(shop)
    local = SoftAuthenticator("http://localhost:3000")
    passkey = await add_passkey(shop, await shop.authenticate(await shop.log_in()), local)
    assert passkey["rp_id"] == "localhost"
    assert "access_token" in await sign_in(shop, local)
    # One of this server's pages does not take what was made on the shop's, even if a browser could be brought to it.
    result = await shop.call("auth_passkey_sign_in_options", origin="http://localhost:3000")
    with pytest.raises(PasskeyRefused):
        await shop.call("auth_passkey_sign_in", state=result["state"], credential=device.get(result["options"]))


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://shop.example.com", "https://", "x" * 300])
async def test_a_page_that_the_app_does_not_allow_gets_no_passkeys(shop: UsersHarness, origin: str) -> None:
    user = await shop.authenticate(await shop.log_in())
    for tool, by in (("auth_passkey_options", (user,)), ("auth_passkey_sign_in_options", ())):
        with pytest.raises(PasskeysUnavailable):
            await shop.call(tool, *by, origin=origin)


async def test_passkeys_are_added_and_deleted_soon_after_a_sign_in_only(shop: UsersHarness) -> None:
    device = SoftAuthenticator(SITE)
    tokens = await shop.log_in()
    user = await shop.authenticate(tokens)
    passkey = await add_passkey(shop, user, device)
    shop.tools.clock.advance(901)
    with pytest.raises(SignInTooOld):
        await shop.call("auth_passkey_options", user, origin=SITE)
    with pytest.raises(SignInTooOld):
        await shop.call("auth_passkey_delete", user, passkey_id=passkey["id"])
    fresh = await shop.authenticate(await sign_in(shop, device))
    assert (await shop.call("auth_passkey_delete", fresh, passkey_id=passkey["id"]))["deleted"]
    with pytest.raises(PasskeyNotFound):
        await shop.call("auth_passkey_delete", fresh, passkey_id=passkey["id"])
    with pytest.raises(PasskeyRefused):
        await sign_in(shop, device)


async def test_nobody_deletes_the_passkey_of_somebody_else(shop: UsersHarness) -> None:
    device = SoftAuthenticator(SITE)
    passkey = await add_passkey(shop, await shop.authenticate(await shop.log_in()), device)
    await shop.sign_up("ben@example.com")
    ben = await shop.authenticate(await shop.log_in("ben@example.com"))
    with pytest.raises(PasskeyNotFound):
        await shop.call("auth_passkey_delete", ben, passkey_id=passkey["id"])


async def test_one_passkey_is_added_once(shop: UsersHarness) -> None:
    user = await shop.authenticate(await shop.log_in())
    result = await shop.call("auth_passkey_options", user, origin=SITE)
    arguments = {"state": result["state"], "credential": SoftAuthenticator(SITE).create(result["options"])}
    await shop.call("auth_passkey_add", user, **arguments)
    with pytest.raises(PasskeyExists):
        await shop.call("auth_passkey_add", user, **arguments)
    again = await shop.call("auth_passkey_options", user, origin=SITE)
    assert len(again["options"]["excludeCredentials"]) == 1


async def test_a_banned_or_deleted_user_has_no_passkey_to_sign_in_with(shop: UsersHarness) -> None:
    device = await set_up(shop)
    user = (await shop.call("users_list", shop.owner))["users"][0]
    await shop.call("users_update", shop.owner, user_id=user["id"], banned=True)
    with pytest.raises(UserBanned):
        await sign_in(shop, device)
    await shop.call("users_delete", shop.owner, user_id=user["id"])
    with pytest.raises(PasskeyRefused):
        await sign_in(shop, device)


async def test_a_user_without_an_address_adds_none(shop: UsersHarness) -> None:
    await shop.call("users_settings_update", shop.owner, anonymous=True)
    guest = await shop.authenticate(await shop.call("auth_anonymous"))
    with pytest.raises(Forbidden):
        await shop.call("auth_passkey_options", guest, origin=SITE)


async def test_a_passkey_goes_on_where_wrong_codes_must_wait(people: UsersHarness) -> None:
    await people.call("config_cors", people.owner, allowed_origins=[SITE])
    _, codes = await enrol(people)
    pending_login = await people.log_in()
    signed_in = await people.call("auth_second_factor", challenge=pending_login["challenge"], code=codes[0])
    device = SoftAuthenticator(SITE)
    await add_passkey(people, await people.authenticate(signed_in), device)
    pending_login = await people.log_in()
    for _ in range(6):
        with pytest.raises(Exception, match=r"Invalid code|More than"):
            await people.call("auth_second_factor", challenge=pending_login["challenge"], code="000000")
    assert pending_login["methods"] == ["totp", "recovery_code", "passkey"]
    assert "access_token" in await sign_in(people, device, challenge=pending_login["challenge"])
