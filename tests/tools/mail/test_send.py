"""An app mails whom it knows and nobody else; what an agent writes goes out once a person has read it."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Baobab
from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.jobs import run_due_jobs
from tests.people import create_key
from tests.tools.mail.test_delivery import Relay, open_with_relay

ADA = "ada@example.com"


class Shop:
    """An app with a mail server, and Ada, a user who has confirmed her address."""

    def __init__(self, baobab: Baobab, relay: Relay) -> None:
        self.baobab = baobab
        self.relay = relay
        self.app = ""

    async def ask(self, method: str, path: str, key: Any = None, **body: Any) -> httpx.Response:
        return await self.baobab.client.request(method, path, json=body or None, headers=key or self.baobab.owner)

    async def send(self, to: str = ADA, key: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        body = {"subject": "Your order", "text": "It is <b>on</b> its way.\n\nBye!", **more}
        return await self.ask("POST", f"/v1/{self.app}/auth/mail/send", key, to=to, **body)

    async def sign_up(self, email: str, *, confirmed: bool) -> str:
        body = {"email": email, "password": "correct Horse 7!", "display_name": email.partition("@")[0].title()}
        user = (await self.ask("POST", f"/auth/{self.app}/signup", **body)).json()["user"]
        await run_due_jobs(self.baobab.application)
        code = re.search(r"\b[0-9]{6}\b", self.relay.mails.pop().get_body(("plain",)).get_content())
        assert code is not None
        if confirmed:
            answer = await self.ask("POST", f"/auth/{self.app}/verify-email", email=email, code=code[0])
            assert answer.is_success, answer.text
        user_id: str = user["id"]
        return user_id

    async def read_mails(self) -> list[Any]:
        await run_due_jobs(self.baobab.application)
        return self.relay.mails


@pytest.fixture
async def shop(tmp_path: Path, settings: dict[str, str]) -> AsyncIterator[Shop]:
    relay = Relay()
    async with open_with_relay(tmp_path, settings, relay) as baobab:
        shop = Shop(baobab, relay)
        shop.app = await baobab.create_app(name="shop")
        await shop.sign_up(ADA, confirmed=True)
        yield shop


def read_code(answer: httpx.Response) -> str:
    assert answer.status_code == 409, answer.text
    body = answer.json()
    return str(body.get("code") or body["error"]["code"])


async def test_a_user_gets_a_mail_once_as_text_and_as_html_without_markup_of_its_own(shop: Shop) -> None:
    answer = await shop.send(idempotency_key="order-7")
    assert answer.status_code == 201, answer.text
    assert (await shop.send(idempotency_key="order-7")).json()["mail"]["id"] == answer.json()["mail"]["id"]
    assert read_code(await shop.send(subject="Another", idempotency_key="order-7")) == "MAIL_KEY_REUSED"
    (mail,) = await shop.read_mails()
    assert (mail["To"], mail["Subject"]) == (ADA, "Your order")
    text, html = (mail.get_body((kind,)).get_content() for kind in ("plain", "html"))
    assert text.splitlines() == ["It is <b>on</b> its way.", "", "Bye!", "", "shop"]
    assert "It is &lt;b&gt;on&lt;/b&gt; its way." in html
    read = await shop.ask("GET", f"/v1/{shop.app}/auth/outbox/{answer.json()['mail']['id']}")
    assert read.json()["mail"]["status"] == "sent"


async def test_only_those_whom_the_app_knows_get_mail(shop: Shop) -> None:
    eve = await shop.sign_up("eve@stranger.example", confirmed=False)
    for nobody in ("bob@elsewhere.example", "eve@stranger.example", eve):
        assert read_code(await shop.send(nobody)) == "MAIL_RECIPIENT_REFUSED"
    assert (await shop.send("0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11")).status_code == 404
    assert (await shop.send("ada@example.com, bob@elsewhere.example")).status_code == 400
    assert (await shop.send(subject="Two\nlines: Bcc: eve@stranger.example")).status_code == 400
    recipients = {"recipients": ["@elsewhere.example"]}
    narrow_key = await create_key(shop.baobab, shop.baobab.owner, approval="destructive")
    assert (await shop.ask("PATCH", f"/v1/{shop.app}/auth/mail", narrow_key, **recipients)).status_code == 403
    assert (await shop.ask("PATCH", f"/v1/{shop.app}/auth/mail", **recipients)).is_success
    assert (await shop.send("bob@elsewhere.example")).status_code == 201
    assert (await shop.send("bob@notelsewhere.example")).status_code == 409
    assert [mail["To"] for mail in await shop.read_mails()] == ["bob@elsewhere.example"]


async def test_nobody_is_flooded(shop: Shop) -> None:
    answers = [await shop.send() for _ in range(21)]
    assert [answer.status_code for answer in answers] == [201] * 20 + [429]
    assert int(answers[-1].headers["retry-after"]) > 80_000


async def test_a_key_that_must_ask_mails_once_a_person_has_seen_whom_and_what(shop: Shop) -> None:
    key = await create_key(shop.baobab, shop.baobab.owner, approval="external")
    waiting = await shop.send(key=key)
    assert waiting.status_code == 428, waiting.text
    (approval,) = (await shop.ask("GET", "/v1/approvals?status=pending")).json()["approvals"]
    page = (await shop.ask("GET", f"/v1/approvals/{approval['id']}")).text
    assert all(part in page for part in ("It would mail Ada <ada@example.com>", "Your order", "on</b> its way"))
    assert await shop.read_mails() == []
    await shop.ask("POST", f"/v1/approvals/{approval['id']}/approve")
    assert [mail["To"] for mail in await shop.read_mails()] == [ADA]


async def test_the_agent_of_the_guide_drafts_asks_and_mails_the_customer(shop: Shop) -> None:
    (graph,) = [
        json.loads(block) for block in find_blocks((ROOT / "docs/users.md").read_text(), "json") if "mail_send" in block
    ]
    graph["nodes"]["draft"]["input_template"] = "/say We are on it."
    agents = f"/v1/{shop.app}/agents"
    answer = await shop.ask("POST", agents, name="support", graph_spec=graph)
    assert answer.is_success, answer.text
    run_answer = await shop.ask("POST", f"{agents}/support/runs", input={"ticket": "It is broken.", "customer": ADA})
    run = f"{agents}/support/runs/{run_answer.json()['run_id']}"
    await run_due_jobs(shop.baobab.application)
    assert (await shop.ask("GET", run)).json()["run"]["status"] == "paused"
    assert shop.relay.mails == []
    (approval,) = (await shop.ask("GET", "/v1/approvals?status=pending")).json()["approvals"]
    answer = await shop.ask("POST", f"/v1/approvals/{approval['id']}/approve")
    assert answer.is_success, answer.text
    (mail,) = await shop.read_mails()
    assert (mail["To"], mail["Subject"]) == (ADA, "Your ticket")
    assert mail.get_body(("plain",)).get_content().splitlines()[0].endswith("We are on it.")
    assert (await shop.ask("GET", run)).json()["run"]["status"] == "completed"


async def test_without_a_mail_server_the_call_says_so(baobab: Baobab) -> None:
    app = await baobab.create_app()
    settings = await baobab.client.patch(
        f"/v1/{app}/auth/mail", json={"recipients": ["@example.com"]}, headers=baobab.owner
    )
    assert settings.json()["mail"]["recipients"] == ["@example.com"]
    body = {"to": ADA, "subject": "Your order", "text": "It is on its way."}
    answer = await baobab.client.post(f"/v1/{app}/auth/mail/send", json=body, headers=baobab.owner)
    assert read_code(answer) == "MAIL_NOT_SET_UP"
