"""Addresses of users: which ones are one, and which are refused."""

import pytest

from baobab.tools.core.errors import BadRequest
from baobab.tools.users.errors import UserExists, WrongCredentials
from tests.tools.users.conftest import PASSWORD, UsersHarness


@pytest.mark.parametrize(
    ("first", "same"),
    [
        ("ada@example.com", "ADA@Example.COM"),
        ("ada+shop@example.com", "Ada+Shop@example.com"),
        # One letter in one piece or in two: they look alike, and go to the same place.
        ("andr\u00e9@example.com", "andre\u0301@example.com"),
        ("用户@例子.example", "用户@例子.EXAMPLE"),
    ],
)
async def test_an_address_is_one_however_it_is_spelled(people: UsersHarness, first: str, same: str) -> None:
    user = await people.sign_up(first)
    with pytest.raises(UserExists):
        await people.sign_up(same)
    assert (await people.log_in(same))["user"]["id"] == user["id"]
    assert await people.read_code(user["email"])


async def test_an_address_with_a_plus_is_somebody_elses_than_the_one_without(people: UsersHarness) -> None:
    await people.sign_up("ada+shop@example.com")
    with pytest.raises(WrongCredentials):
        await people.log_in("ada@example.com")
    assert await people.sign_up("ada@example.com")


@pytest.mark.parametrize(
    "email",
    [
        "ada\u200b@example.com",
        "ada\u202e@example.com",
        "ada@exam\u2060ple.com",
        "ada\r\nBcc: eve@example.com",
        "ada@example.com\x00",
        "ada@@example.com",
        "ada example@example.com",
        "@example.com",
        "ada@",
        "a" * 300 + "@example.com",
        # Marks of mail headers: the mail would reach ada@example.com, under a second spelling.
        "<ada@example.com>",
        "ada@example.com>",
        "(ada)ada@example.com",
        "ada@example.com,eve@example.com",
        '"ada"@example.com',
        "ada@example.com;",
        "ada:x@example.com",
        "ada\\@example.com",
    ],
)
async def test_an_address_that_hides_something_is_refused_and_nothing_is_written(
    people: UsersHarness, email: str
) -> None:
    for tool, further in (
        ("auth_signup", {"password": PASSWORD}),
        ("auth_magic_link", {}),
        ("auth_forgot_password", {}),
    ):
        with pytest.raises(BadRequest):
            await people.call(tool, email=email, **further)
    assert (await people.call("users_list", people.owner))["users"] == []
    assert (await people.call("mail_outbox_list", people.owner))["mails"] == []
