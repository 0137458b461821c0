import asyncio
import dataclasses
import statistics
import threading
import time
from typing import Any

import argon2
import pytest
from sqlalchemy import select, update

from baobab.tools.accounts.errors import EmailTaken, InvalidCredentials, WrongPassword
from baobab.tools.core.audit import audit_logs
from baobab.tools.core.auth.passwords import WeakPassword
from baobab.tools.core.auth.tables import accounts
from baobab.tools.core.errors import Forbidden, InvalidToken, MissingField, RateLimited, SignupClosed
from tests.tools.conftest import PASSWORD, ToolHarness

NEW_PASSWORD = "Battery staple 9?"


async def test_a_new_account_owns_a_personal_organisation(harness: ToolHarness) -> None:
    result = await harness.call("platform_signup", email="Ada@Example.com", password=PASSWORD, name="Ada")
    signed_in = await harness.call("platform_login", email="ada@example.COM", password=PASSWORD)
    me = await harness.call("platform_me", await harness.authenticate(signed_in["token"]))

    assert me == {"user": result["user"], "organizations": [result["organization"]], "has_password": True}
    assert result["user"]["email"] == "ada@example.com"
    assert (result["organization"]["personal"], result["organization"]["role"]) == (True, "owner")
    assert (signed_in["expires_in"], signed_in["token_type"]) == (3600, "Bearer")
    claims = await harness.services.signers.verify("platform", signed_in["token"])
    assert claims["iss"] == "baobab:platform"
    assert (claims["sub"], claims["email"]) == (result["user"]["id"], "ada@example.com")
    assert claims["org_id"] == result["organization"]["id"]


async def test_an_address_is_taken_whatever_its_case_and_however_many_ask_at_once(harness: ToolHarness) -> None:
    spellings = ["ada@example.com", "ADA@example.com", "Ada@Example.Com"] * 3
    signups = [harness.call("platform_signup", email=email, password=PASSWORD, name="Ada") for email in spellings]
    answers = await asyncio.gather(*signups, return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["EmailTaken"] * 8 + ["dict"]
    assert EmailTaken.status == 409


@pytest.mark.parametrize(
    ("password", "rules"),
    [
        ("aB3$", ["at least 8 characters"]),
        ("abcdefg3$", ["an uppercase letter"]),
        ("ABCDEFG3$", ["a lowercase letter"]),
        ("Abcdefgh$", ["a digit"]),
        ("Abcdefgh3", ["a special character"]),
        ("", ["at least 8 characters", "an uppercase letter", "a lowercase letter", "a digit", "a special character"]),
    ],
)
async def test_a_weak_password_is_refused_with_the_rules_it_breaks(
    harness: ToolHarness, password: str, rules: list[str]
) -> None:
    with pytest.raises(WeakPassword) as refusal:
        await harness.call("platform_signup", email="ada@example.com", password=password, name="Ada")
    assert refusal.value.details == {"rules": rules}


async def test_a_closed_installation_takes_no_new_accounts(harness: ToolHarness) -> None:
    options = dataclasses.replace(harness.services.options, signup_open=False)
    harness.registry.bind(dataclasses.replace(harness.services, options=options))
    with pytest.raises(SignupClosed):
        await harness.call("platform_signup", email="ada@example.com", password=PASSWORD, name="Ada")


@pytest.mark.usefixtures("real_passwords")
async def test_a_failed_login_tells_neither_by_its_words_nor_by_its_time_whether_the_account_exists(
    harness: ToolHarness,
) -> None:
    await harness.sign_up("ada@example.com")

    async def refusal(email: str) -> tuple[str, float]:
        start = time.process_time()
        with pytest.raises(InvalidCredentials) as error:
            await harness.call("platform_login", email=email, password="Wrong horse 7!")
        return repr((error.value.message, error.value.details)), time.process_time() - start

    known_refusals = [await refusal("ada@example.com") for _ in range(5)]
    unknown_refusals = [await refusal(f"nobody{n}@example.com") for n in range(5)]
    assert len({words for words, _ in known_refusals + unknown_refusals}) == 1
    ratio = statistics.median(t for _, t in unknown_refusals) / statistics.median(t for _, t in known_refusals)
    # Without the dummy verification it is below 0.1.
    assert 0.4 < ratio < 2.5


async def test_the_audit_log_names_the_account_of_every_kind_of_signing_in(harness: ToolHarness) -> None:
    result = await harness.call("platform_signup", email="ada@example.com", password=PASSWORD, name="Ada")
    await harness.call("platform_login", email="ada@example.com", password=PASSWORD)
    with pytest.raises(InvalidCredentials):
        await harness.call("platform_login", email="ada@example.com", password="Wrong horse 7!")
    async with harness.services.database.reading() as connection:
        rows = (await connection.execute(select(audit_logs).where(audit_logs.c.category == "auth"))).all()
    assert {row.event_type for row in rows} == {"signup", "login", "login_failed"}
    assert {(row.actor_id, row.organisation_id) for row in rows} == {
        (result["user"]["id"], result["organization"]["id"])
    }
    assert PASSWORD not in repr(rows)


async def test_each_address_has_its_own_small_allowance_of_attempts(harness: ToolHarness) -> None:
    async def attempts(tool: str, count: int, **arguments: Any) -> None:
        for _ in range(count):
            with pytest.raises((WeakPassword, InvalidCredentials, InvalidToken)):
                await harness.call(tool, ip="192.0.2.1", **arguments)
        with pytest.raises(RateLimited):
            await harness.call(tool, ip="192.0.2.1", **arguments)

    await attempts("platform_signup", 5, email="a@example.com", password="weak", name="A")
    await attempts("platform_login", 10, email="a@example.com", password="weak")
    await attempts("platform_refresh", 20, refresh_token="bb_rt_unknown")
    await harness.call("platform_signup", ip="192.0.2.2", email="a@example.com", password=PASSWORD, name="A")


@pytest.mark.usefixtures("real_passwords")
async def test_a_password_kept_with_older_parameters_is_encoded_anew_at_login(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    cheap = argon2.PasswordHasher(time_cost=1, memory_cost=64).hash(PASSWORD)
    async with harness.services.database.writing() as connection:
        await connection.execute(update(accounts).values(password_hash=cheap))

    await harness.call("platform_login", email="ada@example.com", password=PASSWORD)
    async with harness.services.database.reading() as connection:
        new_hash = str(await connection.scalar(select(accounts.c.password_hash).where(accounts.c.id == ada.account_id)))
    assert new_hash != cheap
    assert new_hash.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    await harness.call("platform_login", email="ada@example.com", password=PASSWORD)


async def test_a_new_password_needs_the_one_in_force(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    with pytest.raises(MissingField):
        await harness.call("platform_update", ada, password=NEW_PASSWORD)
    with pytest.raises(WrongPassword):
        await harness.call("platform_update", ada, password=NEW_PASSWORD, current_password="Wrong horse 7!")
    await harness.call("platform_update", ada, name="Lovelace", password=NEW_PASSWORD, current_password=PASSWORD)

    with pytest.raises(InvalidCredentials):
        await harness.call("platform_login", email="ada@example.com", password=PASSWORD)
    signed_in = await harness.call("platform_login", email="ada@example.com", password=NEW_PASSWORD)
    assert signed_in["user"]["name"] == "Lovelace"


@pytest.mark.usefixtures("real_passwords")
async def test_no_session_begun_with_the_old_password_outlives_its_change(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    logins = [harness.call("platform_login", email="ada@example.com", password=PASSWORD) for _ in range(6)]
    change = harness.call("platform_update", ada, password=NEW_PASSWORD, current_password=PASSWORD)
    answers: list[Any] = await asyncio.gather(*logins[:3], change, *logins[3:], return_exceptions=True)
    assert not isinstance(answers.pop(3), BaseException)
    for answer in answers:
        if isinstance(answer, dict):
            with pytest.raises(InvalidToken):
                await harness.call("platform_refresh", refresh_token=answer["refresh_token"])
        else:
            assert isinstance(answer, InvalidCredentials)


async def test_a_password_that_is_changed_while_it_is_being_checked_opens_nothing(
    harness: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.sign_up("ada@example.com")
    has_changed, checking = threading.Event(), asyncio.Event()
    loop, verify = asyncio.get_running_loop(), argon2.PasswordHasher.verify

    def wait_for_change(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(checking.set)
        has_changed.wait()
        return verify(*arguments)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", wait_for_change)
    login = asyncio.create_task(harness.call("platform_login", email="ada@example.com", password=PASSWORD))
    await checking.wait()
    async with harness.services.database.writing() as connection:
        await connection.execute(update(accounts).values(password_hash="another"))
    has_changed.set()
    with pytest.raises(InvalidCredentials):
        await login


async def test_a_stolen_token_is_no_place_to_guess_passwords(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    guess = {"password": NEW_PASSWORD, "current_password": "Wrong horse 7!"}
    for _ in range(10):
        with pytest.raises(WrongPassword):
            await harness.call("platform_update", ada, **guess)
    with pytest.raises(RateLimited):
        await harness.call("platform_update", ada, **guess)


async def test_a_key_sees_its_own_organisation_and_signs_nobody_out(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    await harness.create_organisation(ada)
    key = await harness.authenticate((await harness.call("api_keys_create", ada, name="agent"))["key"])
    organizations = (await harness.call("platform_me", key))["organizations"]
    assert [organisation["id"] for organisation in organizations] == [ada.organisation_id]
    assert len((await harness.call("platform_me", ada))["organizations"]) == 2
    with pytest.raises(Forbidden):
        await harness.call("platform_logout", key)
