"""Deleting an account: what goes, what stays, and who must do something else first."""

import pytest

from baobab.tools.accounts.errors import AccountHasApps, AccountOwnsOrganisations, FirstAccountStays, WrongPassword
from baobab.tools.core.errors import InvalidApiKey, MissingField
from tests.tools.conftest import PASSWORD, ToolHarness


async def test_a_deleted_account_leaves_its_organisations_and_its_keys_end(harness: ToolHarness) -> None:
    ada = await harness.sign_up("ada@example.com")
    harness.clock.advance(1)
    organisation = await harness.create_organisation(ada)
    grace = await harness.join(organisation, ada, "grace@example.com", "admin")
    key = (await harness.call("api_keys_create", grace, name="mine", organization_id=organisation))["key"]
    with pytest.raises(MissingField):
        await harness.call("platform_delete", grace)
    with pytest.raises(WrongPassword):
        await harness.call("platform_delete", grace, current_password="Wrong horse 1!")
    result = await harness.call("platform_delete", grace, current_password=PASSWORD)
    assert result == {"deleted": True, "id": grace.account_id}
    members = (await harness.call("organisations_members", ada, organization_id=organisation))["members"]
    assert [member["email"] for member in members] == ["ada@example.com"]
    with pytest.raises(InvalidApiKey):
        await harness.authenticate(key)
    # The address is free again.
    await harness.call("platform_signup", email="grace@example.com", password=PASSWORD, name="Grace")


async def test_the_only_owner_hands_over_first(harness: ToolHarness) -> None:
    await harness.sign_up("first@example.com")
    harness.clock.advance(1)
    ada = await harness.sign_up("ada@example.com")
    organisation = await harness.create_organisation(ada, "Engines")
    with pytest.raises(AccountOwnsOrganisations, match="Engines"):
        await harness.call("platform_delete", ada, current_password=PASSWORD)
    grace = await harness.join(organisation, ada, "grace@example.com", "member")
    here = {"organization_id": organisation}
    await harness.call("organisations_set_role", ada, **here, account_id=grace.account_id, role="owner")
    await harness.call("platform_delete", ada, current_password=PASSWORD)


async def test_an_account_with_apps_of_its_own_and_the_first_one_stay(harness: ToolHarness) -> None:
    first = await harness.sign_up("first@example.com")
    harness.clock.advance(1)
    ada = await harness.sign_up("ada@example.com")
    await harness.create_app_row(ada.organisation_id)
    with pytest.raises(AccountHasApps):
        await harness.call("platform_delete", ada, current_password=PASSWORD)
    with pytest.raises(FirstAccountStays):
        await harness.call("platform_delete", first, current_password=PASSWORD)
