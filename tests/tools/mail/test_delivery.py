"""Mails reach an SMTP server once, encrypted, or say why they did not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP

from baobab.runtime.net.smtp import SmtpServer
from baobab.tools.core.app_data import MOVE_ENDED
from tests.conftest import Baobab, open_baobab
from tests.jobs import run_due_jobs
from tests.servers import TIMEOUT_SECONDS

EMAIL = "ada@example.com"


class Relay:
    """An SMTP server that answers each mail with the next of its replies, then takes them."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.mails: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        reply = self.replies.pop(0) if self.replies else "250 OK"
        if reply.startswith("250"):
            self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return reply


@contextlib.asynccontextmanager
async def open_relay(relay: Relay) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(relay, loop=loop), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@contextlib.asynccontextmanager
async def open_with_relay(data: Path, settings: dict[str, str], relay: Relay) -> AsyncIterator[Baobab]:
    async with open_relay(relay) as port:
        mail = {"BAOBAB_SMTP_URL": f"smtp://127.0.0.1:{port}", "BAOBAB_MAIL_FROM": "apps@example.org"}
        async with open_baobab(data, {**settings, **mail}) as baobab:
            yield baobab


async def sign_up(baobab: Baobab) -> str:
    app = await baobab.create_app()
    body = {"email": EMAIL, "password": "correct Horse 7!"}
    answer = await baobab.client.post(f"/auth/{app}/signup", json=body)
    assert answer.json()["message"] == "Verification email sent"
    is_sent = baobab.application.services.mailer.delivers
    assert ("sends no mail" in answer.headers.get("x-baobab-warnings", "")) != is_sent
    await run_due_jobs(baobab.application)
    return app


async def read_outbox(baobab: Baobab, app: str) -> Any:
    return (await baobab.client.get(f"/v1/{app}/auth/outbox", headers=baobab.owner)).json()["mails"]


@pytest.mark.own_installation
async def test_a_mail_is_delivered_as_text_and_html_and_its_code_is_not_shown_again(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    relay = Relay()
    async with open_with_relay(tmp_path, settings, relay) as baobab:
        app = await sign_up(baobab)
        (outbox_mail,) = await read_outbox(baobab, app)
    (mail,) = relay.mails
    assert (mail["To"], mail["Subject"][:25]) == (EMAIL, "Confirm your address for ")
    assert mail["From"].addresses[0].addr_spec == "apps@example.org"
    assert mail["Message-ID"] == f"<{outbox_mail['id']}@example.org>"
    kinds = [part.get_content_type() for part in mail.walk()]
    assert kinds == ["multipart/alternative", "text/plain", "text/html"]
    assert (outbox_mail["status"], outbox_mail["text"], outbox_mail["error"]) == ("sent", None, None)
    assert outbox_mail["sent_at"] is not None


@pytest.mark.own_installation
async def test_a_mail_that_is_refused_for_good_says_why(tmp_path: Path, settings: dict[str, str]) -> None:
    async with open_with_relay(tmp_path, settings, Relay("550 no such mailbox")) as baobab:
        app = await sign_up(baobab)
        (outbox_mail,) = await read_outbox(baobab, app)
    assert (outbox_mail["status"], outbox_mail["error"]) == ("failed", "550 no such mailbox")


@pytest.mark.own_installation
async def test_a_mail_that_cannot_be_taken_now_is_sent_later(tmp_path: Path, settings: dict[str, str]) -> None:
    relay = Relay("451 come again")
    async with open_with_relay(tmp_path, settings, relay) as baobab:
        app = await sign_up(baobab)
        (waiting,) = await read_outbox(baobab, app)
        assert (waiting["status"], waiting["error"], relay.mails) == ("queued", "451 come again", [])
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while (await read_outbox(baobab, app))[0]["status"] != "sent":
                await asyncio.sleep(0.05)
    assert len(relay.mails) == 1


@pytest.mark.own_installation
async def test_what_waits_when_an_app_has_moved_is_sent_where_the_app_is_now(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    relay = Relay("451 come again")
    async with open_with_relay(tmp_path, settings, relay) as baobab:
        app, services = await sign_up(baobab), baobab.application.services
        assert relay.mails == []
        async with services.database.writing_unit(lock=None) as unit:
            await services.jobs.emit(unit, MOVE_ENDED, app_id=app, data={"migration_id": "m", "outcome": "completed"})
        await run_due_jobs(baobab.application)
        (outbox_mail,) = await read_outbox(baobab, app)
    assert (outbox_mail["status"], len(relay.mails)) == ("sent", 1)


async def test_without_a_server_mails_stay_in_the_outbox_with_their_html(baobab: Baobab) -> None:
    app = await sign_up(baobab)
    (outbox_mail,) = await read_outbox(baobab, app)
    assert (outbox_mail["status"], outbox_mail["to"]) == ("outbox", EMAIL)
    whole = await baobab.client.get(f"/v1/{app}/auth/outbox/{outbox_mail['id']}", headers=baobab.owner)
    assert "<!doctype html>" in whole.json()["mail"]["html"]
    nobodys = "00000000-0000-4000-8000-000000000000"
    missing = await baobab.client.get(f"/v1/{app}/auth/outbox/{nobodys}", headers=baobab.owner)
    assert missing.status_code == 404


@pytest.mark.parametrize(
    ("url", "encrypts", "port"),
    [
        ("smtp://mail.example.com", True, 587),
        ("smtp://ada:pass%20word@mail.example.com:2525", True, 2525),
        ("smtps://mail.example.com", None, 465),
        ("smtp://relay.internal?tls=none", False, 25),
    ],
)
def test_encryption_is_demanded_unless_the_setting_says_otherwise(url: str, encrypts: bool | None, port: int) -> None:
    server = SmtpServer.parse(url)
    assert (server.implicit_tls or server.start_tls, server.port) == (encrypts is not False, port)
    assert "pass word" not in repr(server)


@pytest.mark.parametrize(
    "url", ["smtp://ada:secret@mail.example.com?tls=none", "http://mail.example.com", "smtp://", "smtps://a?tls=none"]
)
def test_a_password_is_never_sent_in_clear(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be|goes with") as refusal:
        SmtpServer.parse(url)
    assert "secret" not in str(refusal.value)
