"""Wrong requests of strangers to the sign-in of an app are refused and logged, and change nothing."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.conftest import Baobab
from tests.jobs import run_due_jobs

MEGABYTE = "Aa1!" * 2**18
ADA = {"email": "ada@example.com", "password": "correct Horse 7!"}


@dataclass
class Shop:
    baobab: Baobab
    app: str

    async def post(self, route: str, body: Any, app: str | None = None, **headers: str) -> Any:
        return await self.baobab.client.post(f"/auth/{app or self.app}/{route}", json=body, headers=headers)

    async def read(self, path: str) -> Any:
        return (await self.baobab.client.get(f"/v1/{self.app}/{path}", headers=self.baobab.owner)).json()

    async def list_failures(self) -> list[str]:
        return [row["event_type"] for row in (await self.read("audit-logs"))["logs"] if not row["success"]]

    async def describe(self) -> tuple[Any, Any]:
        """Returns everything that a sign-in could change: the users and their sessions."""
        users = (await self.read("admin/auth/users"))["users"]
        sessions = [await self.read(f"admin/auth/users/{user['id']}/sessions") for user in users]
        return users, sessions


@pytest.fixture
async def shop(baobab: Baobab) -> Shop:
    shop = Shop(baobab, await baobab.create_app())
    assert (await shop.post("signup", ADA)).status_code == 201
    return shop


async def test_a_password_of_a_megabyte_is_refused_before_it_is_hashed(shop: Shop) -> None:
    token = (await shop.post("login", ADA)).json()["access_token"]
    before = await shop.describe()
    mine = {"authorization": f"Bearer {token}"}
    for route, body, headers in (
        ("signup", {"email": "ben@example.com", "password": MEGABYTE}, {}),
        ("login", {**ADA, "password": MEGABYTE}, {}),
        ("reset-password", {"email": ADA["email"], "code": "000000", "new_password": MEGABYTE}, {}),
        ("invitation/accept", {"email": ADA["email"], "code": "000000", "password": MEGABYTE}, {}),
        ("upgrade", {"email": "ben@example.com", "password": MEGABYTE}, mine),
    ):
        refusal = await shop.post(route, body, **headers)
        assert refusal.status_code in (400, 413), (route, refusal.text[:200])
        assert MEGABYTE[:100] not in refusal.text
    assert await shop.describe() == before


async def test_a_code_that_was_used_is_refused_and_written_down(shop: Shop) -> None:
    await shop.post("magic-link", {"email": ADA["email"]})
    await run_due_jobs(shop.baobab.application)
    mails = (await shop.read("auth/outbox"))["mails"]
    # That of the sign-up is there, too.
    (text,) = [mail["text"] for mail in mails if mail["subject"].startswith("Your sign-in code")]
    code = text.split("\n\n")[1].strip()
    body = {"email": ADA["email"], "code": code}
    assert (await shop.post("magic-link/verify", body)).status_code == 200
    before = await shop.describe()
    again = await shop.post("magic-link/verify", body)
    assert again.status_code in (400, 401)
    assert await shop.describe() == before
    assert await shop.list_failures() == ["magic_link_login_failed"]


async def test_tokens_of_one_app_open_nothing_in_another(shop: Shop) -> None:
    other = await shop.baobab.create_app()
    tokens = (await shop.post("login", ADA)).json()
    before = await shop.describe()
    mine = {"authorization": f"Bearer {tokens['access_token']}"}
    refusal = await shop.post("refresh", {"refresh_token": tokens["refresh_token"]}, app=other)
    assert refusal.status_code == 401
    for route in ("logout", "passkeys/options", "totp", "upgrade/oauth"):
        assert (await shop.post(route, {}, app=other, **mine)).status_code in (401, 403), route
    assert (await shop.post("login", ADA, app=other)).status_code == 401
    assert await shop.describe() == before
    # The tokens are as good as before where they belong.
    assert (await shop.post("refresh", {"refresh_token": tokens["refresh_token"]})).status_code == 200


async def test_a_wrong_password_is_written_down_without_the_password(shop: Shop) -> None:
    before = await shop.describe()
    assert (await shop.post("login", {**ADA, "password": "Wrong horse 8!"})).status_code == 401
    assert await shop.describe() == before
    assert "login_failed" in await shop.list_failures()
    assert "Wrong horse" not in str(await shop.read("audit-logs"))
