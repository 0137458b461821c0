"""Users as those who run the app see them."""

import pytest
from sqlalchemy import select

from baobab.tools.core.audit import audit_logs
from baobab.tools.core.errors import InvalidUserToken
from baobab.tools.users.errors import UserBanned, UserNotFound, WrongCredentials
from baobab.tools.users.events import AUTHENTICATED
from tests.jobs import list_events
from tests.tools.users.conftest import EMAIL, UsersHarness


async def test_users_are_listed_newest_first_in_pages_and_found_by_address(people: UsersHarness) -> None:
    for name in ("ada", "ben", "a_a", "bob"):
        people.tools.clock.advance(1)
        await people.sign_up(f"{name}@example.com")
    names, cursor = [], None
    while True:
        further: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        page = await people.call("users_list", people.owner, limit=3, **further)
        names += [user["email"][:3] for user in page["users"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == ["bob", "a_a", "ben", "ada"]
    for search, expected_names in (("a_", ["a_a"]), ("B", ["bob", "ben"]), ("%", [])):
        page = await people.call("users_list", people.owner, search=search)
        assert [user["email"][:3] for user in page["users"]] == expected_names


async def test_a_role_counts_at_once_for_tokens_already_issued(people: UsersHarness) -> None:
    user = await people.sign_up()
    tokens = await people.log_in()
    assert (await people.authenticate(tokens)).role == "user"
    result = await people.call("users_update", people.owner, user_id=user["id"], role="editor")
    assert result["user"]["role"] == "editor"
    assert (await people.authenticate(tokens)).role == "editor"


async def test_a_banned_user_is_out_at_once_until_the_ban_ends(people: UsersHarness) -> None:
    user = await people.sign_up()
    tokens = await people.log_in()
    await people.authenticate(tokens)
    result = await people.call("users_update", people.owner, user_id=user["id"], banned=True, ban_reason="spam")
    assert (result["user"]["banned_at"], result["user"]["ban_reason"]) == (people.tools.clock.now(), "spam")
    with pytest.raises(InvalidUserToken):
        await people.authenticate(tokens)
    with pytest.raises(InvalidUserToken):
        await people.call("auth_refresh", refresh_token=tokens["refresh_token"])
    with pytest.raises(UserBanned):
        await people.log_in()
    with pytest.raises(WrongCredentials):
        await people.log_in(password="Battery staple 9?")
    await people.call("users_update", people.owner, user_id=user["id"], banned=False)
    assert await people.log_in()


async def test_a_deleted_user_is_gone_and_the_address_is_free(people: UsersHarness) -> None:
    user = await people.sign_up()
    tokens = await people.log_in()
    result = await people.call("users_delete", people.owner, user_id=user["id"])
    assert result == {"deleted": True, "user_id": user["id"], "email": EMAIL}
    with pytest.raises(InvalidUserToken):
        await people.authenticate(tokens)
    with pytest.raises(UserNotFound):
        await people.call("users_get", people.owner, user_id=user["id"])
    assert not (await people.call("mail_outbox_list", people.owner))["mails"]
    assert (await people.sign_up())["id"] != user["id"]


async def test_every_sign_in_is_an_event_with_what_the_hook_will_be_told(people: UsersHarness) -> None:
    user = await people.sign_up()
    await people.log_in()
    await people.call("auth_magic_link", email="ben@example.com")
    code = await people.read_code("ben@example.com")
    await people.call("auth_magic_link_verify", email="ben@example.com", code=code)
    event_data = [event.data for event in await list_events(people.tools, AUTHENTICATED)]
    assert {data["event"] for data in event_data} == {"signup", "login", "magic_link_login"}
    login = next(data for data in event_data if data["event"] == "login")
    assert login["user"] == {**login["user"], "id": user["id"], "email": EMAIL, "provider": "email"}
    assert (login["isNewUser"], login["provider"]) == (False, "email")
    link = next(data for data in event_data if data["event"] == "magic_link_login")
    assert (link["isNewUser"], link["provider"], link["user"]["email"]) == (True, "magic_link", "ben@example.com")


async def test_the_audit_log_names_the_user_and_holds_no_password_or_code(people: UsersHarness) -> None:
    user = await people.sign_up()
    await people.call("auth_verify_email", email=EMAIL, code=await people.read_code())
    with pytest.raises(WrongCredentials):
        await people.log_in(password="Battery staple 9?")
    await people.call("auth_logout", await people.authenticate(await people.log_in()))
    async with people.tools.services.database.reading() as connection:
        rows = (await connection.execute(select(audit_logs).where(audit_logs.c.app_id == people.app_id))).all()
    assert {(row.event_type, row.actor_type, row.actor_id) for row in rows} == {
        (event, "app_user", user["id"]) for event in ("signup", "email_verified", "login_failed", "login", "logout")
    }
    database = people.tools.read_database()
    assert b"Battery staple 9?" not in database
    assert b"correct Horse 7!" not in database
