import asyncio
from typing import Any

import pytest
from sqlalchemy import select

from baobab.tools.core.auth.callers import Account, Anonymous, AppKey
from baobab.tools.core.auth.tables import members
from baobab.tools.core.errors import Forbidden, InvalidApiKey, Unauthenticated
from baobab.tools.organisations.errors import (
    AboveOwnRole,
    LastOwner,
    MemberNotFound,
    OrganisationHasApps,
    OrganisationNotFound,
    PersonalOrganisation,
)
from tests.tools.conftest import ToolHarness

SOMEBODY = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"

BY_ID: dict[str, dict[str, Any]] = {
    "organisations_get": {},
    "organisations_update": {"name": "Ours now"},
    "organisations_delete": {},
    "organisations_members": {},
    "organisations_set_role": {"account_id": SOMEBODY, "role": "owner"},
    "organisations_remove_member": {"account_id": SOMEBODY},
    "organisations_invite": {"email": "eve@example.com", "role": "owner"},
    "organisations_invitations": {},
    "organisations_withdraw_invitation": {"invitation_id": SOMEBODY},
}


async def list_roles(harness: ToolHarness, organization_id: str) -> dict[str, str]:
    query = select(members.c.account_id, members.c.role).where(members.c.organisation_id == organization_id)
    async with harness.services.database.reading() as connection:
        return {row.account_id: row.role for row in await connection.execute(query)}


@pytest.mark.parametrize("tool", BY_ID)
async def test_to_strangers_there_is_no_such_organisation(harness: ToolHarness, tool: str) -> None:
    ada, eve = await harness.sign_up("ada@example.com"), await harness.sign_up("eve@example.com")
    organisation = await harness.create_organisation(ada)
    for unknown in (organisation, ada.organisation_id, SOMEBODY):
        with pytest.raises(OrganisationNotFound):
            await harness.call(tool, eve, organization_id=unknown, **BY_ID[tool])
    with pytest.raises(Unauthenticated):
        await harness.call(tool, Anonymous(), organization_id=organisation, **BY_ID[tool])
    with pytest.raises(Forbidden):
        await harness.call(tool, AppKey("app_000000000001", SOMEBODY), organization_id=organisation, **BY_ID[tool])


@pytest.mark.parametrize("tool", BY_ID)
async def test_a_key_is_pinned_to_its_organisation(harness: ToolHarness, tool: str) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    key = await harness.authenticate((await harness.call("api_keys_create", ada, name="home"))["key"])
    with pytest.raises(Forbidden):
        await harness.call(tool, key, organization_id=organisation, **BY_ID[tool])


async def test_a_key_lists_its_organisation_only_and_makes_none(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    key = await harness.authenticate(
        (await harness.call("api_keys_create", ada, name="key", organization_id=organisation))["key"]
    )
    organizations = (await harness.call("organisations_list", key))["organizations"]
    assert [(o["id"], o["role"], o["personal"]) for o in organizations] == [(organisation, "owner", False)]
    both = (await harness.call("organisations_list", ada))["organizations"]
    assert [o["id"] for o in both] == [ada.organisation_id, organisation]
    with pytest.raises(Forbidden):
        await harness.call("organisations_create", key, name="Another")


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("member", {"organisations_get", "organisations_members"}),
        ("admin", set(BY_ID) - {"organisations_delete"}),
    ],
)
async def test_each_role_may_what_it_may(harness: ToolHarness, role: str, may: set[str]) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    colleague = await harness.join(organisation, ada, "colleague@example.com", role)
    for tool in sorted(set(BY_ID) - may):
        with pytest.raises(Forbidden):
            await harness.call(tool, colleague, organization_id=organisation, **BY_ID[tool])
    for tool in ("organisations_get", "organisations_members"):
        assert await harness.call(tool, colleague, organization_id=organisation)
    assert set((await list_roles(harness, organisation)).values()) == {"owner", role}


async def test_nobody_acts_above_their_own_role(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    admin = await harness.join(organisation, ada, "admin@example.com", "admin")
    member = await harness.join(organisation, ada, "member@example.com", "member")
    here = {"organization_id": organisation}
    invitation = await harness.call("organisations_invite", ada, **here, email="heir@example.com", role="owner")

    forbidden: list[tuple[str, dict[str, Any]]] = [
        ("organisations_invite", {"email": "eve@example.com", "role": "owner"}),
        ("organisations_set_role", {"account_id": admin.account_id, "role": "owner"}),
        ("organisations_set_role", {"account_id": member.account_id, "role": "owner"}),
        ("organisations_set_role", {"account_id": ada.account_id, "role": "member"}),
        ("organisations_remove_member", {"account_id": ada.account_id}),
        ("organisations_withdraw_invitation", {"invitation_id": invitation["invitation"]["id"]}),
    ]
    for tool, arguments in forbidden:
        with pytest.raises(AboveOwnRole) as refusal:
            await harness.call(tool, admin, **here, **arguments)
        assert refusal.value.status == 403

    await harness.call("organisations_set_role", admin, **here, account_id=member.account_id, role="admin")
    await harness.call("organisations_remove_member", admin, **here, account_id=member.account_id)
    assert await list_roles(harness, organisation) == {ada.account_id: "owner", admin.account_id: "admin"}
    with pytest.raises(MemberNotFound):
        await harness.call("organisations_remove_member", admin, **here, account_id=member.account_id)


async def test_one_owner_stays(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    here = {"organization_id": organisation, "account_id": ada.account_id}
    with pytest.raises(LastOwner):
        await harness.call("organisations_remove_member", ada, **here)
    with pytest.raises(LastOwner):
        await harness.call("organisations_set_role", ada, **here, role="admin")
    await harness.call("organisations_set_role", ada, **here, role="owner")


@pytest.mark.parametrize("leaving", [True, False])
async def test_the_last_two_owners_cannot_both_be_removed_at_once(harness: ToolHarness, leaving: bool) -> None:
    ada = await harness.sign_up("ada@example.com")
    for attempt in range(3):
        organisation = await harness.create_organisation(ada)
        grace = await harness.join(organisation, ada, f"grace{attempt}@example.com", "owner")
        pairs = [(ada, ada), (grace, grace)] if leaving else [(ada, grace), (grace, ada)]
        removals = [
            harness.call("organisations_remove_member", by, organization_id=organisation, account_id=who.account_id)
            for by, who in pairs
        ]
        answers = await asyncio.gather(*removals, return_exceptions=True)
        assert sum(isinstance(answer, dict) for answer in answers) == 1
        assert sum(isinstance(answer, LastOwner | OrganisationNotFound) for answer in answers) == 1
        assert list((await list_roles(harness, organisation)).values()) == ["owner"]


async def test_anyone_may_leave_and_is_a_stranger_then(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    member = await harness.join(organisation, ada, "member@example.com", "member")
    here = {"organization_id": organisation}
    with pytest.raises(Forbidden):
        await harness.call("organisations_remove_member", member, **here, account_id=ada.account_id)
    await harness.call("organisations_remove_member", member, **here, account_id=member.account_id)
    for tool in ("organisations_get", "organisations_members"):
        with pytest.raises(OrganisationNotFound):
            await harness.call(tool, member, **here)


async def test_a_role_is_in_force_from_the_moment_it_is_given(harness: ToolHarness) -> None:
    ada, grace = await harness.sign_up("ada@example.com"), await harness.sign_up("grace@example.com")
    here = {"organization_id": await harness.create_organisation(ada)}
    with pytest.raises(OrganisationNotFound):
        await harness.call("organisations_members", grace, **here)
    result = await harness.call("organisations_invite", ada, **here, email="grace@example.com")
    await harness.call("organisations_accept_invitation", grace, token=result["token"])
    assert await harness.call("organisations_members", grace, **here)
    with pytest.raises(Forbidden):
        await harness.call("organisations_invitations", grace, **here)
    await harness.call("organisations_set_role", ada, **here, account_id=grace.account_id, role="admin")
    assert await harness.call("organisations_invitations", grace, **here)


async def test_whoever_is_removed_takes_no_working_key_along(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    await harness.create_app_row(organisation)
    admin = await harness.join(organisation, ada, "admin@example.com", "admin")
    app = {"key_scope": "app", "target_app_id": "app_000000000001"}
    theirs = [
        await harness.call("api_keys_create", admin, name="all", organization_id=organisation),
        await harness.call("api_keys_create", admin, name="app", **app),
    ]
    lasting_keys = [
        await harness.call("api_keys_create", admin, name="at home"),
        await harness.call("api_keys_create", ada, name="app", **app),
    ]
    for key in theirs + lasting_keys:
        await harness.authenticate(key["key"])

    arguments = {"organization_id": organisation, "account_id": admin.account_id}
    assert (await harness.call("organisations_remove_member", ada, **arguments))["keys_revoked"] == 2
    for key in theirs:
        with pytest.raises(InvalidApiKey):
            await harness.authenticate(key["key"])
    for key in lasting_keys:
        await harness.authenticate(key["key"])


async def test_an_admin_who_becomes_a_member_loses_the_app_keys(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    await harness.create_app_row(organisation)
    admin = await harness.join(organisation, ada, "admin@example.com", "admin")
    app = {"key_scope": "app", "target_app_id": "app_000000000001"}
    app_key = (await harness.call("api_keys_create", admin, name="app", **app))["key"]
    own = (await harness.call("api_keys_create", admin, name="own", organization_id=organisation))["key"]
    who = {"organization_id": organisation, "account_id": admin.account_id}
    assert (await harness.call("organisations_set_role", ada, **who, role="member"))["keys_revoked"] == 1
    with pytest.raises(InvalidApiKey):
        await harness.authenticate(app_key)
    still = await harness.authenticate(own)
    with pytest.raises(Forbidden):
        await harness.call("organisations_update", still, organization_id=organisation, name="Mine")


async def test_a_personal_organisation_keeps_its_one_owner(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    home = ada.organisation_id
    friend = await harness.join(home, ada, "friend@example.com", "admin")
    owner = {"organization_id": home, "account_id": ada.account_id}
    refused_calls: list[tuple[str, dict[str, Any]]] = [
        ("organisations_delete", {"organization_id": home}),
        ("organisations_remove_member", owner),
        ("organisations_set_role", {**owner, "role": "member"}),
        ("organisations_set_role", {**owner, "account_id": friend.account_id, "role": "owner"}),
        ("organisations_invite", {"organization_id": home, "email": "eve@example.com", "role": "owner"}),
    ]
    for tool, arguments in refused_calls:
        with pytest.raises(PersonalOrganisation) as refusal:
            await harness.call(tool, ada, **arguments)
        assert refusal.value.status == 409
    signed_in = await harness.call("platform_login", email="friend@example.com", password="correct Horse 7!")
    again = await harness.authenticate(signed_in["token"])
    assert isinstance(again, Account)
    assert again.organisation_id == friend.organisation_id


async def test_an_organisation_goes_when_its_apps_are_gone_and_its_keys_go_with_it(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    empty, used_organisation = (
        await harness.create_organisation(ada, "empty"),
        await harness.create_organisation(ada, "used"),
    )
    await harness.create_app_row(used_organisation)
    key = (await harness.call("api_keys_create", ada, name="key", organization_id=empty))["key"]
    await harness.authenticate(key)

    with pytest.raises(OrganisationHasApps) as refusal:
        await harness.call("organisations_delete", ada, organization_id=used_organisation)
    assert (refusal.value.status, refusal.value.code) == (409, "STATE_PREREQUISITE_MISSING")
    assert refusal.value.details == {"apps": 1}
    await harness.call("organisations_delete", ada, organization_id=empty)
    with pytest.raises(InvalidApiKey):
        await harness.authenticate(key)
    with pytest.raises(OrganisationNotFound):
        await harness.call("organisations_get", ada, organization_id=empty)


async def test_a_new_name_is_everybodys(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada, "Analytical")
    member = await harness.join(organisation, ada, "member@example.com", "member")
    result = await harness.call("organisations_update", ada, organization_id=organisation, name="Difference")
    seen_result = await harness.call("organisations_get", member, organization_id=organisation)
    assert seen_result == {**result, "role": "member", "admins": ["ada"]}
    assert seen_result["name"] == "Difference"
