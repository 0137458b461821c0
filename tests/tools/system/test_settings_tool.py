"""The operator reads the settings of the installation, never a secret of it, and what is wrong in words."""

import pytest

from baobab.settings import load_settings
from tests.conftest import Baobab
from tests.people import create_person

_SMTP = "smtps://mailer:hunter2@mail.example:465"


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "BAOBAB_SMTP_URL": _SMTP, "BAOBAB_BASE_URL": "http://baobab.example"}


async def test_the_first_account_reads_them_without_secrets_and_others_do_not(baobab: Baobab) -> None:
    answer = await baobab.client.get("/v1/settings", headers=baobab.owner)
    assert answer.status_code == 200
    values = {setting["name"]: setting["value"] for setting in answer.json()["settings"]}
    assert (values["smtp_url"], values["bootstrap_key"]) == ("set", "set")
    assert "hunter2" not in answer.text
    assert baobab.key not in answer.text
    faults = " ".join(answer.json()["faults"])
    assert "BASE_URL is not https" in faults
    assert "mail server" not in faults
    stranger = await create_person(baobab, "stranger")
    assert (await baobab.client.get("/v1/settings", headers=stranger.headers)).status_code == 403


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/baobab",
        "postgresql://me:hunter@2@db/baobab",
    ],
)
def test_addresses_are_listed_without_credentials(url: str) -> None:
    values = {row["name"]: row["value"] for row in load_settings({"BAOBAB_DATABASE_URL": url}).list_for_operator()}
    assert values["database_url"] == "postgresql://db/baobab"
