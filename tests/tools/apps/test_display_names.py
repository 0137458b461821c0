"""The name of an app that people read."""

import pytest

from tests.conftest import Baobab


async def test_a_display_name_is_set_beside_the_name_and_cleared_again(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    path, client, owner = f"/apps/{app_id}", baobab.client, baobab.owner
    before = (await client.get(f"/v1/{app_id}/config", headers=owner)).json()
    assert before["display_name"] is None
    answer = await client.patch(path, json={"display_name": "Support desk"}, headers=owner)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["name"], answer.json()["display_name"]) == (before["name"], "Support desk")
    rows = (await client.get("/apps", headers=owner)).json()["apps"]
    assert [row["display_name"] for row in rows if row["id"] == app_id] == ["Support desk"]
    answer = await client.patch(path, json={"display_name": None}, headers=owner)
    assert answer.json()["display_name"] is None
    assert (await client.patch(path, json={}, headers=owner)).status_code == 400


@pytest.mark.parametrize("name", ["", "a\nb", "pay\u202epal", "x" * 101])
async def test_a_display_name_that_is_not_one_visible_line_is_refused(baobab: Baobab, name: str) -> None:
    app_id = await baobab.create_app()
    answer = await baobab.client.patch(f"/apps/{app_id}", json={"display_name": name}, headers=baobab.owner)
    assert answer.status_code == 400


async def test_a_mail_to_a_user_comes_from_the_display_name(baobab: Baobab) -> None:
    app_id, client, owner = await baobab.create_app(), baobab.client, baobab.owner
    await client.patch(f"/apps/{app_id}", json={"display_name": "Acme Lamps"}, headers=owner)
    await client.post(f"/auth/{app_id}/signup", json={"email": "carla@example.com", "password": "correct Horse 7!"})
    mails = (await client.get(f"/v1/{app_id}/auth/outbox", headers=owner)).json()
    assert "Acme Lamps" in str(mails)
