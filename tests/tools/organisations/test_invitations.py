import asyncio

import pytest

from baobab.tools.core.errors import Forbidden
from baobab.tools.organisations.errors import AlreadyMember, InvitationNotFound, InvitationSpent, InvitedAnother
from tests.tools.conftest import ToolHarness

DAY = 86_400
GRACE = "grace@example.com"


async def test_the_invited_account_joins_with_the_role_it_was_offered(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada)
    # The invitation may come before the account.
    result = await harness.call(
        "organisations_invite", ada, organization_id=organisation, email="Grace@Example.com", role="admin"
    )
    grace = await harness.sign_up(GRACE)
    [invitation] = (await harness.call("organisations_invitations", ada, organization_id=organisation))["invitations"]
    assert invitation == result["invitation"]
    assert (invitation["email"], invitation["role"]) == (GRACE, "admin")

    harness.clock.advance(1)
    joined_result = await harness.call("organisations_accept_invitation", grace, token=result["token"])
    assert (joined_result["organization"]["id"], joined_result["organization"]["role"]) == (organisation, "admin")
    members = (await harness.call("organisations_members", grace, organization_id=organisation))["members"]
    assert [(member["email"], member["role"]) for member in members] == [("ada@example.com", "owner"), (GRACE, "admin")]
    assert (await harness.call("organisations_invitations", ada, organization_id=organisation))["invitations"] == []
    with pytest.raises(AlreadyMember):
        await harness.call("organisations_invite", ada, organization_id=organisation, email=GRACE)


async def test_one_of_twenty_acceptances_at_once_counts(harness: ToolHarness) -> None:
    ada, grace = await harness.sign_up("ada@example.com"), await harness.sign_up(GRACE)
    organisation = await harness.create_organisation(ada)
    token = (await harness.call("organisations_invite", ada, organization_id=organisation, email=GRACE))["token"]
    accepting = [harness.call("organisations_accept_invitation", grace, token=token) for _ in range(20)]
    answers = await asyncio.gather(*accepting, return_exceptions=True)
    assert sum(isinstance(answer, dict) for answer in answers) == 1
    assert sum(isinstance(answer, InvitationSpent) for answer in answers) == 19
    assert InvitationSpent.status == 409
    members = (await harness.call("organisations_members", ada, organization_id=organisation))["members"]
    assert len(members) == 2


async def test_a_used_invitation_does_not_let_a_removed_member_back_in(harness: ToolHarness) -> None:
    ada, grace = await harness.sign_up("ada@example.com"), await harness.sign_up(GRACE)
    organisation = await harness.create_organisation(ada)
    here = {"organization_id": organisation}
    token = (await harness.call("organisations_invite", ada, **here, email=GRACE))["token"]
    await harness.call("organisations_accept_invitation", grace, token=token)
    await harness.call("organisations_remove_member", ada, **here, account_id=grace.account_id)
    with pytest.raises(InvitationSpent):
        await harness.call("organisations_accept_invitation", grace, token=token)


async def test_the_token_alone_opens_nothing(harness: ToolHarness) -> None:
    ada, eve = await harness.sign_up("ada@example.com"), await harness.sign_up("eve@example.com")
    organisation = await harness.create_organisation(ada)
    token = (await harness.call("organisations_invite", ada, organization_id=organisation, email=GRACE))["token"]
    with pytest.raises(InvitedAnother) as refusal:
        await harness.call("organisations_accept_invitation", eve, token=token)
    assert refusal.value.status == 403
    assert GRACE not in repr((refusal.value.message, refusal.value.details))
    with pytest.raises(InvitationNotFound):
        await harness.call("organisations_accept_invitation", eve, token="inv_" + "x" * 40)

    grace = await harness.sign_up(GRACE)
    key = await harness.authenticate((await harness.call("api_keys_create", grace, name="agent"))["key"])
    with pytest.raises(Forbidden):
        await harness.call("organisations_accept_invitation", key, token=token)
    assert token.encode() not in harness.read_database()
    await harness.call("organisations_accept_invitation", grace, token=token)


async def test_an_invitation_is_void_after_seven_days_when_withdrawn_and_when_another_replaces_it(
    harness: ToolHarness,
) -> None:
    ada, grace = await harness.sign_up("ada@example.com"), await harness.sign_up(GRACE)
    organisation = await harness.create_organisation(ada)
    here = {"organization_id": organisation}

    old = await harness.call("organisations_invite", ada, **here, email=GRACE, role="admin")
    replacing = await harness.call("organisations_invite", ada, **here, email=GRACE, role="member")
    with pytest.raises(InvitationNotFound):
        await harness.call("organisations_accept_invitation", grace, token=old["token"])

    harness.clock.advance(7 * DAY)
    assert (await harness.call("organisations_invitations", ada, **here))["invitations"] == []
    with pytest.raises(InvitationSpent):
        await harness.call("organisations_accept_invitation", grace, token=replacing["token"])

    result = await harness.call("organisations_invite", ada, **here, email=GRACE)
    arguments = {"invitation_id": result["invitation"]["id"]}
    await harness.call("organisations_withdraw_invitation", ada, **here, **arguments)
    with pytest.raises(InvitationNotFound):
        await harness.call("organisations_accept_invitation", grace, token=result["token"])
    with pytest.raises(InvitationNotFound):
        await harness.call("organisations_withdraw_invitation", ada, **here, **arguments)


async def test_an_invitation_is_not_withdrawn_through_another_organisation(harness: ToolHarness) -> None:
    ada, eve = await harness.sign_up("ada@example.com"), await harness.sign_up("eve@example.com")
    organisation = await harness.create_organisation(ada)
    result = await harness.call("organisations_invite", ada, organization_id=organisation, email=GRACE)
    with pytest.raises(InvitationNotFound):
        await harness.call(
            "organisations_withdraw_invitation",
            eve,
            organization_id=eve.organisation_id,
            invitation_id=result["invitation"]["id"],
        )
