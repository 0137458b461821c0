"""Forgotten passwords, new addresses and invitations: links that are mailed, and what they are good for."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Baobab
from tests.jobs import run_due_jobs
from tests.tools.mail.test_delivery import Relay, open_with_relay

PASSWORD, NEW_PASSWORD = "correct Horse 7!", "Battery staple 9?"
ADA, GRACE, EVE = "ada@example.com", "grace@example.com", "eve@example.com"

pytestmark = pytest.mark.own_installation


class Post:
    """An installation with a mail server, and what arrived there."""

    def __init__(self, baobab: Baobab, relay: Relay) -> None:
        self.baobab, self.relay = baobab, relay

    async def send(self, path: str, headers: dict[str, str] | None = None, **body: Any) -> Any:
        return await self.baobab.client.post(path, json=body, headers=headers or {})

    async def sign_up(self, email: str) -> dict[str, str]:
        fields: Any = {"email": email, "password": PASSWORD, "name": email.partition("@")[0].title()}
        assert (await self.send("/platform/signup", **fields)).status_code == 201
        return await self.sign_in(email)

    async def sign_in(self, email: str, password: str = PASSWORD) -> dict[str, str]:
        answer = await self.send("/platform/login", email=email, password=password)
        assert answer.status_code == 200, answer.text
        return {"authorization": f"Bearer {answer.json()['token']}"}

    async def read_link(self, email: str) -> str:
        """The link of the newest mail to an address."""
        await run_due_jobs(self.baobab.application)
        mail = [mail for mail in self.relay.mails if mail["To"] == email][-1]
        [link] = re.findall(r"https?://\S+", mail.get_body("plain").get_content())
        return str(link)


@asynccontextmanager
async def open_post(data: Path, settings: dict[str, str], **more: str) -> AsyncIterator[Post]:
    relay = Relay()
    async with open_with_relay(data, {**settings, **more}, relay) as baobab:
        yield Post(baobab, relay)


@pytest.fixture
async def post(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Post]:
    async with open_post(tmp_path, settings) as opened_post:
        yield opened_post


def cut_token(link: str) -> str:
    return link.partition("?token=")[2]


async def test_a_forgotten_password_is_replaced_by_a_link_that_works_once(post: Post) -> None:
    await post.sign_up(ADA)
    assert (await post.send("/platform/forgot-password", {"host": "evil.example"}, email=ADA)).status_code == 421
    answer = await post.send("/platform/forgot-password", {"x-forwarded-host": "evil.example"}, email=ADA.upper())
    assert answer.json() == {"sends_mail": True}
    link = await post.read_link(ADA)
    base_url = post.baobab.application.services.options.base_url
    assert link.startswith(f"{base_url}/console/new-password?token=")
    token = cut_token(link)
    weak = await post.send("/platform/reset-password", token=token, password="short")
    assert weak.status_code == 400
    answer = await post.send("/platform/reset-password", token=token, password=NEW_PASSWORD)
    assert answer.json() == {"email": ADA}
    again = await post.send("/platform/reset-password", token=token, password=PASSWORD)
    assert (again.status_code, again.json()["error"]["code"]) == (400, "AUTH_LINK_SPENT")
    assert (await post.send("/platform/login", email=ADA, password=PASSWORD)).status_code == 401
    me = await post.baobab.client.get("/platform/me", headers=await post.sign_in(ADA, NEW_PASSWORD))
    assert me.json()["user"]["email_verified"] is True


async def test_a_forgotten_password_does_not_tell_who_has_an_account(post: Post) -> None:
    await post.sign_up(ADA)
    answers = [await post.send("/platform/forgot-password", email=email) for email in (ADA, EVE)]
    assert answers[0].json() == answers[1].json()
    assert answers[0].status_code == answers[1].status_code == 200
    await run_due_jobs(post.baobab.application)
    assert [mail["To"] for mail in post.relay.mails] == [ADA]
    for email in (ADA, EVE):
        codes = [(await post.send("/platform/forgot-password", email=email)).status_code for _ in range(3)]
        assert codes[-1] == 429, codes


async def test_a_link_of_one_kind_is_no_link_of_another(post: Post) -> None:
    headers = await post.sign_up(ADA)
    await post.send("/platform/me/email", headers, email=EVE, current_password=PASSWORD)
    token = cut_token(await post.read_link(EVE))
    assert (await post.send("/platform/reset-password", token=token, password=NEW_PASSWORD)).status_code == 400
    assert (await post.send("/platform/confirm-email", token="v1.0a1b2c3d.c2VhbGVk")).status_code == 400


async def test_an_address_changes_when_the_new_one_answers_and_the_old_one_is_told(post: Post) -> None:
    headers = await post.sign_up(ADA)
    wrong = await post.send("/platform/me/email", headers, email=GRACE, current_password="Wrong horse 1!")
    assert wrong.status_code == 403
    asking = await post.send("/platform/me/email", headers, email=GRACE, current_password=PASSWORD)
    assert asking.json() == {"email": GRACE}
    token = cut_token(await post.read_link(GRACE))
    await post.sign_in(ADA)
    assert (await post.send("/platform/confirm-email", token=token)).json() == {"email": GRACE}
    assert (await post.send("/platform/confirm-email", token=token)).status_code == 400
    await post.sign_in(GRACE)
    await run_due_jobs(post.baobab.application)
    assert [mail["Subject"] for mail in post.relay.mails if mail["To"] == ADA] == ["Your address at Baobab has changed"]


async def test_an_address_that_somebody_has_is_not_taken_and_asking_does_not_tell(post: Post) -> None:
    headers = await post.sign_up(ADA)
    await post.sign_up(GRACE)
    asking = await post.send("/platform/me/email", headers, email=GRACE, current_password=PASSWORD)
    assert asking.status_code == 200
    token = cut_token(await post.read_link(GRACE))
    assert (await post.send("/platform/confirm-email", token=token)).status_code == 409


async def test_an_invitation_is_mailed_and_lets_its_address_sign_up_where_nobody_else_may(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    async with open_post(tmp_path, settings, BAOBAB_SIGNUP="closed") as post:
        owner = post.baobab.owner
        me = (await post.baobab.client.get("/platform/me", headers=owner)).json()
        path = f"/v1/organizations/{me['organizations'][0]['id']}/invitations"
        answer = await post.send(path, owner, email=GRACE, role="approver")
        assert answer.json()["mailed"] is True
        link = await post.read_link(GRACE)
        assert link == answer.json()["link"]
        token = cut_token(link)
        offer = (await post.baobab.client.get(f"/v1/invitations/{token}")).json()
        assert (offer["status"], offer["email"], offer["role"], offer["has_account"]) == (
            "open",
            GRACE,
            "approver",
            False,
        )
        fields: Any = {"password": PASSWORD, "name": "Grace"}
        refused_forms: list[dict[str, Any]] = [
            {"email": GRACE},
            {"email": EVE, "invitation": token},
            {"email": GRACE, "invitation": "inv_" + "a" * 40},
        ]
        for refused_fields in refused_forms:
            refusal = await post.send("/platform/signup", **fields, **refused_fields)
            assert refusal.status_code in (403, 404), refused_fields
        assert (await post.send("/platform/signup", email=GRACE, invitation=token, **fields)).status_code == 201
        headers = await post.sign_in(GRACE)
        answer = await post.send(f"/v1/invitations/{token}/accept", headers)
        assert answer.json()["organization"]["role"] == "approver"
        offer = (await post.baobab.client.get(f"/v1/invitations/{token}")).json()
        assert (offer["status"], offer["has_account"]) == ("accepted", True)
        refusal = await post.send("/platform/signup", email=EVE, invitation=token, **fields)
        assert refusal.status_code == 403
