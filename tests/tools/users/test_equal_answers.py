"""Nobody learns from an answer, from its work or from its time whether an address is known."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from argon2 import PasswordHasher
from sqlalchemy import select

from baobab.tools.core.errors import BaobabError
from baobab.tools.users.errors import SignUpClosed
from baobab.tools.users.tables import user_codes
from tests.jobs import run_due_jobs
from tests.tools.users.conftest import EMAIL, PASSWORD, UsersHarness

STRANGER = "nobody@example.com"
Ask = Callable[[UsersHarness, str], Awaitable[Any]]


async def log_in(people: UsersHarness, email: str) -> Any:
    return await people.call("auth_login", email=email, password="Wrong horse 8!")


async def ask_for_link(people: UsersHarness, email: str) -> Any:
    return await people.call("auth_magic_link", email=email)


async def forget(people: UsersHarness, email: str) -> Any:
    return await people.call("auth_forgot_password", email=email)


async def verify(people: UsersHarness, email: str) -> Any:
    return await people.call("auth_magic_link_verify", email=email, code="000000")


async def reset(people: UsersHarness, email: str) -> Any:
    return await people.call("auth_reset_password", email=email, code="000000", new_password=PASSWORD)


async def answer(ask: Ask, people: UsersHarness, email: str) -> tuple[str, str]:
    try:
        return "ok", str(await ask(people, email))
    except BaobabError as error:
        return type(error).__name__, error.message


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What argon2 is asked to do, in this order."""
    method_names: list[str] = []
    for name in ("hash", "verify"):
        original = getattr(PasswordHasher, name)

        def count(*args: Any, _name: str = name, _original: Any = original) -> Any:
            method_names.append(_name)
            return _original(*args)

        monkeypatch.setattr(PasswordHasher, name, count)
    return method_names


@pytest.mark.parametrize("ask", [log_in, ask_for_link, forget, verify])
async def test_answers_and_hashes_are_the_same_for_a_known_and_an_unknown_address(
    people: UsersHarness, hashes: list[str], ask: Ask
) -> None:
    await people.sign_up()
    hashes.clear()
    known_answer, work = await answer(ask, people, EMAIL), list(hashes)
    hashes.clear()
    assert (await answer(ask, people, STRANGER), hashes) == (known_answer, work)
    assert work == (["verify"] if ask is log_in else [])


async def test_a_wrong_code_costs_as_much_whether_or_not_the_address_is_known(people: UsersHarness) -> None:
    """Both have a code that a wrong try counts against; nobody gets that of the unknown one."""
    await people.sign_up()
    for email in (EMAIL, STRANGER):
        await forget(people, email)
        await run_due_jobs(people.tools)
        for _ in range(3):
            assert (await answer(reset, people, email))[0] == "WrongCode"
    database = people.tools.services.regions["local"].database
    async with database.reading() as connection:
        of_reset = select(user_codes.c.email, user_codes.c.tries).where(user_codes.c.purpose == "reset_password")
        tries_by_email = {row.email: row.tries for row in await connection.execute(of_reset)}
    assert tries_by_email == {EMAIL: 3, STRANGER: 3}
    assert await people.list_mails(STRANGER) == []


@pytest.mark.parametrize(("ask", "pairs"), [(log_in, 20), (ask_for_link, 60), (forget, 60), (verify, 60), (reset, 60)])
async def test_times_do_not_tell_a_known_address_from_an_unknown_one(
    people: UsersHarness, ask: Ask, pairs: int
) -> None:
    """Asked in turns, about as often either takes more of the processor, which is what a busy machine leaves alone.

    Chance passes these bounds less than once in a million runs; a single further statement for one of the two would
    pass them at once. Wrong codes are tried against codes that wait, and against ones that five tries have voided.
    """
    await people.sign_up()
    for email in (EMAIL, STRANGER) if ask in (verify, reset) else ():
        await (ask_for_link if ask is verify else forget)(people, email)
    await run_due_jobs(people.tools)
    times: dict[str, list[float]] = {EMAIL: [], STRANGER: []}
    for turn in range(pairs):
        # Whoever comes second finds warmer caches.
        for email in (EMAIL, STRANGER) if turn % 2 else (STRANGER, EMAIL):
            start = time.process_time()
            await answer(ask, people, email)
            times[email].append(time.process_time() - start)
    slower = sum(known_time > unknown_time for known_time in times[EMAIL] for unknown_time in times[STRANGER])
    share = slower / pairs**2
    margin = 0.4 if pairs < 60 else 0.3
    assert 0.5 - margin < share < 0.5 + margin, share


@pytest.mark.parametrize("email", [EMAIL, STRANGER])
async def test_a_sign_up_where_only_invited_people_join_is_refused_before_the_password_is_hashed(
    people: UsersHarness, hashes: list[str], email: str
) -> None:
    await people.sign_up()
    await people.call("users_settings_update", people.owner, invite_only=True)
    hashes.clear()
    with pytest.raises(SignUpClosed):
        await people.call("auth_signup", email=email, password=PASSWORD)
    assert hashes == []
