"""The page of settings: for whoever operates the installation."""

from tests.conftest import Baobab
from tests.http.console.test_console import sign_in
from tests.people import create_key, create_person


async def test_the_operator_reads_the_settings_and_what_is_wrong_and_others_are_told_whose_they_are(
    baobab: Baobab,
) -> None:
    page = await baobab.client.get("/console/settings", headers=await sign_in(baobab))
    assert page.status_code == 200
    assert "There is no mail server" in page.text
    assert "BAOBAB_BOOTSTRAP_KEY" in page.text
    assert baobab.key not in page.text
    stranger = await create_person(baobab, "stranger")
    key = await create_key(baobab, stranger.headers)
    browser = await sign_in(baobab, key["authorization"].removeprefix("Bearer "))
    refusal = await baobab.client.get("/console/settings", headers=browser)
    assert refusal.status_code == 403
    assert "whoever operates the installation" in refusal.text
