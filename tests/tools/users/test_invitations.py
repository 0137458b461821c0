"""Invitations, links in mails, and apps that take only those who are invited."""

import asyncio
import re
from typing import Any

import pytest

from baobab.tools.core.errors import BaobabError
from baobab.tools.users.errors import (
    CodeExpired,
    CodeUsed,
    InvitationNotFound,
    RedirectRefused,
    SignUpClosed,
    UserExists,
    WrongCode,
    WrongCredentials,
)
from tests.tools.users.conftest import EMAIL, PASSWORD, UsersHarness

DAY = 86400
BACK = "http://localhost:3000/welcome"


async def invite(people: UsersHarness, **further: Any) -> Any:
    return (await people.call("users_invite", people.owner, email=EMAIL, role="editor", **further))["invitation"]


async def read_link(people: UsersHarness) -> str:
    match = re.search(r"/login-page\?link=([\w-]+)$", (await people.list_mails())[0]["text"], re.MULTILINE)
    assert match
    return match[1]


async def close(people: UsersHarness) -> None:
    await people.call("users_settings_update", people.owner, invite_only=True)


@pytest.mark.parametrize("by", ["link", "code"])
async def test_who_is_invited_sets_a_password_once_and_has_the_role(people: UsersHarness, by: str) -> None:
    await close(people)
    await invite(people)
    proof = {"link": await read_link(people)} if by == "link" else {"email": EMAIL, "code": await people.read_code()}
    signed_in = await people.call("auth_accept_invitation", password=PASSWORD, display_name="Ada", **proof)
    assert (signed_in["user"]["email_verified"], signed_in["user"]["display_name"]) == (True, "Ada")
    assert (await people.authenticate(signed_in)).role == "editor"
    assert (await people.log_in())["user"]["id"] == signed_in["user"]["id"]
    with pytest.raises(CodeUsed):
        await people.call("auth_accept_invitation", password="Battery staple 9?", **proof)
    invitations = (await people.call("users_invitations_list", people.owner))["invitations"]
    assert [(one["email"], one["role"], one["accepted_at"] is None) for one in invitations] == [
        (EMAIL, "editor", False)
    ]
    with pytest.raises(UserExists):
        await invite(people)


async def test_an_invitation_is_good_for_exactly_seven_days(people: UsersHarness) -> None:
    await invite(people)
    link = await read_link(people)
    people.tools.clock.advance(7 * DAY)
    with pytest.raises(CodeExpired):
        await people.call("auth_accept_invitation", password=PASSWORD, link=link)
    await invite(people)
    newer = await read_link(people)
    with pytest.raises(WrongCode):
        await people.call("auth_accept_invitation", password=PASSWORD, link=link)
    people.tools.clock.advance(7 * DAY - 1)
    assert await people.call("auth_accept_invitation", password=PASSWORD, link=newer)


async def test_a_revoked_invitation_lets_nobody_in(people: UsersHarness) -> None:
    await close(people)
    invitation = await invite(people)
    link = await read_link(people)
    await people.call("users_invitations_revoke", people.owner, invitation_id=invitation["id"])
    with pytest.raises(InvitationNotFound):
        await people.call("users_invitations_revoke", people.owner, invitation_id=invitation["id"])
    with pytest.raises(WrongCode):
        await people.call("auth_accept_invitation", password=PASSWORD, link=link)
    await people.call("auth_magic_link", email=EMAIL)
    assert not await people.list_mails()


async def test_an_app_for_those_who_are_invited_is_closed_on_every_way_in(people: UsersHarness) -> None:
    await people.sign_up("known@example.com")
    tokens = await people.call("users_settings_update", people.owner, anonymous=True)
    anonymous = await people.authenticate(await people.call("auth_anonymous"))
    await close(people)
    for email in ("known@example.com", EMAIL):
        # The refusal does not say whether the address is known.
        with pytest.raises(SignUpClosed):
            await people.sign_up(email)
        result = await people.call("auth_magic_link", email=email)
        assert result["message"] == "If the address can receive mail, a sign-in code was sent to it."
    assert not await people.list_mails()
    assert len(await people.list_mails("known@example.com")) == 2
    with pytest.raises(SignUpClosed):
        await people.call("auth_anonymous")
    with pytest.raises(SignUpClosed):
        await people.call("auth_upgrade", anonymous, email=EMAIL, password=PASSWORD)
    assert tokens["settings"]["invite_only"] is False


async def test_who_is_invited_may_come_by_a_mailed_code_and_has_the_role(people: UsersHarness) -> None:
    await close(people)
    await invite(people)
    people.tools.clock.advance(1)
    await people.call("auth_magic_link", email=EMAIL)
    # Asking for a code takes nothing from the invitation: a stranger may have asked.
    assert (await people.call("users_invitations_list", people.owner))["invitations"][0]["accepted_at"] is None
    signed_in = await people.call("auth_magic_link_verify", email=EMAIL, code=await people.read_code())
    assert (await people.authenticate(signed_in)).role == "editor"


async def test_a_stranger_who_signs_up_with_an_invited_address_gets_neither_role_nor_account(
    people: UsersHarness,
) -> None:
    await invite(people)
    link = await read_link(people)
    await people.sign_up(password="Battery staple 9?")
    stranger = await people.log_in(password="Battery staple 9?")
    assert (await people.authenticate(stranger)).role == "user"
    result = await people.call("auth_accept_invitation", password=PASSWORD, link=link)
    assert (await people.authenticate(result)).role == "editor"
    with pytest.raises(WrongCredentials):
        await people.log_in(password="Battery staple 9?")
    with pytest.raises(BaobabError):
        await people.call("auth_refresh", refresh_token=stranger["refresh_token"])


async def test_an_invitation_accepted_twice_at_once_signs_in_once(people: UsersHarness) -> None:
    await invite(people)
    link = await read_link(people)
    tries = [people.call("auth_accept_invitation", password=PASSWORD, link=link) for _ in range(4)]
    answers = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(one, dict) for one in answers) == 1
    assert all(isinstance(one, (dict, CodeUsed)) for one in answers), answers


async def test_a_link_and_its_code_are_good_once_together(people: UsersHarness) -> None:
    await people.call("auth_magic_link", email=EMAIL, redirect_to=BACK)
    code, link = await people.read_code(), await read_link(people)
    result = await people.call("auth_link_request", link=link)
    assert (result["purpose"], result["email"], result["redirect_to"]) == ("magic_link", EMAIL, BACK)
    # Wrong codes void the code, but not the link, which nobody guesses.
    for _ in range(5):
        with pytest.raises(WrongCode):
            await people.call("auth_magic_link_verify", email=EMAIL, code="wrong")
    assert (await people.call("auth_magic_link_confirm", link=link))["user"]["email"] == EMAIL
    with pytest.raises(CodeUsed):
        await people.call("auth_magic_link_confirm", link=link)
    with pytest.raises(WrongCode):
        await people.call("auth_magic_link_verify", email=EMAIL, code=code)


async def test_a_link_of_another_app_or_purpose_is_no_link(people: UsersHarness) -> None:
    await invite(people)
    link = await read_link(people)
    other = await people.tools.create_app_row(people.owner.organisation_id, "app_000000000002")
    with pytest.raises(WrongCode):
        await people.call("auth_magic_link_confirm", link=link)
    with pytest.raises(WrongCode):
        await people.tools.call("auth_accept_invitation", app_id=other, password=PASSWORD, link=link)
    assert await people.call("auth_accept_invitation", password=PASSWORD, link=link)


@pytest.mark.parametrize("address", ["https://evil.example/", "http://localhost@evil.example/", "//evil.example"])
async def test_no_mail_leads_to_another_site(people: UsersHarness, address: str) -> None:
    with pytest.raises(RedirectRefused):
        await people.call("auth_magic_link", email=EMAIL, redirect_to=address)
    with pytest.raises(RedirectRefused):
        await invite(people, redirect_to=address)
